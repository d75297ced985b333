"""Studies: cells, labels, cases, exclusions, and overrides over all of them."""

from __future__ import annotations

import pytest

from subquad.errors import ConfigError

STUDY = """\
name: table
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 4}}
train: {epochs: 20, batch_size: 16}
matrix:
  dataset:
    - {name: uea, params: {problem: JapaneseVowels}}
    - {name: uea, params: {problem: Heartbeat}}
  mixer: [agf, softmax]
  seed: [0, 1]
"""
CASES = """\
cases:
  - when: {dataset: Heartbeat}
    set: {train.epochs: 5}
  - when: {dataset: Heartbeat, mixer: agf}
    set: {mixer.params.order: 2, train: {lr: 0.5}}
"""


def labels(plan):
    return [cell.label for cell in plan.runs]


def settings(plan, label):
    (cell,) = [cell for cell in plan.runs if cell.label == label]
    return cell.experiment


def test_cells_are_the_product_in_the_order_written(loaded):
    plan = loaded(STUDY)
    assert (plan.name, plan.single) == ("table", False)
    assert labels(plan) == [
        "JapaneseVowels-agf-seed0",
        "JapaneseVowels-agf-seed1",
        "JapaneseVowels-softmax-seed0",
        "JapaneseVowels-softmax-seed1",
        "Heartbeat-agf-seed0",
        "Heartbeat-agf-seed1",
        "Heartbeat-softmax-seed0",
        "Heartbeat-softmax-seed1",
    ]
    assert plan.runs[5].axes == {"dataset": "Heartbeat", "mixer": "agf", "seed": 1}
    made = plan.runs[5].experiment
    assert (made.name, made.dataset.params["problem"], made.train.seed) == ("table", "Heartbeat", 1)


def test_a_file_without_matrix_is_one_cell(loaded, base_text):
    plan = loaded(base_text)
    assert (plan.single, labels(plan), plan.runs[0].axes) == (True, ["base"], {})


ORDERS = """\
matrix:
  mixer.params.order: [3, 5]
  mixer: [{name: agf, params: {order: 2, basis: monomial}}, agf-code, softmax]
"""


def test_an_axis_over_a_parameter_lies_over_the_component(loaded, base_text):
    study = base_text + ORDERS.replace(", agf-code, softmax", ", {name: agf, label: other}")
    plan = loaded(study)
    found = {run.label: run.experiment.mixer.params for run in plan.runs}
    assert list(found) == ["order3-agf", "order3-other", "order5-agf", "order5-other"]
    assert [params["order"] for params in found.values()] == [3, 3, 5, 5]
    assert found["order5-agf"]["basis"] == "monomial"
    again = loaded(plan.text)
    assert [(run.label, run.digest, run.axes) for run in again.runs] == [
        (run.label, run.digest, run.axes) for run in plan.runs
    ]


def test_a_component_without_the_parameter_is_refused_or_left_out(loaded, refused, base_text):
    study = base_text + ORDERS.replace("agf-code, ", "")
    assert refused(study).endswith(
        "; there is bias, qk_norm, rotary, dropout, kernel (run order3-softmax; leave it out by "
        "`when: {mixer: [...]}` at the axis' values)"
    )
    chosen = "[{value: 3, when: {mixer: [agf]}}, {value: 5, when: {mixer: [agf]}}]"
    assert labels(loaded(study.replace("[3, 5]", chosen))) == ["order3-agf", "order5-agf"]


def test_a_case_that_is_at_rest_may_set_what_an_axis_decides(loaded, refused, base_text):
    case = "cases: [{when: {mixer: softmax}, set: {mixer.params: {dropout: 0.1}}}]\n"
    study = base_text + "matrix: {mixer: [agf, softmax]}\n" + case
    axes = ("matrix.mixer=[agf]", "matrix.mixer.params.order=[3, 5]")
    assert labels(loaded(study, *axes)) == ["agf-order3", "agf-order5"]
    assert "cannot be set, as mixer.params.order is an axis" in refused(
        study.replace("when: {mixer: softmax}", "when: {mixer: agf}"), *axes
    )


def test_cases_apply_in_order_to_the_cells_they_mean(loaded):
    plan = loaded(STUDY + CASES)
    assert settings(plan, "JapaneseVowels-agf-seed0").train.epochs == 20
    assert settings(plan, "Heartbeat-softmax-seed0").train.epochs == 5
    made = settings(plan, "Heartbeat-agf-seed1")
    assert (made.train.epochs, made.train.lr, made.mixer.params["order"]) == (5, 0.5, 2)


