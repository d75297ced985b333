"""Hyper-parameter search: what to try next, when to give up on a trial, how much each candidate may
spend.

A search lies in a folder, and its journal is the only record of trials: a storage of Optuna's,
whose samplers and pruners are asked on it. So a search that was killed at any moment goes on by
being asked again. A trial is an ordinary run below the folder.
"""

import subquad.space  # noqa: F401  (says first where Optuna is missing)
