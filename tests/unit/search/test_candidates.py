"""What a study searches for, spaces that were written down, and the study of the winners."""

import itertools
from collections import ChainMap
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.errors import ConfigError
from subquad.experiment import Study, load_study, load_text
from subquad.search.candidates import candidates_of
from subquad.search.final import Winners, begin_final
from subquad.search.search import Search, plan_search
from subquad.search.settings import Settings
from subquad.search.trial import Evaluation, Goal, Trial, best_of, winner_of
from subquad.space import Space, read_space


@pytest.fixture
def study(tmp_path):
    def make(tail="", *overrides, head=SMALL):
        path = tmp_path / "small.yaml"
        path.write_text(head + tail)
        return load_study(str(path), overrides)

    return make


@pytest.mark.parametrize(
    ("matrix", "labels"),
    [
        ("mixer: [agf, softmax], seed: [3, 4]", ["agf", "softmax"]),
        ("seed: [3, 4], mixer: [agf, softmax]", ["agf", "softmax"]),
        ("mixer: [agf], seed: [3, 4], train.lr: [0.1, 0.2]", ["agf-lr0.1", "agf-lr0.2"]),
        ("train.seed: [3, 4]", ["small"]),
        ("mixer: [agf, softmax]", ["agf", "softmax"]),
        ("mixer: [agf, softmax], seed: [{value: 3, label: first}, 4]", ["agf", "softmax"]),
    ],
)
def test_candidates_are_the_cells_without_their_seeds(study, matrix, labels):
    found = candidates_of(study(f"matrix: {{{matrix}}}\n"))
    assert [candidate.label for candidate in found] == labels
    assert all("seed" not in candidate.axes for candidate in found)
    if "seed" in matrix:
        assert {candidate.run.experiment.train.seed for candidate in found} == {3}


def test_a_single_experiment_is_one_candidate_with_its_name(study):
    (found,) = candidates_of(study())
    assert (found.label, found.axes, found.goal) == ("small", {}, Goal("accuracy", "max"))


def test_a_point_at_which_its_mixer_cannot_stand_is_refused(study):
    """Before a trial starts: its width is no multiple of the backbone's heads."""
    (found,) = candidates_of(study("", "mixer=dba"))
    assert found.laid({"mixer.params.inner_dim": 26}).mixer_config.model_dump()["inner_dim"] == 26
    with pytest.raises(ConfigError, match="inner_dim 25 is no multiple of the number of heads, 2"):
        found.laid({"mixer.params.inner_dim": 25})


@pytest.mark.parametrize(
    "name", ["agf", "cur", "sfpc", "mdfwa", "optimizer", "auto", "agf+optimizer"]
)
def test_a_space_that_was_written_down_draws_the_same_points(study, name):
    mixer = name if name in ("cur", "sfpc", "mdfwa") else "agf"
    plan = study("", f"mixer={mixer}")
    space = plan_search(plan, Settings(name)).candidates[0].space
    again = read_space(space.as_data(), name, plan.runs[0])
    assert [again.draw(3, number) for number in range(30)] == [
        space.draw(3, number) for number in range(30)
    ]
    assert again.settings(again.draw(0, 1)) == space.settings(space.draw(0, 1))


def test_a_candidate_may_have_nothing_to_search(study):
    search = plan_search(study("matrix: {mixer: [agf, softmax]}\n"), Settings("agf"))
    agf, softmax = search.candidates
    assert agf.space.dimensions > 0
    assert softmax.space.draw(0, 0) == {}
    assert read_space(Space("agf").as_data(), "agf", softmax.run).dims == ()


def test_the_shared_space_gives_all_the_same_number_of_trials(study):
    agf, softmax = plan_search(
        study("matrix: {mixer: [agf, softmax]}\n"), Settings("agf+optimizer")
    ).candidates
    assert agf.space.dimensions > softmax.space.dimensions > 0
    assert (agf.space.size(), softmax.space.size()) == (None, None)


def finished(number, value, loss=1.0, state="finished", step=10):
    best = best_of([[Evaluation(step=step, value=value, loss=loss)]], "max")
    return Trial(candidate="agf", number=number, point={}, state=state, best=best)


def test_the_winner_is_a_finished_trial_of_equals_the_one_with_the_lower_loss():
    trials = [
        finished(0, 0.5),
        finished(1, 0.9, state="pruned"),
        finished(2, 0.7, 0.4),
        finished(3, 0.7, 0.3),
    ]
    trials += [finished(4, 0.7, 0.3), finished(5, float("nan")), finished(6, 1.0, state="failed")]
    assert winner_of(trials, Goal("accuracy", "max"))[0].number == 3
    assert winner_of(trials, Goal("perplexity", "min"))[0].number == 0
    assert winner_of(trials[5:], Goal("accuracy", "max")) is None


def won(candidate: str, **settings) -> Winners:
    return {candidate: {key.replace("__", "."): value for key, value in settings.items()}}


def final(plan: Study, folder: Path, seeds: int, *winners: Winners) -> Study:
    search = Search(plan, Settings("auto", final_seeds=seeds), candidates_of(plan))
    return begin_final(search, folder, dict(ChainMap(*map(dict, winners))))


def test_the_final_study_has_each_winners_settings_and_the_final_seeds(study, tmp_path):
    plan = study(
        "matrix: {mixer: [{name: agf, params: {order: 5}}, softmax], seed: [7]}\n", "train.lr=0.5"
    )
    first = won("agf", mixer__params__order=8, train__lr=0.1)
    second = won("softmax", train__lr=0.2, train__steps=9, train__epochs=None)
    runs = final(plan, tmp_path, 2, first, second).runs
    assert [cell.label for cell in runs] == [
        "agf-seed0",
        "agf-seed1",
        "softmax-seed0",
        "softmax-seed1",
    ]
    trains = [cell.experiment.train for cell in runs]
    assert [train.lr for train in trains] == [0.1, 0.1, 0.2, 0.2]
    assert [train.steps for train in trains] == [None, None, 9, 9]
    assert [cell.experiment.mixer.params.get("order") for cell in runs] == [8, 8, None, None]
    best = load_study(str(tmp_path / "best/agf.yaml"))
    assert [run.experiment for run in best.runs] == [run.experiment for run in runs[:2]]


