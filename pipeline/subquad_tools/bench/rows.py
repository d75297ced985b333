"""What is measured: mixers with their parameters, as they are asked for, the settings of a
comparison, and protocols, YAML files with both, one's own or beside a package's recipes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.experiment import parameters
from subquad.experiment.components import Resolve, resolve_given
from subquad.experiment.strict_yaml import parse_value, parse_yaml, read_text
from subquad.plugin import Config, Facts, MixerPlugin
from subquad.registry import Resolved, blocked, find_plugins, recipes, resolve
from subquad.reports.published import published_tables
from subquad.suggest import did_you_mean
from subquad_tools.bench.memory import is_out_of_memory

Precision = Literal["fp32", "bf16", "fp16"]

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}

Measured = dict[str, Any]
"""What was measured of something, or of all, by name, as JSON has it."""

_CHOICE = re.compile(
    r"(?P<name>.+?)(?::(?P<params>\w+=.*?))?(?: by (?P<kernels>reference))?", re.DOTALL
)
_NEXT = re.compile(r",(?=\s*\w+=)")


@dataclass(frozen=True)
class MixerChoice:
    """One mixer with its parameters.

    Attributes:
        text: as it was asked for, or the name that its row has.
        resolved: the plugin.
        config: all its parameters.
        kernels: "reference" where all its operations run by their plain forms.
    """

    text: str
    resolved: Resolved
    config: Config
    kernels: str = ""

    @property
    def plugin(self) -> MixerPlugin:
        """The descriptor."""
        assert isinstance(self.resolved.plugin, MixerPlugin)
        return self.resolved.plugin

    @property
    def facts(self) -> Facts:
        """What it claims with its parameters."""
        return self.plugin.facts_of(self.config)

    @property
    def params(self) -> dict[str, Any]:
        """All parameters, as plain values."""
        return self.config.model_dump(mode="json")


class SpeedSettings(BaseModel):
    """How it is measured.

    Attributes:
        lengths: L of each comparison.
        dim, heads: D and H.
        tokens: B L, the same at every length; one sample where L is longer.
        batch: B, at every length or at each; None: as `tokens` says.
        rounds: times that every mixer is timed at every length.
        device: "cpu", "cuda", "cuda:1".
        precision: bf16 and fp16 by autocast, as in training: weights and inputs stay float32.
        causal: build the baseline and all mixers causal.
        core: time attention alone, without its projections.
        published: also time the published forms.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lengths: Sequence[PositiveInt] = (512, 1024, 2048, 4096)
    dim: PositiveInt = 128
    heads: PositiveInt = 2
    tokens: PositiveInt = 8192
    batch: PositiveInt | list[PositiveInt] | None = None
    rounds: PositiveInt = 5
    device: str = "cpu"
    precision: Precision = "fp32"
    causal: bool = False
    core: bool = False
    published: bool = True

    @model_validator(mode="after")
    def _fits(self) -> Self:
        count = len(self.lengths)
        if isinstance(self.batch, list) and len(self.batch) != count:
            raise ValueError(f"batch has {len(self.batch)} numbers for {count} lengths")
        if self.dim % self.heads:
            raise ValueError(f"a width of {self.dim} is not divisible by {self.heads} heads")
        return self

    @classmethod
    def read(cls, data: Mapping[str, Any], name: str) -> Self:
        """From plain data; `name` is where they are from.

        Raises:
            ConfigError: the first that cannot be used.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first, *_ = error.errors()
            where = ".".join(map(str, first["loc"]))
            hint = ""
            if first["type"] == "extra_forbidden":
                hint = did_you_mean(where, cls.model_fields)
            message = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{name}: {where}: {message}{hint}".replace(": : ", ": ")) from None

    def samples(self, length: int) -> int:
        """B at a length."""
        if isinstance(self.batch, list):
            return self.batch[self.lengths.index(length)]
        return self.batch or max(1, self.tokens // length)


class LeftOut:
    """What cannot be timed, and why.

    Attributes:
        lines: reasons.
    """

    def __init__(self, lines: Sequence[str] = (), strict: bool = False):
        self.lines = [*lines]
        self._strict = strict

    @contextmanager
    def noting(self, name: str, length: int, *, strict: bool = True) -> Iterator[None]:
        """End the block where it cannot be timed, and note why.

        Raises:
            SubquadError: of the block, where it is strict.
        """
        try:
            yield
        except SubquadError as error:
            if strict and self._strict:
                raise
            self.lines.append(f"{name} at length {length}: {error}")
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self.lines.append(f"{name} at length {length}: out of memory")


def choose_mixer(text: str, find: Resolve = resolve_given) -> MixerChoice:
    """A mixer from `NAME` or `NAME:key=value,key=value`, either with ` by reference` behind it;
    values follow YAML's rules for plain text.

    Raises:
        PluginError: there is no such mixer.
        ConfigError: a parameter is wrong, or given twice.
    """
    text = text.strip()
    match = _CHOICE.fullmatch(text)
    if match is None:
        raise ConfigError("a row needs a mixer: write NAME or NAME:key=value,key=value")
    resolved = find("mixer", match["name"])
    params: dict[str, Any] = {}
    try:
        for setting in _NEXT.split(match["params"]) if match["params"] else ():
            key, _, value = setting.strip().partition("=")
            if key in params:
                raise ConfigError(f"{key} is given twice")
            params[key] = parse_value(value, key)
        config = parameters(resolved, params)
    except ConfigError as error:
        raise ConfigError(f"row {text!r}: {error}") from None
    return MixerChoice(text, resolved, config, match["kernels"] or "")


def choose_mixers(texts: Sequence[str]) -> tuple[list[MixerChoice], LeftOut]:
    """The mixers asked for, or all that are installed, at their defaults, and why any of these is
    left out; one that was asked for is not.

    Raises:
        PluginError, ConfigError: there is no such mixer, or a parameter is wrong or given twice.
    """
    if texts:
        return [choose_mixer(text, resolve) for text in dict.fromkeys(texts)], LeftOut(strict=True)
    installed = [found for found in find_plugins("mixer") if not blocked(found.distribution)]
    names = Counter(found.name for found in installed)
    chosen = []
    left_out = LeftOut()
    for found in installed:
        text = found.name if names[found.name] == 1 else found.full_name
        try:
            chosen.append(choose_mixer(text))
        except (PluginError, ConfigError) as error:
            left_out.lines.append(f"{text}: {error}")
    return chosen, left_out


def torch_device(name: str) -> torch.device:
    """The device of this name.

    Raises:
        ConfigError: it is none, or torch does not see it.
    """
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"--device {name}: give cpu, cuda or cuda:1")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: torch sees no CUDA device here; use cpu")
    return torch.device(name)


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
        costs: dict[Any, np.ndarray] = defaultdict(lambda: np.full(2, np.nan))
        for speed in found["speeds"]:
            time = speed[f"{self.part}_us"] * speed["batch"] * speed["length"]
            costs[speed["mixer"], speed["length"]] = np.array([time, speed["peak_mib"]])
        columns = self.columns or {str(length): [length] for length in found["settings"]["lengths"]}
        lines = []
        for name in dict.fromkeys(speed["mixer"] for speed in found["speeds"]):
            for column, lengths in columns.items():
                own = sum(costs[name, length] for length in lengths)
                base = sum(costs[self.over, length] for length in lengths)
                now = sum(costs[found["baselines"].get(length), length] for length in lengths)
                paper = (self._paper(name, column), self._paper(self.over, column))
                line = {"mixer": name, "column": column, **_over("", own, base)}
                if line["speed"]:
                    lines.append({**line, **_over("printed_", *paper), **_over("now_", own, now)})
        return lines

    def _paper(self, name: str, column: str) -> np.ndarray:
        """Time and memory as printed."""
        printed = self.printed
        place = (printed.get("source"), printed.get("table"), name, column)
        values = {
            row.metric: row.value
            for table in published_tables()
            for row in table.rows
            if (row.source, row.table, row.model, row.benchmark) == place
        }
        time, speed, memory = (
            values.get(printed.get(key, ""), np.nan) for key in ("time", "speed", "memory")
        )
        return np.array([1 / speed if "speed" in printed else time, memory])


def _over(prefix: str, own: Any, base: Any) -> Measured:
    """How many times as fast, and what part of the memory; None where that is not known."""
    ratios = {"speed": float(base[0] / own[0]), "memory": float(own[1] / base[1])}
    return {f"{prefix}{key}": None if isnan(ratio) else ratio for key, ratio in ratios.items()}