def test_a_case_without_when_means_all_cells(loaded):
    plan = loaded(STUDY + "cases:\n  - set: {train.lr: 0.25}\n")
    assert {cell.experiment.train.lr for cell in plan.runs} == {0.25}


def test_a_case_that_gives_steps_switches_epochs_off(loaded):
    plan = loaded(STUDY + "cases:\n  - {when: {seed: 1}, set: {train.steps: 9}}\n")
    first, second = (
        settings(plan, "Heartbeat-agf-seed0").train,
        settings(plan, "Heartbeat-agf-seed1").train,
    )
    assert (first.epochs, first.steps, second.epochs, second.steps) == (20, None, None, 9)


@pytest.mark.parametrize(
    ("when", "left"),
    [
        ("{dataset: JapaneseVowels}", []),
        ("[{dataset: JapaneseVowels, seed: [0, 1]}]", []),
        ("[{dataset: JapaneseVowels}, {dataset: Heartbeat, seed: 1}]", ["Heartbeat-softmax-seed1"]),
        ("{dataset: [JapaneseVowels, Heartbeat], seed: 1}", ["Heartbeat-softmax-seed1"]),
    ],
)
def test_a_value_may_be_for_some_runs(loaded, when, left):
    text = STUDY.replace("softmax]", f"{{name: softmax, when: {when}}}]")
    plan = loaded(text)
    assert labels(plan)[-2 - len(left) :] == ["Heartbeat-agf-seed0", "Heartbeat-agf-seed1", *left]
    again = loaded(plan.text)
    assert (again.runs, again.text) == (plan.runs, plan.text)


def test_a_case_may_have_several_conditions(loaded):
    when = "[{dataset: Heartbeat, mixer: agf}, {seed: 1}]"
    plan = loaded(f"{STUDY}cases: [{{when: {when}, set: {{train.lr: 0.5}}}}]\n")
    assert [run.label for run in plan.runs if run.experiment.train.lr == 0.5] == [
        "JapaneseVowels-agf-seed1",
        "JapaneseVowels-softmax-seed1",
        "Heartbeat-agf-seed0",
        "Heartbeat-agf-seed1",
        "Heartbeat-softmax-seed1",
    ]


ROWS = """matrix:
  mixer: [{name: softmax, label: wide}, softmax, {name: agf, label: first}]
  train.schedule: [{value: constant, label: cosine}, {value: cosine, label: flat}]
  seed: [0]
"""


@pytest.mark.parametrize(
    ("when", "meant"),
    [
        ("mixer: softmax", ["softmax-cosine-seed0", "softmax-flat-seed0"]),
        ("mixer: wide", ["wide-cosine-seed0", "wide-flat-seed0"]),
        (
            "train.schedule: cosine",
            ["wide-cosine-seed0", "softmax-cosine-seed0", "first-cosine-seed0"],
        ),
        (
            "train.schedule: constant",
            ["wide-cosine-seed0", "softmax-cosine-seed0", "first-cosine-seed0"],
        ),
        ("train.schedule: flat, mixer: first", ["first-flat-seed0"]),
    ],
)
def test_a_when_means_a_label_else_a_plain_value_and_no_other_row(loaded, base_text, when, meant):
    plan = loaded(base_text + ROWS + f"cases: [{{when: {{{when}}}, set: {{train.lr: 0.5}}}}]\n")
    assert [run.label for run in plan.runs if run.experiment.train.lr == 0.5] == meant


@pytest.mark.parametrize("name", ["agf", "subquad:softmax"])
def test_a_when_does_not_know_the_names_of_plugins(loaded, base_text, name):
    with pytest.raises(
        ConfigError, match=rf"cases\[0\].when.mixer: got '{name}', matches no run; there is wide"
    ):
        loaded(
            base_text + ROWS + f"cases: [{{when: {{mixer: '{name}'}}, set: {{train.lr: 0.5}}}}]\n"
        )


def test_overrides_come_after_cases_in_every_cell(loaded):
    plan = loaded(STUDY + CASES, "train.epochs=3", "mixer.params={}", "name=quick")
    assert {cell.experiment.train.epochs for cell in plan.runs} == {3}
    assert settings(plan, "Heartbeat-agf-seed0").mixer.params["order"] == 3
    assert plan.name == "quick"


