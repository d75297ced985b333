"""Training of many runs: which starts next, in which processes, and what stops them.

In: a source of runs. Out: their folders, each with a result, and the signal that stopped them. An
`Executor` has the processes, a `RunQueue` the order. Imports the engine, preparation and tracking.
Knows neither Ray nor searches.
"""
