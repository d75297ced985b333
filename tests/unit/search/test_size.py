"""`match: parameters`: all mixers of a study with as many parameters as the first one."""

from __future__ import annotations

import pytest
from small_run import SMALL

from subquad import train
from subquad.cli.main import main
from subquad.errors import ConfigError
from subquad.experiment import load_study, load_text
from subquad.experiment.folder import reopen
from subquad.preparation.costs import StudyCosts
from subquad.preparation.size import equal_size
from subquad.reports import document_of, read_report

MATCHED = (
    SMALL.replace("dim: 16", "dim: 32").replace("ffn_dim: 32", "ffn_dim: 128")
    + """
match: parameters
matrix: {mixer: [softmax, agf, mamba], seed: [0, 1]}
"""
)


@pytest.fixture
def sized(tmp_path, monkeypatch):
    """The study with its widths, and the number of parameters of each run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(MATCHED)

    def make(*overrides):
        costs = StudyCosts()
        study = equal_size(load_study("small.yaml", overrides), costs)
        return study, [costs.parameters(run) for run in study.runs]

    return make


def widths(study):
    return [run.experiment.backbone.params["ffn_dim"] for run in study.runs]


def test_every_mixer_gets_the_size_of_the_first(sized):
    study, sizes = sized()
    assert all(size == pytest.approx(sizes[0], rel=0.02) for size in sizes)
    assert widths(study)[:2] == [128, 128]
    assert widths(study)[2] == widths(study)[3] < 128
    again = load_text(study.text)
    assert again.runs == study.runs
    assert equal_size(again, StudyCosts()).runs == again.runs


def test_the_order_of_the_mixers_says_which_size(sized):
    study, _ = sized("matrix.mixer=[mamba, softmax]")
    assert widths(study)[0] == 128 < widths(study)[2]


def test_other_axes_have_sizes_of_their_own(sized):
    _, sizes = sized("matrix.seed=[0]", "matrix.backbone.params.dim=[16, 32]")
    assert sizes[2] == pytest.approx(sizes[0], rel=0.02)
    assert sizes[3] == pytest.approx(sizes[1], rel=0.02)
    assert sizes[1] > 2 * sizes[0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["match=params"], "match: got 'params', must be parameters or null"),
        (
            ["match=flops"],
            "must be parameters or null; with subquad tune there is also trial.match=flops",
        ),
        (
            ["matrix.backbone.params.ffn_dim=[8, 16]"],
            "match: chooses backbone.params.ffn_dim, and the axis backbone.params.ffn_dim",
        ),
        (["matrix.mixer=[agf]"], "match: parameters: has no effect on one mixer"),
        (
            ["backbone.params.ffn_dim=1"],
            "match: parameters: no backbone.params.ffn_dim gives .* \\(run agf-seed0\\)",
        ),
    ],
)
def test_what_cannot_be_matched_is_refused(sized, overrides, message):
    with pytest.raises(ConfigError, match=message):
        sized(*overrides)


ONE_WIDTH = MATCHED.replace("agf", "{name: agf, set: {backbone.params.ffn_dim: 8}}")
ONE_AT_A_TIME = MATCHED.replace(
    "seed: [0, 1]}", "change: [base, {label: low, set: {train.lr: 1e-4}}], seed: [0, 1]}"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE_WIDTH, "chooses backbone.params.ffn_dim, and the axis mixer sets"),
        (ONE_AT_A_TIME, "chooses backbone.params.ffn_dim, and the axis change sets"),
    ],
)
def test_a_value_that_would_lose_its_effect_is_refused(sized, tmp_path, text, message):
    (tmp_path / "small.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        sized()


def test_a_single_experiment_has_nothing_to_match(tmp_path):
    with pytest.raises(ConfigError, match="match: needs mixers that are compared"):
        load_text(SMALL + "match: parameters\n")


@pytest.mark.ci
def test_a_study_trained_at_equal_size_says_so(sized, tmp_path, capsys):
    few = ["matrix.seed=[0]", "matrix.mixer=[agf, identity]", "train.steps=2"]
    assert main(["train", "small.yaml", "--dry-run", *few]) == 0
    printed = capsys.readouterr().out
    assert all(f"ffn_dim: {width}\n" in printed for width in widths(sized(*few)[0]))
    results = train("small.yaml", few)
    (folder,) = (tmp_path / "runs" / "small").iterdir()
    assert widths(reopen(folder)) == widths(sized(*few)[0])
    largest, smallest = (
        max(result["parameters"] for result in results),
        min(result["parameters"] for result in results),
    )
    (section, *_) = document_of(read_report([folder])).sections
    assert (
        f"recall: equal size, within {largest / smallest - 1:.1%} (match: parameters)"
        in section.notes
    )
