"""A study's canonical text loads to the same cells, whatever went into it."""

from __future__ import annotations

import itertools

import pytest

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
    "cases": "  seed: [0, 1]\ncases:\n  - {when: {seed: 1}, set: {train: {epochs: 4, lr: 0.5}}}\n"
    "  - {set: {train.eps: 1e-6}}\n",
    "a path": "  seed: [0, 1]\ncases: [{when: {seed: 0}, set: {dataset: {name: files, "
    "params: {folder: here}}}}]\n",
    "when": "  seed: [0, 1, 2]\n"
    "  train.lr: [1.0, {value: 0.1, label: low, when: {seed: [0, 2]}}]\n",
    "change": "  change:\n"
    "    - base\n"
    "    - {label: low, when: [{seed: 1}, {seed: 2}], set: {train.lr: 0.1}}\n"
    "  seed: [0, 1, 2]\n",
    "replaced": "  seed: [0, 1, 2]\ncases: [{when: {seed: [1, 2]}, set: {train.lr: 0.5}}]\n",
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
        "\n  - name: softmax\n    params:\n      bias: true\n      qk_norm: none\n "
        "     rotary: false\n"
        "      dropout: 0.0\n      kernel: fused\n    label: softmax\n" in text
    )
    assert "    validation_fraction: 0.2\n" in text


@pytest.mark.ci
def test_a_study_that_could_not_be_read_back_does_not_start(refused):
    """One choice a line in the file; with the defaults of agf each is more than twenty values."""
    choices = "\n".join(
        f"    - {{name: agf, params: {{ortho_weight: 0.{number:04}1}}, label: m{number}}}"
        for number in range(2000)
    )
    message = refused(BASE + DATASETS["base"][0] + f"matrix:\n  mixer:\n{choices}\n")
    assert message.startswith("exp.yaml:6: matrix: with every default written out has ")
    assert message.endswith(" characters, more than can be read back; use less")
