"""A study's canonical text loads to the same cells, whatever went into it."""

from __future__ import annotations

import itertools

import pytest

from subquad.errors import ConfigError
from subquad.experiment.study_file import MAX_RUNS

BASE = (
    "name: s\ntask: classification\nbackbone: {name: encoder, params: {dim: "
    "32}}\ntrain: {steps: 10}\n"
)
DATASETS = {
    "base": ("dataset: {name: uea, params: {problem: ERing, path: data}}\n", ""),
    "axis": (
        "",
        "  dataset: [{name: uea, params: {problem: ERing, path: data}}, {name: "
        "files, label: mine}]\n",
    ),
}
MIXERS = {
    "base": ("mixer: {name: agf, params: {order: 2}}\n", "  mixer.params.order: [1, 2]\n"),
    "axis": (
        "mixer: {name: agf, params: {order: 2}}\n",
        "  mixer: [agf, softmax, {name: agf, params: {order: 5}, label: a5}]\n",
    ),
    "no base": ("", "  mixer: [softmax, {name: agf, params: {order: 5}, label: a5}]\n"),
}
MORE = {
    "": "  seed: [0, 1]\n",
    "sections": "  seed: [{value: 0, set: {train.eps: 1e-6}}, {value: 1, set: {train: {epochs: 4, "
    "lr: 0.5}}}]\n",
    "a path": "  seed: [{value: 0, set: {dataset: {name: files, params: {folder: here}}}}, 1]\n",
    "only": "  seed: [0, 1, 2]\n"
    "  train.lr: [1.0, {value: 0.1, label: low, only: [seed0, seed2]}]\n",
    "change": "  change:\n"
    "    - base\n"
    "    - {label: low, only: [seed1, seed2], set: {train.lr: 0.1}, "
    "beside: {seed2: {train.eps: 1e-6}}}\n"
    "  seed: [0, 1, 2]\n",
    "beside": "  seed: [0, 1, 2]\n"
    "  train.lr: [1.0, {value: 0.1, beside: {seed1: {train.eps: 1e-6}}}]\n",
    "values": "  train.lr: [{value: 0.1, label: high}, 0.01]\n  train.schedule: [linear, cosine]\n",
}
OVERRIDES = {
    "": (),
    "one": ("train.batch_size=8", "name=other", "backbone.params.num_layers=1"),
    "axis": ("matrix.seed=[1, 5]", "train.epochs=2"),
}
VARIANTS = [  # every fifth in the fast tier
    pytest.param(*variant, id="-".join(variant), marks=[pytest.mark.ci] if number % 5 else [])
    for number, variant in enumerate(itertools.product(DATASETS, MIXERS, MORE, OVERRIDES))
    if not (variant[0] == "axis" and variant[2] == "a path")
]


@pytest.mark.parametrize(("dataset", "mixer", "more", "override"), VARIANTS)
def test_the_text_loads_to_the_same_cells(loaded, dataset, mixer, more, override):
    (dataset_base, dataset_axis), (mixer_base, mixer_axis) = DATASETS[dataset], MIXERS[mixer]
    text = BASE + dataset_base + mixer_base + "matrix:\n" + dataset_axis + mixer_axis + MORE[more]
    plan = loaded(text, *OVERRIDES[override])
    again = loaded(plan.text)
    assert again.runs == plan.runs
    assert (again.name, again.single) == (plan.name, False)
    assert again.text == plan.text


def test_the_text_holds_the_plugins_defaults(loaded):
    text = loaded(
        BASE + DATASETS["base"][0] + "mixer: agf\nmatrix:\n  mixer: [softmax, agf]\n"
    ).text
    assert (
        "\nruns:\n- labels:\n    mixer: softmax\n  set:\n    mixer:\n      name: softmax\n"
        "      params:\n        bias: true\n        qk_norm: none\n        rotary: false\n"
        "        dropout: 0.0\n        kernel: fused\n" in text
    )
    assert "    validation_fraction: 0.2\n" in text


def test_what_runs_have_alike_is_written_once(loaded):
    study = BASE + DATASETS["base"][0] + "matrix:\n  mixer: [softmax, agf]\n  seed: [0, 1, 2]\n"
    text = loaded(study).text
    found = [text.count(word) for word in ("name: softmax", "name: uea", "each:")]
    assert found == [1, 1, 2]


