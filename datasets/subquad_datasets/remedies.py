"""What a user can do about a refusal that several data sets share. Imports nothing: for light halves."""

LEAVE_OUT = (
    "with a path leave it out; if a recipe gives it, replace them all, dataset.params={path: ..., ...} (in a study the "
    "whole axis, matrix.dataset=[...])"
)
"""For parameters of a generator beside a `path`; a recipe's scale may have given them, not the user."""
