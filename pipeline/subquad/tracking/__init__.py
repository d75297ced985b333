"""MLflow tracking. Training writes its metrics to files and never talks to MLflow; a process
beside the driver, `subquad sync FOLDER --follow`, sends them.

Only that process imports mlflow, and none of this imports torch.
"""