ROWS = ["agf", "{name: agf, label: other, params: {order: 5}}", "{name: softmax, label: third}"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_rows_that_share_a_plugin_get_their_own_winners_in_any_order(study, tmp_path, order):
    plan = study(f"matrix: {{mixer: [{', '.join(ROWS[number] for number in order)}], seed: [7]}}\n")
    winners = [
        won("agf", mixer__params__basis="legendre", train__lr=0.1),
        won("other", mixer__params__order=8),
    ]
    runs = {
        run.label: run.experiment
        for run in final(plan, tmp_path, 1, *winners, won("third", train__lr=0.3)).runs
    }
    assert {label: experiment.train.lr for label, experiment in runs.items()} == {
        "agf-seed0": 0.1,
        "other-seed0": 1e-3,
        "third-seed0": 0.3,
    }
    params = {label: experiment.mixer.params for label, experiment in runs.items()}
    assert (params["agf-seed0"]["order"], params["agf-seed0"]["basis"]) == (3, "legendre")
    assert (params["other-seed0"]["order"], params["other-seed0"]["basis"]) == (8, "jacobi")
    for label, experiment in runs.items():
        best = load_study(str(tmp_path / f"best/{label.removesuffix('-seed0')}.yaml"))
        assert [run.experiment for run in best.runs] == [experiment]


def test_values_that_are_equal_or_are_called_like_another_are_candidates_of_their_own(
    study, tmp_path
):
    values = "[{value: 0.1, label: low}, {value: 0.1, label: again}, {value: 0.2, label: lr0.1}]"
    plan = study(
        f"matrix: {{train.weight_decay: {values}, train.schedule: [{{value: "
        f"cosine, label: constant}}]}}\n"
    )
    assert [candidate.label for candidate in candidates_of(plan)] == [
        "low-constant",
        "again-constant",
        "lr0.1-constant",
    ]
    winners = [
        won("low-constant", train__lr=0.3),
        won("again-constant", train__lr=0.4),
        won("lr0.1-constant"),
    ]
    runs = final(plan, tmp_path, 1, *winners).runs
    assert [(run.label, run.experiment.train.lr) for run in runs] == [
        ("low-constant-seed0", 0.3),
        ("again-constant-seed0", 0.4),
        ("lr0.1-constant-seed0", 1e-3),
    ]


def test_a_study_without_its_labelled_cases_is_searched_and_read_again(study, tmp_path):
    tail = (
        "matrix: {mixer: [agf, softmax], seed: [0], "
        "change: [base, {label: fast, set: {train.lr: 0.1}}]}\n"
    )
    plan = study(tail, "matrix.change=[base]")
    again = load_text(plan.text)
    assert (
        [run.label for run in plan.runs]
        == [run.label for run in again.runs]
        == ["agf-base-seed0", "softmax-base-seed0"]
    )
    assert [candidate.label for candidate in candidates_of(plan)] == [
        candidate.label for candidate in candidates_of(again)
    ]
    winners = won("agf-base", train__lr=0.2), won("softmax-base", train__lr=0.3)
    runs = final(plan, tmp_path, 1, *winners).runs
    assert [run.experiment.train.lr for run in runs] == [0.2, 0.3]


def test_a_candidate_without_a_winner_is_left_out_and_no_other_one(study, tmp_path):
    plan = study("matrix: {mixer: [agf, softmax], train.lr: [0.1, 0.2], seed: [0]}\n")
    kept = ["agf-lr0.2", "softmax-lr0.1"]
    runs = final(plan, tmp_path, 2, *map(won, kept)).runs
    labels = [f"{label}-seed{seed}" for label in kept for seed in (0, 1)]
    assert [run.label for run in runs] == labels
    again = load_study(str(tmp_path / "final" / "study.yaml"))
    assert [run.label for run in again.runs] == labels


def test_two_candidates_with_one_label_are_refused(study):
    tail = "matrix: {mixer: [{name: agf, label: a}, {name: agf, label: a-b}], seed: [0], "
    values = "train.lr: [{value: 0.1, label: b-c}, {value: 0.2, label: c}]}\n"
    with pytest.raises(
        ConfigError, match="two runs have the label a-b-c-seed0; give their values other labels"
    ):
        study(tail + values)


def test_a_candidate_without_a_winner_is_left_out(study, tmp_path):
    plan = study("matrix: {mixer: [agf, softmax]}\n")
    found = final(plan, tmp_path, 1, won("softmax", train__lr=0.2))
    assert [cell.label for cell in found.runs] == ["softmax-seed0"]


def test_a_single_experiments_final_study(study, tmp_path):
    plan = study()
    found = final(plan, tmp_path, 3, won("small", train__lr=0.2))
    assert [cell.experiment.train.seed for cell in found.runs] == [0, 1, 2]
    assert {cell.experiment.train.lr for cell in found.runs} == {0.2}


def test_settings_that_are_none():
    with pytest.raises(
        ConfigError,
        match=r"--cost: got 'second', must be one of none, seconds, flops; did you mean",
    ):
        Settings("agf", cost="second")
    with pytest.raises(ConfigError, match=r"sampler.seed: got -1, must be from 0 to 4294967295"):
        Settings("agf", seed=-1)
