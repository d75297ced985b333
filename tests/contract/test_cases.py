"""`subquad_check.check_mixer`, as a package of mixers uses it in its own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from right import Mean, Placed, RunningMean
from wrong import PaddedMean

from subquad.errors import ConfigError, PluginError
from subquad.plugin import MixerPlugin
from subquad_check import CheckFailed, check_mixer
from subquad_check.checks import CHECKS

HERE = Path(__file__).parent

THEIR_TESTS = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import pytest
from subquad_check import check_mixer

@pytest.mark.parametrize(
    "case",
    check_mixer(
        "{HERE}/right.py:Mean",
        only=["shapes", "carry", "losses"],
        exclude={{"losses": "why not"}},
    ),
    ids=str,
)
def test_contract(case):
    case()

@pytest.mark.parametrize(
    "case", check_mixer("{HERE}/wrong.py:PaddedLength", only=["padding-amount"]), ids=str
)
def test_wrong(case):
    case()
"""


@pytest.mark.parametrize(
    "case", check_mixer(RunningMean, only=["causal-outputs", "cache-step", "shapes"]), ids=str
)
def test_a_class_gives_cases_that_pass(case):
    assert case().words


def test_there_is_a_case_for_each_check_and_each_way_of_building():
    cases = check_mixer("softmax")
    assert len(cases) == len(set(map(str, cases)))
    assert len(cases) == len(CHECKS) * len({str(case.subject) for case in cases})
    assert "softmax/default+causal/cache-step" in map(str, cases)
    assert {str(case).split("/")[1] for case in check_mixer("agf", {"order": 4})} == {"given"}


def test_a_failing_case_says_what_was_seen_and_what_is_allowed():
    (case,) = check_mixer(PaddedMean, only=["padding-amount"])
    message = (
        # on either side as far off, but for rounding
        r"output of 5 tokens with (59 padded before and 0|0 padded before and 59) after in "
        r"evaluation: "
        r"differs by .* of the largest output, "
        r"allowed 1.0e-09 \(float64, 64 tokens, evaluation, role self\)"
    )
    with pytest.raises(CheckFailed, match=message):
        case()


def test_an_excluded_case_is_skipped_with_its_reason():
    (case,) = check_mixer(Mean, only=["cross"])
    with pytest.raises(pytest.skip.Exception, match="cross not claimed"):
        case()
    (case,) = check_mixer(
        PaddedMean, only=["padding-amount"], exclude={"padding-amount": "the paper pads so"}
    )
    with pytest.raises(pytest.skip.Exception, match="the paper pads so"):
        case()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["padding-amout"]}, "no check 'padding-amout'; did you mean 'padding-amount'"),
        ({"exclude": {"cros": "x"}}, "no check 'cros'; did you mean 'cross'"),
        ({"exclude": {"cross": " "}}, "exclude cross: give a reason"),
        ({"params": {"ordr": 3}}, "ordr"),
    ],
)
def test_wrong_names_are_refused_before_anything_runs(options, message):
    with pytest.raises(ConfigError, match=message):
        check_mixer("agf", **options)


def test_what_is_no_mixer_is_refused():
    with pytest.raises(PluginError, match="unknown mixer 'sofmax'; did you mean 'softmax'"):
        check_mixer("sofmax")
    with pytest.raises(PluginError, match="str is not a subclass of"):
        check_mixer(str)


def test_a_descriptor_brings_its_variants():
    class Sized(Placed.Config):
        width: int = 3

    plugin = MixerPlugin(
        config=Sized,
        build=Placed,
        summary="",
        facts=Placed.facts,
        variants={"wide": {"width": 4}, "wider": {"width": 5}},
    )
    cases = check_mixer(plugin, only=["shapes"])
    assert [case.subject.variant for case in cases] == ["default", "wide", "wider"]


def test_another_width_is_asked_for(tmp_path):
    (case,) = check_mixer(Mean, only=["shapes"], dim=6, num_heads=3)
    assert case().words == "(2, 13, 6) in float64 and float32"


@pytest.mark.ci
def test_in_a_package_of_somebody_else(tmp_path):
    (tmp_path / "test_theirs.py").write_text(THEIR_TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "test_theirs.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
    assert "hands no carry on" in done.stdout
    assert "why not" in done.stdout
    assert "wrong.py:PaddedLength/default/padding-amount" in done.stdout


@pytest.mark.ci
def test_pytest_is_not_needed_for_a_certificate():
    code = (
        "import sys; from subquad_check import certify; assert not {'pytest', '_pytest', "
        "'torch._dynamo'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
