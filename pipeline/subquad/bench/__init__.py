"""The engine's own costs, measured as differences within one process."""
