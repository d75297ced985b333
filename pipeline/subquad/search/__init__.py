"""Hyper-parameter search: what to try next, when to give up on a trial, how much each mixer may spend.

A search lies in a folder, and the folder is its only memory: a trial is an ordinary run below it, with `trial.json`
that says which point of the space it is. Searchers and schedulers are pure functions of what the folder says, so a
search that was killed at any moment goes on by being asked again.

Settings, spaces, searchers and schedulers import neither torch, Ray nor Optuna; the searchers tpe and gp import Optuna
when they are asked, and `prepare.py` and `run.py`, which look at models and train, import torch.
"""
