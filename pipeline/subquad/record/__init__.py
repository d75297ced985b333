"""What lies in the folder of a run, a study and a search.

In: such a folder, also one of somebody else. Out: values of its files, checked, and files written
whole. Imports `security`, the metric's description and errors. Knows of no experiment, model or
command.
"""
