"""Protocols of `subquad bench mixers`: YAML files with mixers and settings, one's own or beside
a package's recipes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, model_validator

from subquad.errors import ConfigError
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.registry.shipped import yaml_files
from subquad.suggest import did_you_mean
from subquad_tools.bench.rows import Precision

FOLDER = "benchmarks"
"""Where protocols lie in a package that has recipes."""


class Protocol(BaseModel):
    """What a protocol says. Attributes are those of `rows.SpeedSettings`; None: as the command's
    options say.

    Attributes:
        mixers: rows, as the command takes them.
        batch: samples at every length, or at each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    mixers: list[str] = []
    lengths: list[PositiveInt] | None = None
    dim: PositiveInt | None = None
    heads: PositiveInt | None = None
    tokens: PositiveInt | None = None
    batch: PositiveInt | list[PositiveInt] | None = None
    rounds: PositiveInt | None = None
    precision: Precision | None = None
    causal: bool | None = None
    core: bool | None = None
    over: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        batch = self.batch
        if isinstance(batch, list):
            batches = len(batch)
            lengths = len(self.lengths or [])
            if batches != lengths:
                raise ValueError(f"batch has {batches} numbers for {lengths} lengths")
        over = self.over
        mixers = self.mixers
        if over is not None and over not in mixers:
            raise ValueError(f"over: {over} is none of the mixers{did_you_mean(over, mixers)}")
        return self

    @classmethod
    def read(cls, name: str) -> Self:
        """A protocol by the name of an installed one, or from a file.

        Raises:
            ConfigError: there is none, or it cannot be used.
        """
        text = _text(name)
        data = parse_yaml(text, name).data or {}
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first, *_ = error.errors()
            location = map(str, first["loc"])
            where = ".".join(location) or "protocol"
            hint = ""
            if first["type"] == "extra_forbidden":
                hint = did_you_mean(where, cls.model_fields)
            message = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{name}: {where}: {message}{hint}") from None

    def settings(self) -> dict[str, Any]:
        """What it sets of `rows.SpeedSettings`."""
        found = self.model_dump(exclude={"mixers"}, exclude_none=True)
        lengths = self.lengths or []
        if lengths:
            found["lengths"] = tuple(lengths)
        batch = self.batch
        if isinstance(batch, list):
            found["batch"] = dict(zip(lengths, batch, strict=True))
        return found


def _text(name: str) -> str:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return read_text(path, name)
    files = yaml_files("recipe", FOLDER)
    matching = [file for file in files if name in (file.name, file.full_name)]
    if len(matching) == 1:
        (file,) = matching
        return file.text()
    problem = "no protocol"
    known = [file.name for file in files]
    if matching:
        problem = "several packages offer protocol"
        known = [file.full_name for file in matching]
    known.sort()
    hint = did_you_mean(name, known)
    names = ", ".join(known)
    raise ConfigError(f"--protocol: {problem} {name!r}{hint}; protocols: {names}")
