"""A small experiment for any mixer, and spaces held against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from subquad.errors import UserError
from subquad.experiment import Run, load_study
from subquad.space import Space, check_space, find_space

BASE = """\
dataset: {name: recall, params: {train_size: 64, validation_size: 32, test_size: 32}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 32, num_heads: 2}}
mixer: MIXER
train: {epochs: 1}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., Run]:
    """`experiment("agf", "mixer.params.order=4")`."""

    def make(mixer: str = "agf", *overrides: str) -> Run:
        (tmp_path / "base.yaml").write_text(BASE.replace("MIXER", mixer), encoding="utf-8")
        return load_study("base.yaml", overrides, cwd=tmp_path).runs[0]

    return make


@pytest.fixture
def space(tmp_path: Path, experiment: Callable[..., Run]) -> Callable[..., Space]:
    """The space that a text, as `s.yaml`, is for an experiment with overrides."""

    def make(text: str, *overrides: str, mixer: str = "agf", drop: bool = False) -> Space:
        (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
        given = experiment(mixer, *overrides)
        return check_space(find_space("./s.yaml", given, cwd=tmp_path), given, drop=drop)

    return make


@pytest.fixture
def refused(space: Callable[..., Space]) -> Callable[..., str]:
    """The one line with which a text is refused, without its `./s.yaml:`."""

    def refusal(text: str, *overrides: str, mixer: str = "agf") -> str:
        with pytest.raises(UserError) as caught:
            space(text, *overrides, mixer=mixer)
        message = str(caught.value)
        assert message.startswith("./s.yaml:")
        assert "\n" not in message
        return message.removeprefix("./s.yaml:")

    return refusal
