"""The engine: one run from plan to result, on torch alone.

In: a run with a folder, and its group of ranks. Out: the files of that folder, checkpoints among
them. Imports experiments, records and the contract. Knows of no driver, study, search or command.
"""
