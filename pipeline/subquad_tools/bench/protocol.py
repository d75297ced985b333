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
        lengths = self.lengths or []
        if isinstance(self.batch, list) and len(self.batch) != len(lengths):
            raise ValueError(f"batch has {len(self.batch)} numbers for {len(lengths)} lengths")
        if self.over is not None and self.over not in self.mixers:
            hint = did_you_mean(self.over, self.mixers)
            raise ValueError(f"over: {self.over} is none of the mixers{hint}")
        return self

    @classmethod
    def read(cls, name: str) -> Self:
        """A protocol by the name of an installed one, or from a file.

        Raises:
            ConfigError: there is none, or it cannot be used.
        """
        text = _text(name)
        try:
            return cls.model_validate(parse_yaml(text, name).data or {})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "protocol"
            message = first["msg"].removeprefix("Value error, ")
            if first["type"] == "extra_forbidden":
                message += did_you_mean(where, cls.model_fields)
            raise ConfigError(f"{name}: {where}: {message}") from None

    def settings(self) -> dict[str, Any]:
        """What it sets of `rows.SpeedSettings`."""
        found = self.model_dump(exclude={"mixers"}, exclude_none=True)
        if self.lengths:
            found["lengths"] = tuple(self.lengths)
        if isinstance(self.batch, list):
            found["batch"] = dict(zip(self.lengths or (), self.batch, strict=True))
        return found


def _text(name: str) -> str:
    if name.endswith((".yaml", ".yml")):
        return read_text(Path(name), name)
    files = yaml_files("recipe", FOLDER)
    matching = [file for file in files if name in (file.name, file.full_name)]
    if len(matching) == 1:
        return matching[0].text()
    problem = "no protocol"
    known = sorted(file.name for file in files)
    if matching:
        problem = "several packages offer protocol"
        known = sorted(file.full_name for file in matching)
    hint = did_you_mean(name, known)
    raise ConfigError(f"--protocol: {problem} {name!r}{hint}; protocols: {', '.join(known)}")
