"""subquad: bring a token mixer, get the paper. Importing this loads neither torch, ray, mlflow
nor sktime.
"""

from importlib.metadata import version as _version

from subquad.api import attention, datasets, load, mixer, report, train, tune

__all__ = [
    "__version__",
    "attention",
    "datasets",
    "load",
    "mixer",
    "report",
    "train",
    "tune",
]

__version__ = _version("subquad")
