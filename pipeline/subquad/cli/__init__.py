"""The command line: one module a verb.

In: words of a command. Out: a session's work, printed as tables or JSON, and an exit code. Imports
everything below; torch and Ray only once names and settings are right. Knows nothing of how a run
trains.
"""
