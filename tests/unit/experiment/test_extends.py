"""`extends`, `baseline`, and what the command line says about one value of an axis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subquad.errors import UserError
from subquad.experiment import load_study
from subquad.registry import resolve

TABLE = """\
name: table
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 4}}
train: {epochs: 20, batch_size: 16, clip_norm: 4.0}
baseline: identity
matrix:
  dataset:
    - {name: uea, params: {problem: JapaneseVowels, path: here}, label: vowels}
    - {name: uea, params: {problem: Heartbeat, path: here}, set: {train.batch_size: 32}}
  mixer:
    - name: agf
      params: {order: 5}
      beside: {vowels: {mixer.params: {order: 3, jacobi_a: 1.5}}}
    - {name: softmax, params: {dropout: 0.1}, only: [vowels]}
    - identity
  seed: [0, 1]
"""
SMOKE = """\
extends: table.yaml
train: {epochs: 2, clip_norm: null}
backbone: {params: {dim: 32}}
matrix:
  mixer: [agf]
  seed: [{value: 7, beside: {agf: {mixer.params.ortho_weight: 0.0}}}]
"""


@pytest.fixture
def load_file(tmp_path: Path):
    (tmp_path / "table.yaml").write_text(TABLE, encoding="utf-8")

    def load_file(text: str, *overrides: str, name: str = "smoke"):
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        return load_study(f"./{name}.yaml", overrides, cwd=tmp_path)

    return load_file


@pytest.fixture
def refused_file(load_file):
    def refused_file(text: str, *overrides: str) -> str:
        with pytest.raises(UserError) as caught:
            load_file(text, *overrides)
        return str(caught.value)

    return refused_file


def labels(plan):
    return [cell.label for cell in plan.runs]


def made(plan, number=0):
    return plan.runs[number].experiment


def test_axes_are_given_anew_and_the_rest_is_added_to(load_file):
    plan = load_file(SMOKE)
    assert (plan.name, labels(plan)) == ("smoke", ["vowels-agf-seed7", "Heartbeat-agf-seed7"])
    assert [made(plan, number).train.batch_size for number in (0, 1)] == [16, 32]
    assert [made(plan, number).mixer.params["order"] for number in (0, 1)] == [3, 5]
    train, backbone = made(plan).train, made(plan).backbone.params
    assert (train.epochs, train.clip_norm) == (2, None)
    assert (backbone["dim"], backbone["num_layers"], made(plan).mixer.params["ortho_weight"]) == (
        32,
        1,
        0.0,
    )


def test_the_written_study_stands_alone(load_file):
    plan = load_file(SMOKE, "matrix.dataset.vowels.params.split_seed=3", "train.lr=0.5")
    again = load_file(plan.text, name="again")
    assert (labels(again), again.text) == (labels(plan), plan.text)
    assert [run.experiment for run in again.runs] == [run.experiment for run in plan.runs]
    assert "extends" not in plan.text


def test_a_file_of_a_file_and_paths_of_each(load_file, tmp_path):
    load_file(SMOKE)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "own.yaml").write_text(
        "extends: ../smoke.yaml\nmatrix: {dataset: [Heartbeat, vowels]}\n"
    )
    plan = load_study("sub/own.yaml", cwd=tmp_path)
    assert (plan.name, labels(plan)) == ("own", ["Heartbeat-agf-seed7", "vowels-agf-seed7"])
    assert made(plan).dataset.params["path"] == str(tmp_path / "here")


def test_a_recipe_may_be_extended(load_file):
    plan = load_file("extends: quickstart\nmatrix: {mixer: [identity], seed: [3]}\n")
    assert (plan.name, labels(plan)) == (
        "smoke",
        ["JapaneseVowels-identity-seed3", "recall-identity-seed3"],
    )


def test_a_single_experiment_may_be_extended(load_file, base_text):
    load_file(base_text, name="one")
    plan = load_file("extends: one.yaml\nmixer: {params: {order: 3, jacobi_a: 2.0}}\n")
    assert (plan.single, made(plan).mixer.params["order"], made(plan).mixer.params["jacobi_a"]) == (
        True,
        3,
        2.0,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "extends: 3\n",
            "./smoke.yaml:1: extends: got 3, must be a recipe's name, or a file's, "
            "as in ./base.yaml",
        ),
        (
            "extends: tabel.yaml\n",
            "./smoke.yaml:1: extends: tabel.yaml: no such file; did you mean table.yaml?",
        ),
        (
            "extends: quickstat\n",
            "./smoke.yaml:1: extends: 'quickstat': no such recipe, and no such file; did you",
        ),
        (
            "extends: smoke.yaml\n",
            "smoke.yaml:1: extends: more than 10 files, one below the other, or in a circle",
        ),
        (
            "extends: table.yaml\ntrain: {epochs: x}\n",
            "./smoke.yaml:2: train.epochs: got 'x', must be a whole number",
        ),
        (
            "extends: table.yaml\nmatrix: {mixer: [sofmax]}\n",
            "mixer.name: unknown mixer 'sofmax'; did you mean",
        ),
        (
            "extends: table.yaml\nmatrix: {seed: 1}\n",
            "./smoke.yaml:2: matrix.seed: got 1, must be a list of values",
        ),
        (
            "extends: table.yaml\nmatrix: {seed: [{value: 1, only: [mega]}]}\n",
            "no value has the label 'mega'; there is vowels",
        ),
        (
            "extends: table.yaml\nmatrix: {mixer: [softmax], dataset: [Heartbeat]}\n",
            "./smoke.yaml:2: matrix: has no run: no values stand beside each other",
        ),
    ],
)
def test_refusals(refused_file, text, message):
    assert message in refused_file(text)


@pytest.mark.parametrize("override", ["extends=quickstart", "runs=[]"])
def test_what_only_a_file_says(refused_file, override):
    assert "can only be given in a file" in refused_file(SMOKE, override)


def test_a_value_is_chosen_by_its_label(load_file):
    plan = load_file(
        TABLE, "matrix.mixer=[softmax, {name: softmax, label: bare}]", "matrix.dataset=[vowels]"
    )
    assert labels(plan)[::2] == ["vowels-softmax-seed0", "vowels-bare-seed0"]
    assert [made(plan, number).mixer.params["dropout"] for number in (0, 2)] == [0.1, 0.0]


def test_a_parameter_of_one_value_comes_after_what_values_set(load_file, tmp_path):
    plan = load_file(
        TABLE,
        "matrix.mixer.agf.params.fix_identity=false",
        "matrix.dataset.vowels.params.path=there",
    )
    found = {run.label: run.experiment for run in plan.runs}
    assert [experiment.dataset.params["path"] for experiment in found.values()][::6] == [
        str(tmp_path / "there"),
        str(tmp_path / "here"),
    ]
    for label, order in (("vowels-agf-seed0", 3), ("Heartbeat-agf-seed0", 5)):
        assert (found[label].mixer.params["order"], found[label].mixer.params["fix_identity"]) == (
            order,
            False,
        )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "matrix.dataset.vowel.params.path=x",
            "override 'matrix.dataset.vowel.params.path=x': matrix.dataset: "
            "no value has the label 'vowel'; did you mean 'vowels'?",
        ),
        (
            "matrix.mixer.mega.params.order=2",
            "matrix.mixer: no value has the label 'mega'; there is agf",
        ),
        ("matrix.mixer.agf.params.ordr=2", "mixer.params.ordr: unknown key; did you mean 'order'?"),
        (
            "matrix.dataset.vowels.params.problem=X",
            "cannot be set, as dataset is an axis of this study; give the axis",
        ),
    ],
)
def test_overrides_that_mean_nothing_are_refused(refused_file, override, message):
    assert message in refused_file(TABLE, override)


def test_a_setting_without_effect_is_cleared(load_file, refused_file):
    basis = "matrix.mixer.agf.params.basis=monomial"
    assert "has no effect with basis monomial" in refused_file(TABLE, basis)
    plan = load_file(TABLE, basis, "matrix.mixer.agf.params.jacobi_a=1.0")
    assert [made(plan, number).mixer.params["basis"] for number in (0, 6)] == [
        "monomial",
        "monomial",
    ]
    assert load_file(plan.text, name="again").text == plan.text
    anew = load_file(TABLE, "matrix.mixer.agf.params={order: 4, basis: monomial}")
    assert [made(anew, number).mixer.params["order"] for number in (0, 6)] == [4, 4]


@pytest.mark.parametrize(
    ("override", "baseline"),
    [
        ("train.lr=1", "identity"),
        ("baseline=softmax", "softmax"),
        ("matrix.mixer=[agf]", ""),
        ("baseline=null", ""),
    ],
)
def test_a_study_names_its_control(load_file, override, baseline):
    text = load_file(TABLE, override).text
    assert (f"baseline: {baseline}\n" in text) if baseline else ("baseline" not in text)


def test_a_control_that_no_run_has_is_refused(refused_file, refused, base_text):
    assert refused_file(TABLE, "baseline=mega") == (
        "override 'baseline=mega': baseline: no value has the label 'mega'; "
        "there is agf, softmax, identity"
    )
    assert refused_file(TABLE, "baseline=softmx").endswith("'softmx'; did you mean 'softmax'?")
    assert "baseline: no value has the label 'mega'; there is agf" in refused(
        base_text + "matrix: {seed: [0]}\nbaseline: mega\n"
    )


FEW = "extends: table.yaml\nmatrix: {mixer: [identity, agf], seed: [1]}\n"


@pytest.mark.parametrize(
    ("override", "mixers"),
    [
        ("train.lr=1", "identity, agf"),
        ("matrix.mixer=[softmax, identity]", "softmax, identity"),
        ("matrix.mixer=all", "identity, agf, softmax"),
    ],
)
def test_a_file_trains_some_of_what_it_extends_and_knows_the_rest(load_file, override, mixers):
    load_file(FEW, name="few")
    for text in (FEW, "extends: few.yaml\n"):
        study = load_file(text, override, "matrix.dataset=[vowels]")
        assert ", ".join(dict.fromkeys(run.axes["mixer"] for run in study.runs)) == mixers
        assert {run.axes["seed"] for run in study.runs} == {1}


AGF = [
    "lra-agf",
    "lra-cur",
    "lra-agf-sensitivity",
    "uea-agf",
    "uea-agf-sensitivity",
    "quickstart",
    "controls",
]


@pytest.mark.ci
@pytest.mark.parametrize("form", ["form=uv", "basis=monomial", "form=svd_scalar"])
@pytest.mark.parametrize("recipe", AGF)
def test_every_form_of_agf_runs_from_every_recipe(recipe, form, tmp_path):
    plan = load_study(recipe, cwd=tmp_path)
    labels = dict.fromkeys(
        cell.axes.get("mixer") for cell in plan.runs if cell.experiment.mixer.name == "agf"
    )
    key = form.partition("=")[0]
    extra: list[str] = (
        ["matrix.change=[base]"] if any("change" in cell.axes for cell in plan.runs) else []
    )
    defaults = resolve("mixer", "agf").plugin.config().model_dump(mode="json")
    for label in labels:
        at = f"matrix.mixer.{label}.params" if label else "mixer.params"
        cleared = [
            name
            for name in ("jacobi_a", "jacobi_b", "fix_identity", "basis", "order")
            if name != key
        ]
        extra += [
            f"{at}.{form}",
            *(f"{at}.{name}={json.dumps(defaults[name])}" for name in cleared),
        ]
    made = load_study(recipe, extra, cwd=tmp_path)
    values = {
        str(run.experiment.mixer.params[key])
        for run in made.runs
        if run.experiment.mixer.name == "agf"
    }
    assert values <= {form.partition("=")[2]}