@pytest.mark.ci
def test_as_many_runs_as_a_study_may_have_are_read_back(loaded):
    seeds = [*range(5000)]
    plan = loaded(f"{BASE}{DATASETS['base'][0]}matrix: {{mixer: [softmax, agf], seed: {seeds}}}\n")
    assert len(plan.runs) == MAX_RUNS
    assert loaded(plan.text).runs == plan.runs


def test_a_value_of_a_list_is_a_run(loaded):
    text = f"{BASE}{DATASETS['base'][0]}mixer: agf\nruns: [{{each: {{seed: [3, 5]}}}}]\n"
    plan = loaded(text, "train.lr=0.5")
    assert [run.label for run in plan.runs] == ["seed3", "seed5"]
    assert [run.axes for run in plan.runs] == [{"seed": 3}, {"seed": 5}]
    assert [run.experiment.train.seed for run in plan.runs] == [3, 5]
    assert {run.experiment.train.lr for run in plan.runs} == {0.5}


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ("3", "runs: got 3, must be a list of runs"),
        ("[]", "runs: got [], must be a list of runs"),
        ("[x]", "runs[0]: got 'x', must be a mapping"),
        ("[{labels: {run: a/b}}]", "runs[0].labels.run: got 'a/b', must be text"),
        ("[{set: {}}]", "runs[0].labels: missing"),
        ("[{labels: {run: a}, sets: {}}]", "runs[0].sets: unknown key; did you mean 'set'?"),
        ("[{labels: {run: a}}, {labels: {run: A}}]", "two runs have the label A"),
        ("[{each: {seed: 3}}]", "runs[0].each.seed: got 3, must be a list"),
        ("[{each: {seed: [3]}, labels: {run: a}}]", "runs[0].labels: unknown key"),
        ("[{each: {seed: [3, x]}}]", "train.seed: got 'x', must be"),
        (
            "[{each: {seed: [3]}}, {each: {a: [7]}}]",
            "run a7 has the axes a, the first",
        ),
        ("[{each: {seed: [3, 3]}}]", "two runs have the label seed3"),
        ("[{labels: {a: x}}, {labels: {b: y}}]", "run y has the axes b, the first run has a"),
        ("[{labels: {run: a}, set: {train.lr: x}}]", "train.lr: got 'x', must be a number > 0"),
        ("[{labels: {run: a}, set: {name: x}}]", "runs[0].set.name: cannot be set for some runs"),
        (
            "[{labels: {run: a}}, {labels: {run: b}, set: {train.log_every: 3}}]",
            "run b differs from a in nothing that decides the numbers",
        ),
    ],
)
def test_a_list_of_runs_that_is_refused(refused, runs, message):
    text = BASE + DATASETS["base"][0] + "mixer: agf\n"
    assert message in refused(f"{text}runs: {runs}\n")


def test_a_list_of_runs_has_no_axes_beside_it(refused):
    text = BASE + DATASETS["base"][0] + "mixer: agf\nruns: [{labels: {run: a}}]\n"
    assert refused(text, "matrix.seed=[0]").endswith(
        "matrix: has no effect beside a list of runs; leave one of them out"
    )


def test_an_override_is_laid_over_every_run_of_a_list(loaded, refused):
    kept = loaded(BASE + DATASETS["base"][0] + "matrix: {mixer: [softmax, agf], seed: [0, 1]}\n")
    again = loaded(kept.text, "train.batch_size=8")
    assert {run.experiment.train.batch_size for run in again.runs} == {8}
    assert "mixer: cannot be set, as mixer is an axis of this study" in refused(
        kept.text, "mixer=agf"
    )


@pytest.mark.ci
def test_a_study_that_could_not_be_read_back_does_not_start(loaded):
    """One choice a line in the file; with the defaults of agf each is more than twenty values."""
    choices = "\n".join(
        f"    - {{name: agf, params: {{ortho_weight: 0.{number:04}1}}, label: m{number}}}"
        for number in range(2500)
    )
    study = loaded(BASE + DATASETS["base"][0] + f"matrix:\n  mixer:\n{choices}\n")
    with pytest.raises(ConfigError, match=r"^with every default written out the study has .* char"):
        _ = study.text
