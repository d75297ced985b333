"""MLflow tracking. Training writes its metrics to files and never talks to MLflow; a process beside
the driver imports them, `python -m subquad.tracking.importing`.

Only that process imports mlflow. TensorBoard's writer aside, none of this imports torch.
"""
