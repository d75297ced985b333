"""What a study searches for, spaces that were written down, and the study of the winners."""

from pathlib import Path

import pytest
from small_run import SMALL

from subquad.errors import ConfigError
from subquad.experiment import Study, load_study
from subquad.search.candidates import candidates_of
from subquad.search.run import _final_study
from subquad.search.search import Search, plan_search
from subquad.search.settings import Settings
from subquad.search.trial import Evaluation, Goal, Trial, winner_of
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
        ("mixer: [agf, softmax], seed: [{value: 3, label: first}, 4]", ["agf-first", "softmax-first"]),
    ],
)
def test_candidates_are_the_cells_without_their_seeds(study, matrix, labels):
    found = candidates_of(study(f"matrix: {{{matrix}}}\n"))
    assert [one.label for one in found] == labels
    assert all("seed" not in one.axes for one in found)
    if "seed" in matrix:
        assert {one.run.experiment.train.seed for one in found} == {3}


def test_a_single_experiment_is_one_candidate_with_its_name(study):
    (found,) = candidates_of(study())
    assert (found.label, found.axes, found.goal) == ("small", {}, Goal("accuracy", "max"))


@pytest.mark.parametrize("name", ["agf", "cur", "sfpc", "mdfwa", "optimizer", "auto", "agf+optimizer"])
def test_a_space_that_was_written_down_draws_the_same_points(study, name):
    mixer = name if name in ("cur", "sfpc", "mdfwa") else "agf"
    plan = study("", f"mixer={mixer}")
    space = plan_search(plan, Settings(name)).candidates[0].space
    again = read_space(space.plain(), name, plan.runs[0])
    assert [again.draw(3, number) for number in range(30)] == [space.draw(3, number) for number in range(30)]
    assert [one.value for one in again.settings(again.draw(0, 1))] == [
        one.value for one in space.settings(space.draw(0, 1))
    ]


def test_a_candidate_may_have_nothing_to_search(study):
    search = plan_search(study("matrix: {mixer: [agf, softmax]}\n"), Settings("agf"))
    agf, softmax = search.candidates
    assert agf.space.dimensions > 0
    assert softmax.space.draw(0, 0) == {}
    assert read_space(Space("agf").plain(), "agf", softmax.run).dims == ()


def test_the_shared_space_gives_all_the_same_number_of_trials(study):
    agf, softmax = plan_search(study("matrix: {mixer: [agf, softmax]}\n"), Settings("agf+optimizer")).candidates
    assert agf.space.dimensions > softmax.space.dimensions > 0
    assert (agf.space.size(), softmax.space.size()) == (None, None)


def finished(number, value, loss=1.0, state="finished", step=10):
    curve = (Evaluation(step=step, value=value, loss=loss),)
    return Trial(candidate="agf", number=number, point={}, state=state, curves=(curve,))


def test_the_winner_is_a_finished_trial_of_equals_the_one_with_the_lower_loss():
    trials = [finished(0, 0.5), finished(1, 0.9, state="pruned"), finished(2, 0.7, 0.4), finished(3, 0.7, 0.3)]
    trials += [finished(4, 0.7, 0.3), finished(5, float("nan")), finished(6, 1.0, state="failed")]
    assert winner_of(trials, Goal("accuracy", "max"))[0].number == 3
    assert winner_of(trials, Goal("perplexity", "min"))[0].number == 0
    assert winner_of(trials[5:], Goal("accuracy", "max")) is None


def won(candidate: str, **settings):
    laid = {key.replace("__", "."): value for key, value in settings.items()}
    return Trial(candidate=candidate, number=0, point={}, state="finished", settings=laid)


def final(plan: Study, folder: Path, seeds: int, *winners: Trial) -> Study:
    search = Search(plan, Settings("auto", final_seeds=seeds), candidates_of(plan))
    return _final_study(search, folder, {one.candidate: one for one in winners})


def test_the_final_study_has_each_winners_settings_and_the_final_seeds(study, tmp_path):
    plan = study("matrix: {mixer: [{name: agf, params: {order: 5}}, softmax], seed: [7]}\n", "train.lr=0.5")
    first = won("agf", mixer__params__order=8, train__lr=0.1)
    second = won("softmax", train__lr=0.2, train__steps=9, train__epochs=None)
    runs = final(plan, tmp_path, 2, first, second).runs
    assert [cell.label for cell in runs] == ["agf-seed0", "agf-seed1", "softmax-seed0", "softmax-seed1"]
    trains = [cell.experiment.train for cell in runs]
    assert [one.lr for one in trains] == [0.1, 0.1, 0.2, 0.2]
    assert [one.steps for one in trains] == [None, None, 9, 9]
    assert [cell.experiment.mixer.params.get("order") for cell in runs] == [8, 8, None, None]
    best = load_study(str(tmp_path / "best/agf.yaml"))
    assert [one.experiment for one in best.runs] == [one.experiment for one in runs[:2]]


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
    with pytest.raises(ConfigError, match=r"--cost: got 'second', must be one of none, seconds, flops; did you mean"):
        Settings("agf", cost="second")
    with pytest.raises(ConfigError, match=r"--seed: got -1, must be from 0 to 4294967295"):
        Settings("agf", seed=-1)
