"""Executing, preparing and looking at runs in folders.

In: a study, and an executor. Out: folders with results, trained models, what is wrong with a
folder. Imports the engine, experiments, records and tracking; no Ray. Knows of no command and no
search.
"""
