"""Protocols of `subquad bench mixers`: YAML files with mixers and settings, one's own or beside
a package's recipes.
"""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, field_validator, model_validator

from subquad.errors import ConfigError
from subquad.experiment.strict_yaml import parse_yaml, read_text
from subquad.registry import recipes
from subquad.reports.published import published_tables
from subquad.suggest import did_you_mean
from subquad_tools.bench.rows import Measured, MixerChoice, SpeedSettings, choose_mixer

FOLDER = "benchmarks"
"""Where protocols lie in a package that has recipes."""


class Protocol(SpeedSettings):
    """What a protocol says. What it does not say of `SpeedSettings` is as the command's options
    say.

    Attributes:
        mixers: rows, as the command takes them, by the names that they have in a table.
        over: the row whose time and memory the others' are given over; "": none.
        columns: those of the table: lengths whose times and memory are summed; empty: each length.
        part: whose time the table has, of `clock.PARTS`.
        printed: the paper's numbers among published rows (`subquad.published`): their `source` and
            `table`, and their metrics of `time`, or of `speed`, which is one over it, and of peak
            `memory`; empty: it prints none.
    """

    mixers: dict[str, str] = Field(default={})
    over: str = ""
    columns: dict[str, list[PositiveInt]] = Field(default={})
    part: Literal["forward", "both"] = "both"
    printed: dict[Literal["source", "table", "time", "speed", "memory"], str] = Field(default={})

    @field_validator("mixers", mode="before")
    @classmethod
    def _named(cls, mixers: Any) -> Any:
        return {row: row for row in mixers} if isinstance(mixers, list) else mixers

    @model_validator(mode="after")
    def _has_over(self) -> Self:
        over = self.over
        if over and over not in self.mixers:
            raise ValueError(f"over: {over} is none of the mixers{did_you_mean(over, self.mixers)}")
        return self

    @classmethod
    def of(cls, name: str) -> Self:
        """A protocol by the name of an installed one, or from a file.

        Raises:
            ConfigError: there is none, or it cannot be used.
        """
        path = Path(name)
        known = recipes("recipe", FOLDER)
        files = [file for short, file in known.items() if name in (short, file.full_name)]
        if path.suffix in (".yaml", ".yml"):
            text = read_text(path, name)
        elif files:
            text = files[0].text()
        else:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f"--protocol: no protocol {name!r}{hint}; protocols: {', '.join(known)}"
            )
        return cls.read(parse_yaml(text, name).data or {}, name)

    def chosen(self) -> list[MixerChoice]:
        """Its mixers, each by the name of its row.

        Raises:
            PluginError, ConfigError: there is no such mixer, or a parameter is wrong.
        """
        return [replace(choose_mixer(row), text=name) for name, row in self.mixers.items()]

    def table(self, found: Measured) -> list[Measured]:
        """The paper's table of what was measured (`mixers.time_mixers`), a line for each of its
        rows and columns; only columns all of whose lengths were timed.

        Returns:
            `mixer`, `column`; how many times as fast as the row `over`, and what part of its peak
            memory, forward and backward (`speed`, `memory`); both as the paper prints them
            (`printed_speed`, `printed_memory`), None where it does not; the same over the fastest
            of torch's attentions (`now_speed`, `now_memory`), None where none fits. Nothing without
            `over`.
        """
        costs: dict[Any, np.ndarray] = {}
        for speed in found["speeds"]:
            time = speed[f"{self.part}_us"] * speed["batch"] * speed["length"]
            costs[speed["mixer"], speed["length"]] = np.array([time, speed["peak_mib"]])
        baselines = found["baselines"]
        columns = self.columns or {str(length): [length] for length in found["settings"]["lengths"]}
        lines = []
        for name in dict.fromkeys(name for name, _ in costs):
            for column, lengths in columns.items():
                own = sum(costs.get((name, length), _UNKNOWN) for length in lengths)
                base = sum(costs.get((self.over, length), _UNKNOWN) for length in lengths)
                now = sum(costs.get((baselines.get(size), size), _UNKNOWN) for size in lengths)
                paper = (self._paper(name, column), self._paper(self.over, column))
                line = {"mixer": name, "column": column, **_over("", own, base)}
                if line["speed"]:
                    lines.append({**line, **_over("printed_", *paper), **_over("now_", own, now)})
        return lines

    def _paper(self, name: str, column: str) -> np.ndarray:
        """Time and memory as printed."""
        printed = self.printed
        place = (printed.get("source"), printed.get("table"), name, column)
        values = {}
        for table in published_tables():
            for row in table.rows:
                if (row.source, row.table, row.model, row.benchmark) == place:
                    values[row.metric] = row.value
        time, speed, memory = (
            values.get(printed.get(key), np.nan) for key in ("time", "speed", "memory")
        )
        return np.array([1 / speed if "speed" in printed else time, memory])


_UNKNOWN = np.full(2, np.nan)
"""A time and a peak memory."""


def _over(prefix: str, own: Any, base: Any) -> Measured:
    """How many times as fast, and what part of the memory; None where that is not known."""
    ratios = {"speed": float(base[0] / own[0]), "memory": float(own[1] / base[1])}
    return {f"{prefix}{key}": None if isnan(ratio) else ratio for key, ratio in ratios.items()}
