"""Experiment files: read, override, check, expand into studies, write in one canonical form."""

from subquad.experiment.canonical import differences, digest, dump
from subquad.experiment.run import Run, check, dataset_of, parameters, parse
from subquad.experiment.study import Study, load_study, load_text

__all__ = [
    "Run",
    "Study",
    "check",
    "dataset_of",
    "differences",
    "digest",
    "dump",
    "load_study",
    "load_text",
    "parameters",
    "parse",
]
