"""MLflow tracking. Training writes metrics.jsonl and never talks to MLflow; a process beside the driver sends it.

Only that process imports mlflow and matplotlib, and none of this imports torch.
"""
