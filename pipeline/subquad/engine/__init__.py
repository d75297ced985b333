"""The engine: one run from plan to result, on torch alone."""
