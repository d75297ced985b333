"""Experiment files: read, override, check, expand into studies, write in one canonical form."""

from subquad.experiment.canonical import differences, digest, dump
from subquad.experiment.checked import Checked, check, parameters, parse
from subquad.experiment.plan import Cell, Plan, load

__all__ = ["Cell", "Checked", "Plan", "check", "differences", "digest", "dump", "load", "parameters", "parse"]
