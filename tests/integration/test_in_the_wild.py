"""Modules of published packages against the certificate: what fails is what experiments show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import wild_page
import wild_wrappers
from command import cli
from pages import REPO
from wild_trial import Trial
from wild_trials import ALSO, LEFT_OUT, TRIALS, WRAPPERS

SECONDS = 600
"""For the certificate of one module, which takes 1 minute."""


@pytest.mark.skipif(not (REPO / "docs").is_dir(), reason="runs beside the sources only")
def test_the_page_says_what_the_trials_declare() -> None:
    """`python tests/support/wild_page.py` writes it."""
    assert wild_page.PAGE.read_text(encoding="utf-8") == wild_page.page()


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_a_wrapper_has_at_most_25_lines(trial: Trial) -> None:
    found = wild_page.wrapper(trial)
    assert found.end_lineno is not None
    assert found.end_lineno - found.lineno < 25


def test_each_wrapper_is_tried() -> None:
    wrappers = {name for name, found in vars(wild_wrappers).items() if hasattr(found, "facts")}
    assert wrappers == {trial.mixer for trial in TRIALS}


def test_each_accusation_has_an_experiment() -> None:
    assert all(fault.checks and fault.figure > 0 for trial in TRIALS for fault in trial.faults)
    assert len(TRIALS) >= 25
    assert len({trial.package for trial in TRIALS}) >= 15


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the packages alone, beside the tests' torch."""
    folder = tmp_path_factory.mktemp("packages")
    pins = sorted({trial.pin for trial in TRIALS if trial.pin.partition("==")[0] != "torch"})
    uv = [os.environ.get("UV", "uv"), "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*uv, "--target", str(folder), *pins, *ALSO.split()], check=True)
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.mark.extended
@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_the_certificate_says_what_is_declared(
    trial: Trial, packages: Path, tmp_path: Path
) -> None:
    left_out = [
        word for check, reason in LEFT_OUT.items() for word in ("--exclude", f"{check}={reason}")
    ]
    path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    ran = cli(
        ["check", f"{WRAPPERS}:{trial.mixer}", "--jobs", "1", "--json", *left_out],
        tmp_path,
        check=None,
        seconds=SECONDS,
        PYTHONPATH=path,
        PYTHONWARNINGS="ignore",
    )
    (mixer,) = json.loads(ran.stdout)["mixers"]
    failed = {
        (outcome["subject"].endswith("causal"), outcome["check"])
        for outcome in mixer["outcomes"]
        if outcome["status"] == "failed"
    }
    declared = {(fault.causal, check) for fault in trial.faults for check in fault.checks}
    assert failed == declared


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_experiments_show_what_the_certificate_says(trial: Trial, packages: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for fault in trial.faults:
            found = fault.experiment(trial.published(fault.causal))
            assert found == pytest.approx(fault.figure, rel=0.1), fault
    finally:
        torch.set_num_threads(threads)
