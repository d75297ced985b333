"""Experiment files: read, override, check, expand into studies, write in one canonical form.

In: a file or recipe, and KEY=VALUE. Out: a `Study` of `Run`s, each with its plugins and a digest.
Imports the registry and records; no torch. Knows of no driver, and trains nothing.
"""

from subquad.experiment.canonical import differences, digest, dump
from subquad.experiment.components import dataset_of, parameters, parse
from subquad.experiment.run import Run, checked_run
from subquad.experiment.study import Study, load_given, load_study, load_text, named_datasets

__all__ = [
    "Run",
    "Study",
    "checked_run",
    "dataset_of",
    "differences",
    "digest",
    "dump",
    "load_given",
    "load_study",
    "load_text",
    "named_datasets",
    "parameters",
    "parse",
]
