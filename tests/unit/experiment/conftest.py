"""A small experiment that uses built-in plugins, fake plugins for what no built-in shows, and a
check of refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from subquad.errors import UserError
from subquad.experiment import Study, load_study
from subquad.plugin import (
    BackbonePlugin,
    Config,
    DatasetConfig,
    DatasetPlugin,
    Facts,
    Metric,
    MixerConfig,
    MixerPlugin,
    Site,
    TaskPlugin,
    param,
)
from subquad.registry import Found, Resolved, resolve

BASE = """\
name: base
dataset: {name: uea, params: {problem: JapaneseVowels}}
task: classification
backbone: {name: encoder, params: {num_layers: 2, dim: 64, num_heads: 4}}
mixer: {name: agf, params: {order: 4}}
train:
  epochs: 20
  batch_size: 16
  lr: 1e-3
"""


class Empty(Config):
    """No parameters."""


class Files(Config):
    """A parameter that is a path, and one that is not."""

    folder: str | None = param(None, meaning="where the data are", path=True)
    word: str = param("a", meaning="anything")


class Corpora(DatasetConfig):
    """A data set with a label of its own."""

    corpus: str = param("small", meaning="which one", min_length=1)
    cut: int = param(8, meaning="longest text", ge=1)
    folder: str | None = param(None, meaning="where the data are", path=True)

    @staticmethod
    def label(corpus: str, cut: int) -> str:
        return f"{corpus}-{cut:d}"


class Block(MixerConfig):
    """A mixer that works in blocks."""

    block: int = param(8, meaning="width of a block", ge=1)
    window: tuple[int, int] = param((1, 2), meaning="first and last")

    def check(self, site: Site) -> None:
        if site.head_dim % self.block:
            raise ValueError(
                f"block {self.block} does not divide the head width {site.head_dim}: use 4"
            )


class Broken(MixerConfig):
    """A mixer whose check fails by itself."""

    def check(self, site: Site) -> None:
        raise KeyError("oops")


class Plain(Config):
    """A backbone that leaves dim and num_heads to us."""

    dim: int = param(64, meaning="width", ge=1)
    num_heads: int = param(4, meaning="heads", ge=1)


def _found(kind: Any, name: str) -> Found:
    return Found(kind, name, "fakes", "1.0", "fakes:PLUGIN")


_COMMON: dict[str, Any] = {"build": "fakes:Nothing", "summary": "a fake"}
FAKES = {
    ("dataset", "words"): DatasetPlugin(
        config=Empty, inputs="tokens", targets=("class",), **_COMMON
    ),
    ("dataset", "files"): DatasetPlugin(
        config=Files, inputs="series", targets=("class",), **_COMMON
    ),
    ("dataset", "stories"): DatasetPlugin(
        config=Empty, inputs="series", targets=("sequence",), **_COMMON
    ),
    ("dataset", "letters"): DatasetPlugin(
        config=Empty, inputs="tokens", targets=("sequence",), **_COMMON
    ),
    ("task", "summarisation"): TaskPlugin(
        config=Empty, targets=("sequence",), reports={"rouge": Metric()}, **_COMMON
    ),
    ("task", "any"): TaskPlugin(
        config=Empty, targets=("class", "sequence"), reports={"loss": Metric(mode="min")}, **_COMMON
    ),
    ("dataset", "any"): DatasetPlugin(config=Empty, inputs="series", targets=("class",), **_COMMON),
    ("dataset", "corpora"): DatasetPlugin(
        config=Corpora, inputs="series", targets=("class",), **_COMMON
    ),
    ("backbone", "series-only"): BackbonePlugin(
        config=Plain, inputs=("series",), targets=("class",), **_COMMON
    ),
    ("backbone", "decoder"): BackbonePlugin(
        config=Plain, inputs=("series",), targets=("class",), causal=True, **_COMMON
    ),
    ("mixer", "block"): MixerPlugin(config=Block, **_COMMON),
    ("mixer", "broken"): MixerPlugin(config=Broken, **_COMMON),
    ("mixer", "counter"): MixerPlugin(config=MixerConfig, facts=Facts(stateful=True), **_COMMON),
    ("mixer", "causal"): MixerPlugin(config=MixerConfig, facts=Facts(causal="always"), **_COMMON),
}


def resolve_with_fakes(kind: Any, name: str, *, base: Path | None = None) -> Resolved:
    """Fakes first, then what is installed."""
    fake = FAKES.get((kind, name))
    return Resolved(fake, _found(kind, name)) if fake else resolve(kind, name, base=base)


@pytest.fixture
def base_text() -> str:
    return BASE


@pytest.fixture
def fakes() -> Callable[..., Resolved]:
    return resolve_with_fakes


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Study]:
    """Load a text as `exp.yaml` in a folder of its own, with overrides; fakes may be used."""

    def load_text(text: str, *overrides: str) -> Study:
        (tmp_path / "exp.yaml").write_text(text, encoding="utf-8")
        return load_study("exp.yaml", overrides, cwd=tmp_path, resolve=resolve_with_fakes)

    return load_text


@pytest.fixture
def refused(loaded: Callable[..., Study]) -> Callable[..., str]:
    """The one-line message with which a text and overrides are refused."""

    def refusal(text: str, *overrides: str) -> str:
        with pytest.raises(UserError) as caught:
            loaded(text, *overrides)
        message = str(caught.value)
        assert "\n" not in message
        assert "pydantic" not in message.lower()
        assert len(message) <= 600
        return message

    return refusal