def test_an_axis_may_be_replaced_and_its_cases_then_rest(loaded):
    plan = loaded(
        STUDY + CASES, "matrix.seed=[7]", "matrix.dataset=[{name: uea, params: {problem: Cricket}}]"
    )
    assert labels(plan) == ["Cricket-agf-seed7", "Cricket-softmax-seed7"]
    assert settings(plan, "Cricket-agf-seed7").train.epochs == 20


def test_an_axis_may_be_added_to_a_single_experiment(loaded, base_text):
    plan = loaded(base_text, "matrix.mixer=[agf, softmax]", "matrix.train.lr=[1e-3, 3e-4]")
    assert labels(plan) == ["agf-lr0.001", "agf-lr0.0003", "softmax-lr0.001", "softmax-lr0.0003"]
    # the base's, as the plugin is the same
    assert plan.runs[0].experiment.mixer.params["order"] == 4
    assert plan.runs[0].axes == {"mixer": "agf", "train.lr": 0.001}


def test_seed_and_train_seed_are_one_axis(loaded):
    assert len(loaded(STUDY, "matrix.train.seed=[4]").runs) == 4


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("mixer: [{name: agf, params: {order: 2}, label: agf2}, agf]", ["agf2", "agf"]),
        ("mixer: ['subquad:softmax']", ["softmax"]),
        ("train.lr: [0.1, 1e-5]", ["lr0.1", "lr1e-05"]),
        ("train.lr: [{value: 0.1, label: high}, 0.01]", ["high", "lr0.01"]),
        ("train.schedule: [linear, one-cycle]", ["linear", "one-cycle"]),
        ("train.clip_norm: [null, 4.0]", ["clip_norm-null", "clip_norm4.0"]),
        ("train.compile: [true, false]", ["compiletrue", "compilefalse"]),
        ("mixer.params.jacobi_a: [-0.5]", ["jacobi_a-0.5"]),
        ("protocol: [honest, fixed]", ["honest", "fixed"]),
        ("dataset.params.path: [./a b/c, /x]", ["a_b_c", "x"]),
        ("train.steps: [5, 6]", ["steps5", "steps6"]),
        ("mixers.0.layers: [[0], [0, -1]]", ["layers_0", "layers_0_-1"]),
    ],
)
def test_labels_are_safe_names(loaded, base_text, axis, expected):
    if axis.startswith("mixers"):
        base_text = (
            base_text.replace("num_layers: 2", "num_layers: 3") + "mixers: [{name: softmax}]\n"
        )
    assert labels(loaded(base_text + f"matrix:\n  {axis}\n")) == expected


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (
            "matrix: [1]",
            "exp.yaml:10: matrix: got [1], must be a mapping of keys to lists, as in seed: [0, 1]",
        ),
        (
            "matrix: {}",
            "exp.yaml:10: matrix: got an empty mapping, must be a mapping of keys "
            "to lists, as in seed: [0, 1]",
        ),
        (
            "matrix: {seed: 3}",
            "exp.yaml:10: matrix.seed: got 3, must be a list of values, as in [3]",
        ),
        (
            "matrix: {seed: []}",
            "exp.yaml:10: matrix.seed: got [], must be a list of values, as in [0, 1]",
        ),
        (
            "matrix: {seed: [0, 0]}",
            "exp.yaml:10: matrix.seed[1]: has the label 'seed0', as matrix.seed[0] "
            "has; give one of them another label",
        ),
        (
            "matrix: {mixer: [agf, {name: agf, params: {order: 2}}]}",
            "exp.yaml:10: matrix.mixer[1]: has the label 'agf', as matrix.mixer[0] "
            "has; give one of them another label",
        ),
        (
            "matrix: {mixer: [5]}",
            "exp.yaml:10: matrix.mixer[0]: got 5, must be a mixer's name, or a "
            "mapping with its name",
        ),
        (
            "matrix: {mixer: [{name: agf, lable: x}]}",
            "exp.yaml:10: matrix.mixer[0].lable: unknown key; did you mean 'label'?",
        ),
        (
            "matrix: {mixer: [{name: agf, label: a/b}]}",
            "exp.yaml:10: matrix.mixer[0].label: got 'a/b', must be text of "
            "letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit",
        ),
        (
            "matrix: {mixer: [{name: agf, params: 1}]}",
            "exp.yaml:10: matrix.mixer[0].params: got 1, must be a mapping",
        ),
        (
            "matrix: {train.lr: [{label: x}]}",
            "exp.yaml:10: matrix.train.lr[0]: a mapping here must have a value, as "
            "in {value: 0.1, label: high}",
        ),
        (
            "matrix: {name: [a, b]}",
            "exp.yaml:10: matrix.name: cannot be an axis; axes are components, "
            "seed, or settings such as train.lr",
        ),
        (
            "matrix: {seed: [0], train.seed: [1]}",
            "exp.yaml:10: matrix.train.seed: sets the same as the axis seed; keep one of them",
        ),
        (
            "matrix: {seed: [0], train.lr: [x]}",
            "exp.yaml:10: train.lr: got 'x', must be a number > 0 (run x-seed0)",
        ),
        (
            "matrix: {mixr: [agf]}",
            "exp.yaml:10: mixr: unknown key; did you mean 'mixer'? (run agf)",
        ),
        (
            "matrix: {mixer: [softmax, agff]}",
            "exp.yaml:10: mixer.name: unknown mixer 'agff'; did you mean 'agf'? "
            "(`subquad list mixer` shows what is "
            "installed) (run agff)",
        ),
        (
            "cases: 1",
            "exp.yaml:10: cases: got 1, must be a list, as in [{when: {seed: 0}, "
            "set: {train.lr: 0.1}}]",
        ),
        (
            "cases: []",
            "exp.yaml:1: matrix: missing, must be a mapping of keys to lists, as in seed: [0, 1]",
        ),
    ],
)
def test_what_is_no_matrix(refused, base_text, study, message):
    text = f"{base_text}{study}\n"
    if study.startswith("cases: 1"):
        text += "matrix: {seed: [0]}\n"
    assert refused(text) == message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("cases: [1]", "exp.yaml:11: cases[0]: got 1, must be a mapping with when and set"),
        ("cases: [{if: {}}]", "exp.yaml:11: cases[0].if: unknown key; there is when, set"),
        (
            "cases: [{when: {seed: 0}}]",
            "exp.yaml:11: cases[0].set: got null, must be a mapping of settings, "
            "as in {train.lr: 0.1}",
        ),
        (
            "cases: [{when: 0, set: {train.lr: 1}}]",
            "exp.yaml:11: cases[0].when: got 0, must be a mapping of axes to "
            "values, as in {seed: 0}",
        ),
        (
            "cases: [{when: {sed: 0}, set: {train.lr: 1}}]",
            "exp.yaml:11: cases[0].when.sed: no such axis; did you mean 'seed'?",
        ),
        (
            "cases: [{when: {seed: 2}, set: {train.lr: 1}}]",
            "exp.yaml:11: cases[0].when.seed: got 2, matches no run; there is seed0, seed1",
        ),
        (
            "cases: [{when: {seed: [seed0, sed1]}, set: {train.lr: 1}}]",
            "exp.yaml:11: cases[0].when.seed: got 'sed1', matches no run; there is seed0, "
            "seed1; did you mean 'seed1'?",
        ),
        (
            "cases: [{when: {seed: []}, set: {train.lr: 1}}]",
            "exp.yaml:11: cases[0].when.seed: is empty and means no run; give a value",
        ),
        (
            "cases: [{set: {train.seed: 1}}]",
            "exp.yaml:11: train.seed: cannot be set, as seed is an axis of this "
            "study; leave it out here",
        ),
        (
            "cases: [{set: {mixer: agf}}]",
            "exp.yaml:11: mixer: cannot be set, as mixer is an axis of this study; "
            "leave it out here",
        ),
        (
            "cases: [{set: {dataset.params.problem: X}}]",
            "exp.yaml:11: dataset.params.problem: cannot be set, as dataset is an "
            "axis of this study; leave it out "
            "here",
        ),
        (
            "cases: [{set: {name: x}}]",
            "exp.yaml:11: cases[0].set.name: cannot be set for some runs",
        ),
        (
            "cases: [{when: {mixer: softmax}, set: {mixer.params.order: 2}}]",
            "exp.yaml:11: mixer.params.order: unknown key; there is bias, qk_norm, rotary, "
            "dropout, kernel (run JapaneseVowels-softmax-seed0)",
        ),
    ],
)
def test_what_is_no_case(refused, more, message):
    assert refused(f"{STUDY}{more}\n") == message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "mixer=agf",
            "override 'mixer=agf': mixer: cannot be set, as mixer is an axis of "
            "this study; give the axis, as in "
            "matrix.mixer=[...]",
        ),
        (
            "train.seed=3",
            "override 'train.seed=3': train.seed: cannot be set, as seed is an "
            "axis of this study; give the axis, as "
            "in matrix.seed=[...]",
        ),
        (
            "matrix=3",
            "override 'matrix=3': matrix: got 3, must be a mapping of keys to "
            "lists, as in seed: [0, 1]",
        ),
        (
            "matrix.seed=3",
            "override 'matrix.seed=3': matrix.seed: got 3, must be a list of values, as in [3]",
        ),
        (
            "matrix.train.lr=[1, x]",
            "override 'matrix.train.lr=[1, x]': train.lr: got 'x', must be a number > 0 (run "
            "JapaneseVowels-agf-x-seed0)",
        ),
        ("cases=[]", "override 'cases=[]': cases: can only be given in a file"),
    ],
)
def test_overrides_of_a_study_that_are_refused(refused, override, message):
    assert refused(STUDY, override) == message


