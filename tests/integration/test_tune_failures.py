"""Trials that fail, by a mixer of somebody else's: marked with the reason, and the search goes
on.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command import cli
from result_file import read_result
from searches import only_search
from small_run import SMALL

from subquad.record.layout import runs_below
from subquad.search.search import read_search

MIXER = '''"""Fails as asked: when built, at once, or in its tenth pass over a training batch."""
import sys
from typing import Literal

import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param


class Failing(TokenMixer):
    class Config(MixerConfig):
        how: Literal[
            "never", "raises", "memory", "nan", "exits", "unbuilt", "exits-unbuilt"
        ] = param("never", meaning="how it fails")

    facts = Facts(padding_invariant=True, complexity="L")
    paper = "nobody, 2026"

    def __init__(self, config, site):
        super().__init__()
        if config.how == "unbuilt":
            raise OSError("no weights to begin with")
        if config.how == "exits-unbuilt":
            sys.exit("no licence")
        self.how, self.passes = config.how, 0
        self.value = torch.nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        if self.how == "exits":
            sys.exit(3)
        self.passes += self.training and torch.is_grad_enabled()
        if self.passes >= 10:
            if self.how == "raises":
                raise ValueError("this mixer\\nhas had enough")
            if self.how == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            if self.how == "nan":
                x = x * torch.nan
        return self.value(x)
'''
WAYS = "raises, memory, nan, exits, unbuilt, exits-unbuilt, never"
SPACE = f"dims: {{mixer.params.how: {{choice: [{WAYS}]}}}}"
SETTINGS = ["mixer=./failing.py:Failing", "--sampler", "grid", "sampler.seed=3", "final.seeds=1"]

TOLD = {
    "raises": ("failed", "ValueError: this mixer has had enough"),
    "memory": ("failed", "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB"),
    "nan": ("failed", "3 non-finite steps in a row"),
    "exits": ("failed", "RuntimeError: a plugin called sys.exit(3)"),
    "unbuilt": ("infeasible", "cannot be built for layer 0: OSError: no weights to begin with"),
    "exits-unbuilt": (
        "infeasible",
        "cannot be built for layer 0: it called sys.exit('no licence')",
    ),
    "never": ("finished", ""),
}
"""How a trial shall end, and what is said of it."""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(["--local"], id="local"),
        pytest.param([], id="ray"),
        pytest.param(
            ["--local", "resources.workers=2"], marks=pytest.mark.extended, id="local-2-workers"
        ),
        pytest.param(["resources.workers=2"], marks=pytest.mark.extended, id="ray-2-workers"),
    ],
)
def test_no_failing_trial_ends_the_search(tmp_path: Path, nothing_left, how: list[str]):
    for name, text in (("small.yaml", SMALL), ("failing.py", MIXER), ("space.yaml", SPACE)):
        (tmp_path / name).write_text(text)
    settings = [*SETTINGS, "--budget", "5-trials", "resources.max_failures=0", *how]
    output = cli(["tune", "small.yaml", "--space", "./space.yaml", *settings], tmp_path).stdout
    search = only_search(tmp_path)
    found = {
        trial.point["mixer.params.how"]: trial
        for trial in read_search(search).trials(search)["small"].known
    }
    assert {name: trial.state for name, trial in found.items()} == {
        name: state for name, (state, _) in TOLD.items()
    }
    for name, (_, reason) in TOLD.items():
        assert reason in found[name].reason
        # long reasons are cut short there
        assert f"small {found[name].number}: {found[name].state}; " in output
    assert [(read_result(run) or {})["status"] for run in runs_below(search / "final")] == [
        "finished"
    ]
