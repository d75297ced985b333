"""What things cost on this machine, measured as differences and ratios within one process."""
