"""Training of many runs: which starts next, in which processes, and what stops them."""
