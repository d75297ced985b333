"""Data that a caller of the Python interface gives: written as files of the user's, which a data
set of the experiment reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from subquad.errors import ConfigError, DataError
from subquad.experiment import named_datasets
from subquad.experiment.components import resolve_given
from subquad.plugin import DatasetPlugin
from subquad.record.storage import data_root
from subquad.registry import Resolved, find_plugins, import_target, resolve


@dataclass(frozen=True)
class GivenData:
    """Data from Python that lie in files.

    Attributes:
        overrides: the caller's settings, with those that make an experiment read the files.
        names: what messages call each file.
    """

    overrides: tuple[str, ...]
    names: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let refusals in the block speak of the data, not of the files that were written."""
        try:
            yield
        except DataError as error:
            text = str(error)
            for path in sorted(self.names, key=len, reverse=True):
                text = text.replace(path, self.names[path])
            if text == str(error):
                raise
            raise type(error)(text) from None


def given_data(target: str, overrides: Sequence[str], data: Any) -> GivenData:
    """Write data from Python for an experiment.

    A data set of the experiment that reads files of its users gets them, with its parameters. In
    place of another one comes the data set for such inputs that does.

    Args:
        data: None for none.

    Raises:
        DataError: the data cannot be used.
        ConfigError: no data set of files takes the place of the experiment's.
    """
    if data is None:
        return GivenData(tuple(overrides))
    names, is_axis = named_datasets(
        target, [word for word in overrides if not word.startswith("dataset.params.")]
    )
    reader, is_other = _reader(names)
    path, called = import_target(reader.found, _plugin(reader).from_python)(data, data_root())
    name = reader.found.full_name
    place = f"matrix.dataset=[{name}]" if is_axis else f"dataset={name}"
    return GivenData(
        (*([place] if is_other else ()), *overrides, f"dataset.params.path={path}"), called
    )


def _reader(names: Sequence[str]) -> tuple[Resolved, bool]:
    """The data set that reads the files, and whether the experiment has another one."""
    own = [resolve_given("dataset", name) for name in names]
    if len(own) == 1 and _plugin(own[0]).from_python:
        return own[0], False
    inputs = {_plugin(dataset).inputs for dataset in own}
    readers = []
    for found in find_plugins("dataset"):
        dataset = resolve("dataset", found.full_name)
        if _plugin(dataset).from_python:
            if not inputs or _plugin(dataset).inputs in inputs:
                return dataset, True
            readers.append(found.name)
    raise ConfigError(
        f"data: {', '.join(names)} has {', '.join(sorted(inputs))}, which are not taken from "
        f"Python; give one of {', '.join(readers)}, as in dataset={readers[0]}"
    )


def _plugin(found: Resolved) -> DatasetPlugin:
    assert isinstance(found.plugin, DatasetPlugin)
    return found.plugin
