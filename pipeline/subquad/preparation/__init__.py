"""Before a run starts: what its data, models and devices are and cost, and whether they fit."""
