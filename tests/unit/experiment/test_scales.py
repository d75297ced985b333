"""`--scale`, and parameters of one value of an axis."""

from __future__ import annotations

import pytest

from subquad.errors import ConfigError
from subquad.experiment import load

STUDY = """\
name: table
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 4}}
train: {epochs: 20, batch_size: 16}
matrix:
  dataset:
    - {name: uea, params: {problem: JapaneseVowels, path: here}, label: vowels}
    - {name: uea, params: {problem: Heartbeat, path: here}}
  mixer: [agf, softmax]
  seed: [0, 1]
cases:
  - when: {dataset: Heartbeat}
    set: {train.batch_size: 32}
exclude:
  - {dataset: Heartbeat, mixer: softmax}
scales:
  smoke:
    matrix:
      seed: [7]
    cases:
      - set: {train.epochs: 2}
      - when: {mixer: agf}
        set: {mixer.params.order: 2}
    exclude:
      - {dataset: vowels, mixer: softmax}
  small:
    matrix:
      dataset:
        - {name: uea, params: {problem: BasicMotions}}
"""


@pytest.fixture
def load_at(tmp_path):
    def load_at(scale, *overrides, text=STUDY):
        (tmp_path / "table.yaml").write_text(text, encoding="utf-8")
        return load("./table.yaml", overrides, scale=scale, cwd=tmp_path)

    return load_at


def labels(plan):
    return [cell.label for cell in plan.cells]


def made(plan, number=0):
    return plan.cells[number].experiment.experiment


@pytest.mark.parametrize("scale", [None, "full"])
def test_without_a_scale_the_study_is_as_its_file_has_it(load_at, scale):
    plan = load_at(scale)
    assert (plan.name, len(plan.cells), made(plan).train.epochs) == ("table", 6, 20)


def test_a_scale_gives_axes_anew_and_adds_cases_and_exclusions(load_at):
    plan = load_at("smoke")
    assert plan.name == "table-smoke"
    assert labels(plan) == ["vowels-agf-seed7", "Heartbeat-agf-seed7"]
    assert [made(plan, n).train.batch_size for n in (0, 1)] == [16, 32]
    assert (made(plan).train.epochs, made(plan).mixer.params["order"]) == (2, 2)


def test_cases_for_values_that_a_scale_took_away_rest(load_at):
    plan = load_at("small")
    assert labels(plan)[:2] == ["BasicMotions-agf-seed0", "BasicMotions-agf-seed1"]
    assert made(plan).train.batch_size == 16


def test_the_command_line_comes_last(load_at):
    plan = load_at("smoke", "matrix.seed=[3]", "train.epochs=4", "name=mine")
    assert (plan.name, labels(plan)[0], made(plan).train.epochs) == ("mine", "vowels-agf-seed3", 4)


def test_the_written_study_loads_to_the_same_cells_without_its_scale(load_at, tmp_path):
    plan = load_at("smoke")
    (tmp_path / "again.yaml").write_text(plan.text, encoding="utf-8")
    again = load("./again.yaml", cwd=tmp_path)
    assert (labels(again), again.text) == (labels(plan), plan.text)
    assert "scales" not in plan.text


def test_a_parameter_of_one_value_is_set_by_its_label(load_at, tmp_path):
    plan = load_at(None, "matrix.dataset.vowels.params.path=there", "matrix.dataset.Heartbeat.params.split_seed=3")
    params = {cell.axes["dataset"]: cell.experiment.experiment.dataset.params for cell in plan.cells}
    assert params["vowels"]["path"] == str(tmp_path / "there")
    assert params["Heartbeat"]["path"] == str(tmp_path / "here")
    assert params["Heartbeat"]["split_seed"] == 3
    assert labels(plan) == labels(load_at(None))


def test_it_works_for_the_axes_of_a_scale(load_at):
    plan = load_at("small", "matrix.dataset.BasicMotions.params.split_seed=3")
    assert made(plan).dataset.params["split_seed"] == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "matrix.dataset.vowel.params.path=x",
            "override 'matrix.dataset.vowel.params.path=x': matrix.dataset.vowel: no value of the axis has this label; "
            "did you mean 'vowels'?",
        ),
        ("matrix.mixer.mega.params.order=2", "matrix.mixer.mega: no value of the axis has this label; there is agf"),
        ("matrix.mixer.agf.params.ordr=2", "mixer.params.ordr: unknown key; did you mean 'order'?"),
        ("scales={}", "scales: can only be given in a file"),
    ],
)
def test_overrides_that_mean_nothing_are_refused(load_at, override, message):
    with pytest.raises(ConfigError) as caught:
        load_at(None, override)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("scale", "old", "new", "message"),
    [
        ("smok", "", "", "--scale 'smok': no such scale; did you mean 'smoke'?"),
        ("enormous", "", "", "--scale 'enormous': no such scale; there is smoke, small, full"),
        ("smoke", "      seed: [7]", "      seed: 7", "./table.yaml:19: matrix.seed: got 7, must be a list of values"),
        ("smoke", "{train.epochs: 2}", "{train.epoch: 2}", "./table.yaml:21: train.epoch: unknown key"),
        ("smoke", "{mixer: agf}", "{mixer: mega}", "cases[2].when.mixer: got 'mega', matches no cell"),
        ("smoke", "    exclude:", "    exlude:", "scales.smoke.exlude: unknown key; did you mean 'exclude'?"),
        ("smoke", "  small:\n", "  small: 3\n  other:\n", "scales.small: got 3, must be a mapping with matrix, cases"),
        ("small", "  small:\n", "  small:\n    cases: 1\n", "scales.small.cases: got 1, must be a list"),
    ],
)
def test_scales_that_cannot_be_used_are_refused(load_at, scale, old, new, message):
    text = STUDY.replace(old, new, 1) if old else STUDY
    with pytest.raises(ConfigError) as caught:
        load_at(scale, text=text)
    assert message in str(caught.value)


def test_a_file_without_scales_has_only_the_full_one(load_at, base_text):
    assert load_at("full", text=base_text).name == "base"
    with pytest.raises(ConfigError, match="--scale 'smoke': no such scale; the file has no scales"):
        load_at("smoke", text=base_text)
