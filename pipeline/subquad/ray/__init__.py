"""Runs on Ray: on this machine, on a cluster, and as a job that is submitted.

In: runs that an executor is handed. Out: the same files as `--local` writes. Imports execution, and
is the only package that imports Ray. Knows of no command.
"""
