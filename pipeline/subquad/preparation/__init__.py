"""Before a run starts: what its data, models and devices are and cost, and whether they fit.

In: a study, or arrays of a caller. Out: a refusal in one line, counts, widths that make models
equal in size. Imports the engine's parts. Knows of no process, and trains nothing.
"""
