"""A paper's tables from its file: which runs each cell needs, what is there, and the tables with
all of it, in files that can be verified.

Stands above sessions and reports.
"""