def test_a_study_whose_values_leave_no_run(refused):
    text = STUDY.replace("[agf, softmax]", "[{name: agf, when: {seed: 1}}]")
    text = text.replace(
        "seed: [0, 1]", "seed: [0, {value: 1, label: one, when: {dataset: Heartbeat}}]"
    )
    assert "matrix: has no run: no values stand beside each other" in refused(
        text, "matrix.seed=[0]"
    )
    text += "cases: [{when: {mixer: agf, dataset: JapaneseVowels}, set: {train.lr: 1}}]\n"
    assert refused(text) == (
        "exp.yaml:11: cases[0].when: matches no run, as values are for other runs by their own when"
    )


def test_too_many_cells(refused, base_text):
    numbers = ", ".join(map(str, range(101)))
    text = f"{base_text}matrix:\n  seed: [{numbers}]\n  train.batch_size: [{numbers}]\n"
    assert refused(text) == (
        "exp.yaml:10: matrix: 101 train.batch_size x 101 seed makes 10,201 runs, "
        "must be at most 10,000"
    )


def test_too_many_cases(refused):
    text = STUDY + "cases:\n" + "  - {set: {train.lr: 1}}\n" * 1001
    assert refused(text) == "exp.yaml:11: cases: has 1,001 entries, must be at most 1,000"


