"""What is measured: mixers with their parameters, as they are asked for, and the settings of a
comparison.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.experiment import parameters
from subquad.experiment.components import resolve_given
from subquad.experiment.strict_yaml import parse_value
from subquad.plugin import Config, Facts, MixerPlugin, Site
from subquad.registry import Resolved, blocked, find_plugins
from subquad_tools.bench.memory import is_out_of_memory

Precision = Literal["fp32", "bf16", "fp16"]

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}

Measured = dict[str, Any]
"""What was measured of something, or of all, by name, as JSON has it."""

_CHOICE = re.compile(r"(?P<name>.+?)(?::(?P<params>\w+=.*))?", re.DOTALL)
_NEXT = re.compile(r",(?=\s*\w+=)")


@dataclass(frozen=True)
class MixerChoice:
    """One mixer with its parameters.

    Attributes:
        text: as it was asked for.
        resolved: the plugin.
        config: all its parameters.
        facts: what it claims with them.
    """

    text: str
    resolved: Resolved
    config: Config
    facts: Facts

    @property
    def plugin(self) -> MixerPlugin:
        """The descriptor."""
        assert isinstance(self.resolved.plugin, MixerPlugin)
        return self.resolved.plugin

    @property
    def params(self) -> dict[str, Any]:
        """All parameters, as plain values."""
        return self.config.model_dump(mode="json")


@dataclass(frozen=True, kw_only=True)
class SpeedSettings:
    """How it is measured.

    Attributes:
        lengths: L of each comparison.
        dim, heads: D and H.
        tokens: B L, the same at every length; one sample where L is longer.
        batch: B, at every length or by length; None: as `tokens` says.
        rounds: times that every mixer is timed at every length.
        device: "cpu", "cuda", "cuda:1".
        precision: bf16 and fp16 by autocast, as in training: weights and inputs stay float32.
        causal: build the baseline and all mixers causal.
        core: also time attention without its projections.
        published: also time the published forms.
        over: the row whose speed and memory the others' are given over; "": none.
    """

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096)
    dim: int = 128
    heads: int = 2
    tokens: int = 8192
    batch: int | Mapping[int, int] | None = None
    rounds: int = 5
    device: str = "cpu"
    precision: Precision = "fp32"
    causal: bool = False
    core: bool = False
    published: bool = True
    over: str = ""

    def samples(self, length: int) -> int:
        """B at a length."""
        chosen = self.batch.get(length) if isinstance(self.batch, Mapping) else self.batch
        return chosen or max(1, self.tokens // length)

    def shape(self, length: int) -> list[tuple[int, int, int]]:
        """Shapes of a layer's inputs, (B, L, D)."""
        return [(self.samples(length), length, self.dim)]

    def site(self, length: int, *, causal: bool = False) -> Site:
        """Where a mixer stands."""
        return Site(
            dim=self.dim, num_heads=self.heads, max_len=length, causal=self.causal or causal
        )


class LeftOut:
    """What cannot be timed, and why.

    Attributes:
        lines: reasons.
    """

    def __init__(self, lines: list[str], strict: bool):
        self.lines, self._strict, self._large = lines, strict, dict[str, list[int]]()

    def attempt(
        self, name: str, length: int, make: Callable[[], Any], *, strict: bool = True
    ) -> Any:
        """What `make` returns, or None where that cannot be timed.

        Raises:
            SubquadError: of `make`, where it is strict.
        """
        try:
            return make()
        except SubquadError as error:
            if strict and self._strict:
                raise
            self.lines.append(f"{name} at length {length}: {error}")
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._large.setdefault(name, []).append(length)
        return None

    def too_large(self, speeds: Sequence[Measured]) -> list[str]:
        """Whose memory ran out where, and the largest length that fits."""
        lines = []
        for name, lengths in self._large.items():
            fits = [
                speed["length"] for speed in speeds if speed["mixer"].partition(" (")[0] == name
            ]
            fitting = f"the largest that fits is {max(fits)}" if fits else "none of these fits"
            lines.append(
                f"{name}: out of memory at length {', '.join(map(str, lengths))}; {fitting}"
            )
        return lines


def choose_mixer(text: str) -> MixerChoice:
    """A mixer from `NAME` or `NAME:key=value,key=value`; values follow YAML's rules for plain text.

    Raises:
        PluginError: there is no such mixer.
        ConfigError: a parameter is wrong, or given twice.
    """
    match = _CHOICE.fullmatch(text.strip())
    if match is None:
        raise ConfigError("a row needs a mixer: write NAME or NAME:key=value,key=value")
    resolved = resolve_given("mixer", match["name"])
    assert isinstance(resolved.plugin, MixerPlugin)
    try:
        config = parameters(resolved, _params(match["params"]))
    except ConfigError as error:
        raise ConfigError(f"row {text.strip()!r}: {error}") from None
    return MixerChoice(text.strip(), resolved, config, resolved.plugin.facts_of(config))


def choose_mixers(texts: Sequence[str]) -> tuple[list[MixerChoice], list[str]]:
    """The mixers asked for, or all that are installed, at their defaults, and why any of these is
    left out.

    Raises:
        PluginError, ConfigError: there is no such mixer, or a parameter is wrong or given twice.
    """
    if texts:
        return [choose_mixer(text) for text in dict.fromkeys(texts)], []
    installed = [found for found in find_plugins("mixer") if not blocked(found.distribution)]
    names = [found.name for found in installed]
    chosen, skipped = [], []
    for found in installed:
        text = found.name if names.count(found.name) == 1 else f"{found.distribution}:{found.name}"
        try:
            chosen.append(choose_mixer(text))
        except (PluginError, ConfigError) as error:
            skipped.append(f"{text}: {error}")
    return chosen, skipped


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


def _params(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in _NEXT.split(text) if text else ():
        key, _, value = item.strip().partition("=")
        if key in found:
            raise ConfigError(f"{key} is given twice")
        found[key] = parse_value(value, key)
    return found
