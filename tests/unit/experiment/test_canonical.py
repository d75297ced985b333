"""Canonical text, digest and differences: one experiment has one text, and only what matters is
hashed.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subquad.experiment import checked_run, differences, digest, dump, load_study
from subquad.experiment.canonical import to_yaml
from subquad.experiment.strict_yaml import parse_yaml
from subquad.record.trust import trust_folder

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(
        [
            "010",
            "1e-3",
            "no",
            "null",
            "~",
            "1:30",
            ".inf",
            "true",
            "- a",
            "a: b",
            "#x",
            "=",
            "<<",
            "",
            " ",
        ]
    )
)
TREE = st.dictionaries(
    TEXT.filter(bool),
    st.recursive(
        LEAF,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(TEXT.filter(bool), inner, max_size=3)
        ),
    ),
    max_size=5,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREE)
def test_what_is_written_reads_back_the_same(data):
    assert repr(parse_yaml(to_yaml(data), "f.yaml").data or {}) == repr(data)


def experiment(plan):
    return plan.runs[0].experiment


def test_the_text_says_everything_and_loads_to_the_same(loaded, base_text):
    plan = loaded(base_text)
    assert plan.text == dump(experiment(plan))
    for line in (
        "    order: 4",
        "    basis: jacobi",
        "  lr: 0.001",
        "  steps: null",
        "    path: null",
        "  eps: 1.0e-08",
    ):
        assert f"\n{line}\n" in plan.text
    again = loaded(plan.text)
    assert again.runs == plan.runs
    assert again.text == plan.text


def test_the_keys_keep_the_schemas_order(loaded, base_text):
    text = loaded("tracking: {uri: x}\n" + base_text).text
    tops = [line.partition(":")[0] for line in text.splitlines() if not line.startswith(" ")]
    assert tops == [
        "format", "name", "protocol", "dataset", "task", "backbone", "mixer", "mixers", "init",
        "train", "resources", "tracking",
    ]  # fmt: skip


def test_a_checked_experiment_checks_again_to_the_same(loaded, base_text):
    once = loaded(base_text).runs[0]
    assert checked_run(once.experiment) == once


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ("train.seed=1", ["train.seed"]),
        ("train.steps=9", ["train.epochs", "train.steps"]),
        ("protocol=fixed", ["protocol"]),
        ("mixer.params.order=2", ["mixer.params.order"]),
        ("dataset.params.problem=Heartbeat", ["dataset.params.problem"]),
        ("train.precision=bf16", ["train.precision"]),
        ("train.bucket_batches=8", ["train.bucket_batches"]),
        ("mixer={name: agf, params: {order: 4, basis: legendre}}", ["mixer.params.basis"]),
    ],
)
def test_what_decides_them_is(loaded, base_text, override, keys):
    base, changed = experiment(loaded(base_text)), experiment(loaded(base_text, override))
    assert digest(base) != digest(changed)
    assert differences(base, changed) == keys


def test_another_mixer_differs_in_all_its_parameters(loaded, base_text):
    found = differences(
        experiment(loaded(base_text)), experiment(loaded(base_text, "mixer=identity"))
    )
    assert found[0] == "mixer.name"
    assert "mixer.params.order" in found


def test_the_digest_does_not_depend_on_how_the_file_is_written(loaded, base_text):
    shuffled = (
        "train: {lr: 0.0010, batch_size: 16}\nmixer: {params: {order: 4}, name: agf}\n"
        + "".join(line for line in base_text.splitlines(keepends=True)[:4])
    )
    assert digest(experiment(loaded(shuffled))) == digest(experiment(loaded(base_text)))


def test_the_digest_is_pinned(loaded):
    text = "dataset: any\ntask: any\nbackbone: series-only\nmixer: block\ntrain: {steps: 5}\n"
    train = {
        "batch_size": 16, "beta1": 0.9, "beta2": 0.999, "bucket_batches": 0, "clip_norm": None,
        "compile": False, "ema_decay": None, "epochs": None, "eps": 1e-08, "eval_every_epochs": 1,
        "eval_every_steps": None, "kernels": {}, "lr": 0.001, "min_lr_ratio": 0.0,
        "optimizer": "adamw", "patience": None, "precision": "fp32", "schedule": "constant",
        "seed": 0, "steps": 5, "tf32": False, "warmup_steps": 0,
        "weight_decay": 0.0,
    }  # fmt: skip
    fields = {f"train.{key}": value for key, value in train.items()} | {
        "format": 1, "protocol": "honest", "dataset.name": "any", "dataset.params": {},
        "task.name": "any", "task.params": {}, "backbone.name": "series-only",
        "backbone.params.dim": 64, "backbone.params.num_heads": 4, "mixer.name": "block",
        "mixer.params.block": 8, "mixer.params.window": [1, 2], "mixers": [], "init": None,
    }  # fmt: skip
    assert (
        digest(experiment(loaded(text)))
        == hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    )


@pytest.mark.ci
def test_a_mixers_file_counts_by_its_content_not_its_place(tmp_path):
    made = []
    for folder, lines in (("one", ""), ("two", ""), ("three", "# changed\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mix.py").write_text(MIXER + lines)
        (tmp_path / folder / "exp.yaml").write_text(WITH_FILE)
        trust_folder(tmp_path, always=False)
        checked = load_study("exp.yaml", cwd=tmp_path / folder).runs[0]
        assert checked.experiment.mixer.name == f"{tmp_path / folder}/mix.py:Mean"
        assert checked.mixer.source is not None
        made.append(checked.digest)
    assert made[0] == made[1] != made[2]


WITH_FILE = (
    "dataset: {name: uea, params: {problem: ERing}}\ntask: classification\nbackbone: "
    "encoder\nmixer: ./mix.py:Mean\n"
)
MIXER = '''
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Mean(TokenMixer):
    """The mean over positions."""

    Config = MixerConfig
    facts = Facts()

    def __init__(self, config, site):
        super().__init__()

    def forward(self, x, *, keep=None, carry=None):
        return x.mean(1, keepdim=True).expand_as(x)
'''