CORPORA = (
    "matrix.dataset=[{name: corpora, params: {corpus: a b, folder: x}}, {name: "
    "corpora, label: mine}, corpora]"
)


def test_a_data_sets_label_is_its_plugins(loaded):
    plan = loaded(
        STUDY, CORPORA, "matrix.mixer=[agf]", "matrix.seed=[0]", "dataset.params.folder=y"
    )
    assert [cell.label for cell in plan.runs] == [
        f"{name}-agf-seed0" for name in ("a_b-8", "mine", "small-8")
    ]
    assert [cell.dataset_label for cell in plan.runs] == ["a b-8", "small-8", "small-8"]


def test_what_the_label_of_a_data_set_says_cannot_be_set(refused):
    assert refused(STUDY, CORPORA, "dataset.params.corpus=c") == (
        "override 'dataset.params.corpus=c': dataset.params.corpus: cannot be set, "
        "as dataset is an axis of this "
        "study; give the axis, as in matrix.dataset=[...]"
    )


def test_a_label_too_long_for_a_folder(refused, base_text):
    text = f"{base_text}matrix:\n  tracking.uri: [{'x' * 201}]\n"
    assert (
        refused(text)
        == "exp.yaml:10: matrix: a run's label has 201 characters, must be at most 200; give labels"
    )


def test_two_cells_of_one_label(refused, base_text):
    text = (
        base_text + "matrix:\n  protocol: [{value: honest, label: a-b}, {value: fixed, label: a}]\n"
    )
    text += "  train.lr: [{value: 1, label: c}, {value: 2, label: b-c}]\n"
    assert (
        refused(text)
        == "exp.yaml:10: matrix: two runs have the label a-b-c; give their values other labels"
    )
