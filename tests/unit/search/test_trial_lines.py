"""What `subquad tune` prints of trials."""

from subquad.cli.search import MAX_REASON, _trial_line
from subquad.search.trial import Trial


def infeasible(number: int, reason: str, candidate: str = "agf") -> Trial:
    return Trial(
        candidate=candidate,
        number=number,
        point={"train.lr": 0.1},
        state="infeasible",
        reason=reason,
    )


def test_a_reason_is_told_once_for_each_candidate_and_without_the_point():
    firsts = {}
    trials = [
        infeasible(0, "heads 3"),
        infeasible(2, "heads 3"),
        infeasible(3, "order"),
        infeasible(1, "order", "cur"),
    ]
    lines = [_trial_line(None, trial, firsts) for trial in [*trials, infeasible(5, "heads 3")]]
    assert lines == [
        "agf 0: infeasible; heads 3",
        "agf 2: infeasible; as 0",
        "agf 3: infeasible; order",
        "cur 1: infeasible; order",
        "agf 5: infeasible; as 0",
    ]


def test_a_long_reason_is_cut():
    line = _trial_line(None, infeasible(0, "x" * 400), {})
    assert line == f"agf 0: infeasible; {'x' * (MAX_REASON - 3)}..."
