"""What `trial.match` cannot make equal is refused; FLOPs that nobody can count are unknown, never
none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_run import SMALL

from subquad.errors import ConfigError
from subquad.execution.local import LocalExecutor
from subquad.experiment import load_study
from subquad.record.trust import trust_folder
from subquad.search.prepare import estimate, prepare
from subquad.search.search import plan_search
from subquad.search.settings import Budget, Settings
from subquad.search.trial import Goal, Trial

UNCOUNTED = """
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Uncounted(TokenMixer):
    class Config(MixerConfig):
        pass

    facts = Facts(padding_invariant=True, complexity="L")
    paper = "nobody, 2026"

    def __init__(self, config, site):
        super().__init__()
        self.value = torch.nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.value(x) + torch.from_numpy(x.detach().numpy())
"""
SPACE = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}}"
SHORT = (
    "train.steps=8",
    "train.epochs=null",
    "train.eval_every_epochs=null",
    "train.eval_every_steps=2",
)


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "uncounted.py").write_text(UNCOUNTED)

    def plan(*overrides: str, **settings):
        trust_folder(tmp_path, always=False)
        study = load_study("./small.yaml", (*SHORT, *overrides))
        return plan_search(study, Settings("./space.yaml", **settings))

    return plan


@pytest.mark.parametrize("pruner", ["asha", "median"])
def test_a_pruner_beside_match_needs_a_budget_of_what_is_matched(planned, pruner):
    message = (
        rf"^trial.match=flops: --pruner {pruner} ends trials early, and with --budget "
        r"20-trials candidates would not "
    )
    with pytest.raises(
        ConfigError,
        match=message + "get the same FLOPs; give a budget in FLOPs, such as 1e15flops, ",
    ):
        planned(match="flops", pruner=pruner)
    planned(match="flops", pruner=pruner, budget="1e15flops")
    planned(match="flops")
    planned(pruner=pruner)


def test_patience_ends_trials_early_too(planned, tmp_path):
    with pytest.raises(ConfigError, match=r"^trial.match=flops: train.patience ends trials early"):
        planned("train.patience=1", match="flops")
    (tmp_path / "space.yaml").write_text("dims: {train.patience: {choice: [1, 2]}}")
    with pytest.raises(ConfigError, match=r"^trial.match=flops: train.patience ends trials early"):
        planned(match="flops")
    planned(match="flops", budget="1e15flops")


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("trial.match=flops", {"match": "flops"}),
        ("--budget 1e12flops", {"budget": "1e12flops"}),
        ("--cost flops", {"cost": "flops", "sampler": "tpe"}),
    ],
)
@pytest.mark.parametrize(
    "matrix", [[], ["matrix.mixer=[agf, {name: './uncounted.py:Uncounted', label: own}]"]]
)
def test_what_needs_flops_is_refused_where_one_cannot_count_them(planned, option, settings, matrix):
    search = planned(*(matrix or ["mixer=./uncounted.py:Uncounted"]), **settings)
    with pytest.raises(ConfigError, match=rf"^{option}.*FLOPs .*cannot be counted"):
        prepare(search, LocalExecutor())


def test_flops_that_are_not_known_are_not_none(planned):
    found = estimate(
        prepare(planned("mixer=./uncounted.py:Uncounted", budget="2-trials"), LocalExecutor())
    )
    assert found["candidates"][0]["flops"] is None
    unknown = Trial(candidate="a", number=0, point={}, state="finished", flops=None)
    assert unknown.cost(Goal("accuracy", "max", "flops")) is None
    assert not Budget.parse("1e30flops").admits([unknown], unknown)
    assert Budget.parse("2-trials").admits([unknown], unknown)
