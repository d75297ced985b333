"""A trained model out of a run's folder: its answers, its export, its verification."""
