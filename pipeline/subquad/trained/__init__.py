"""A trained model out of a run's folder: its answers, its export, its verification.

In: the folder of a run. Out: a model, predictions, a folder of its own, or what does not agree with
the result. Imports the engine and preparation. Knows of no executor, and changes no run.
"""
