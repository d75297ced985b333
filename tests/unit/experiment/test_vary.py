"""`vary:`: settings changed one at a time around the base of every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from subquad.errors import ConfigError
from subquad.experiment import digest, load
from subquad.search.subjects import subjects_of

STUDY = """\
name: table
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 4}}
mixer: {name: agf, params: {order: 4}}
train: {epochs: 20, batch_size: 16}
vary:
  mixer.params.order: [3, 4, 5]
  mixer.params.jacobi_a: [1.0, 1.5]
matrix:
  dataset:
    - {name: uea, params: {problem: JapaneseVowels}}
    - {name: uea, params: {problem: Heartbeat}}
  seed: [0, 1]
"""
SCALES = """\
scales:
  smoke:
    matrix: {seed: [0]}
    vary: {mixer.params.ortho_weight: [0.0]}
"""
VOWELS = [f"JapaneseVowels-{name}-seed" for name in ("base", "order3", "order5", "jacobi_a1.5")]


def labels(plan):
    return [cell.label for cell in plan.cells]


def mixers(plan):
    return {cell.label: cell.experiment.experiment.mixer.params for cell in plan.cells}


def test_one_setting_at_a_time_and_the_base_once(loaded):
    plan = loaded(STUDY)
    assert labels(plan)[:8] == [f"{label}{seed}" for label in VOWELS for seed in (0, 1)]
    assert len(plan.cells) == 16
    assert plan.cells[0].axes == {"dataset": "JapaneseVowels", "vary": {}, "seed": 0}
    assert plan.cells[3].axes == {"dataset": "JapaneseVowels", "vary": {"mixer.params.order": 3}, "seed": 1}
    found = [(params["order"], params["jacobi_a"]) for params in mixers(plan).values()][:8:2]
    assert found == [(4, 1.0), (3, 1.0), (5, 1.0), (4, 1.5)]
    assert len({digest(cell.experiment.experiment) for cell in plan.cells}) == 16


def test_the_base_of_each_cell_is_its_own(loaded):
    plan = loaded(STUDY + "cases:\n  - {when: {dataset: Heartbeat}, set: {mixer.params.order: 5}}\n")
    assert labels(plan)[8::2] == [f"Heartbeat-{name}-seed0" for name in ("base", "order3", "order4", "jacobi_a1.5")]
    assert mixers(plan)["Heartbeat-jacobi_a1.5-seed0"]["order"] == 5


def test_an_override_moves_the_base_and_no_varied_value(loaded):
    plan = loaded(STUDY, "mixer.params.order=7")
    assert {name: params["order"] for name, params in mixers(plan).items() if name.startswith("Japa")} == {
        f"JapaneseVowels-{name}-seed{seed}": order
        for name, order in {"base": 7, "order3": 3, "order4": 4, "order5": 5, "jacobi_a1.5": 7}.items()
        for seed in (0, 1)
    }


def test_any_experiment_may_be_varied_from_the_command_line(loaded, base_text):
    plan = loaded(base_text, "vary.train.lr=[1e-3, 3e-4]", "vary.mixer.params.order=[{value: 2, label: low}]")
    assert (plan.study, labels(plan)) == (True, ["base", "lr0.0003", "low"])


def test_one_of_a_pair_of_alternatives_switches_the_other_off(loaded, base_text):
    trains = [cell.experiment.experiment.train for cell in loaded(base_text, "vary.train.steps=[9]").cells]
    assert [(train.epochs, train.steps) for train in trains] == [(20, None), (None, 9)]


def test_overrides_replace_one_setting_or_all(loaded):
    one = loaded(STUDY, "vary.mixer.params.order=[9]", "matrix.seed=[3]")
    assert labels(one)[:3] == [f"JapaneseVowels-{name}-seed3" for name in ("base", "order9", "jacobi_a1.5")]
    every = loaded(STUDY, "vary={train.lr: [0.5]}", "matrix.seed=[3]")
    assert labels(every)[:2] == ["JapaneseVowels-base-seed3", "JapaneseVowels-lr0.5-seed3"]


@pytest.mark.parametrize(("scale", "count"), [(None, 16), ("full", 16), ("smoke", 4)])
def test_a_scale_varies_what_it_says(tmp_path: Path, scale, count):
    (tmp_path / "table.yaml").write_text(STUDY + SCALES)
    plan = load("./table.yaml", scale=scale, cwd=tmp_path)
    assert len(plan.cells) == count
    assert (labels(plan)[1] == "JapaneseVowels-ortho_weight0.0-seed0") == (scale == "smoke")


@pytest.mark.parametrize("overrides", [(), ("mixer.params.order=5",), ("vary.train.steps=[4, 5]",)])
def test_the_written_study_is_the_same_again(loaded, overrides):
    plan = loaded(STUDY, *overrides)
    again = loaded(plan.text)
    assert [(one.label, one.axes) for one in again.cells] == [(one.label, one.axes) for one in plan.cells]
    assert [digest(one.experiment.experiment) for one in again.cells] == [
        digest(one.experiment.experiment) for one in plan.cells
    ]
    assert again.text == plan.text


def test_a_study_without_vary_is_written_as_before(loaded):
    plan = loaded(STUDY.replace("vary:", "cases: []\n#").replace("  mixer.params", "#"))
    assert "vary" not in plan.text
    assert plan.cells[0].axes == {"dataset": "JapaneseVowels", "seed": 0}


def vary(text: str) -> str:
    return STUDY[: STUDY.index("vary:")] + f"vary: {text}\n" + STUDY[STUDY.index("matrix:") :]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[1]", "vary: got [1], must be a mapping of settings to lists, as in mixer.params.order: [3, 4, 5]"),
        ("{}", "vary: got an empty mapping, must be a mapping of settings to lists"),
        ("{mixer.params.order: []}", "vary.mixer.params.order: got [], must be a list of values, as in [0, 1]"),
        ("{mixer.params.order: 3}", "vary.mixer.params.order: got 3, must be a list of values, as in [3]"),
        ("{mixer.params.order: [3, 3]}", "vary.mixer.params.order[1]: has the label 'order3', as"),
        (
            "{mixer.params.jacobi_a: [1, 1.0]}",
            "vary.mixer.params.jacobi_a[1]: got 1.0, the same as vary.mixer.params.jacobi_a[0]; keep one of them",
        ),
        ("{mixer.params.order: [4]}", "every value is the one that its cells have anyway; give another one"),
        ("{mixer.params.ordr: [3]}", "mixer.params.ordr: unknown key; did you mean 'order'? (cell"),
        ("{mixer.order: [3]}", "mixer.order: unknown key; it belongs at mixer.params.order (cell"),
        (
            "{mixer.params.order: [99]}",
            "exp.yaml:6: mixer.params.order: got 99, must be a whole number >= 0 and <= 32 "
            "(cell JapaneseVowels-order99-seed0)",
        ),
        (
            "{mixer.params.basis: [legendre], mixer.params.jacobi_a: [1.0, 2.0], mixer.params: [1]}",
            "vary.mixer.params: sets the same as vary.mixer.params.basis; keep one of them",
        ),
        ("{dataset.params.problem: [ERing]}", "sets the same as the axis dataset; keep one of them"),
        ("{train.seed: [2]}", "cannot be varied, as every value is trained with all seeds; give matrix.seed"),
        ("{seed: [2]}", "cannot be varied, as every value is trained with all seeds; give matrix.seed"),
        ("{mixer: [softmax]}", "must be a setting such as mixer.params.order; or give matrix.mixer"),
        ("{protocol: [fixed]}", "must be a setting such as mixer.params.order; or give matrix.protocol"),
        ("{resources.workers: [2]}", "does not decide the numbers; make it an axis, matrix.resources.workers"),
        ("{train.log_every: [2]}", "does not decide the numbers; make it an axis, matrix.train.log_every"),
        ("{mixer.params.order: [{value: {a: 1}, label: b}]}", "vary.mixer.params.order[0]: a mapping, must be"),
        ("{mixer..order: [1]}", "cannot be an axis"),
        ("{mixer.params.order: [{value: 2, label: base}]}", "two cells have the label JapaneseVowels-base-seed0"),
    ],
)
def test_refusals(refused, given, message):
    assert message in refused(vary(given))


def test_an_axis_cannot_be_varied(refused):
    text = STUDY.replace("  seed: [0, 1]", "  mixer.params.order: [3, 4]")
    assert "vary.mixer.params.order: sets the same as the axis mixer.params.order; keep one" in refused(text)


def test_too_many_cells(refused):
    text = vary(f"{{mixer.params.jacobi_b: {[number / 1000 for number in range(2600)]}}}")
    assert "matrix: 2 dataset x 2 seed x 2601 vary makes 10,404 cells, must be at most 10,000" in refused(text)


def test_cases_are_not_about_variations(refused):
    assert "cases[0].when.vary: no such axis" in refused(
        STUDY + "cases: [{when: {vary: order3}, set: {train.lr: 1}}]\n"
    )


def test_a_search_does_not_take_it(loaded):
    with pytest.raises(ConfigError, match=r"^vary: is for subquad train, which trains every value; leave it out"):
        subjects_of(loaded(STUDY))
