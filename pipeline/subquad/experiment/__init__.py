"""Experiment files: read, override, check, expand into studies, write in one canonical form."""

from subquad.experiment.canonical import differences, digest, dump
from subquad.experiment.components import dataset_of, parameters, parse
from subquad.experiment.run import Run, checked_run
from subquad.experiment.study import Study, load_study, load_text, named_datasets

__all__ = [
    "Run",
    "Study",
    "checked_run",
    "dataset_of",
    "differences",
    "digest",
    "dump",
    "load_study",
    "load_text",
    "named_datasets",
    "parameters",
    "parse",
]
