"""Hyper-parameter search: what to try next, when to give up on a trial, how much each candidate may
spend.

A search lies in a folder, and the folder is its only memory: a trial is an ordinary run below it,
with `trial.json` that says which point of the space it is. Samplers and pruners are Optuna's, asked
on studies that are made anew of what the folder says, so a search that was killed at any moment
goes on by being asked again.
"""

import subquad.space  # noqa: F401  (says first where Optuna is missing)
