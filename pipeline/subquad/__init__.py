"""subquad: bring a token mixer, get the paper. Importing this loads neither torch, ray, mlflow nor sktime."""

from importlib.metadata import version as _version

__version__ = _version("subquad")
