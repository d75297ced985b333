"""Other trackers: TensorBoard, and the page's command that sends to Weights & Biases."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
from click.testing import CliRunner
from result_file import ended

from subquad.cli.main import main
from subquad.errors import RunError
from subquad.record.files import write_json
from subquad.tracking.tensorboard import write_events

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "tracking.md"


class Writer:
    """In place of torch's, which may not be installed."""

    made: ClassVar[dict[str, list[tuple]]] = {}

    def __init__(self, folder: str):
        assert Path(folder).is_dir()
        self.rows = self.made.setdefault(folder, [])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def add_text(self, name: str, text: str):
        self.rows.append((name, text))

    def add_scalar(self, name: str, value: float, step: int, time: float):
        self.rows.append((name, value, step, time))


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch):
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Writer, "made", {})
    return Writer.made


def study(tmp_path: Path, make_run) -> Path:
    """Two runs, of which the first was resumed and the second has not begun."""
    folder = tmp_path / "runs" / "demo" / "s1"
    first = make_run(folder / "cells" / "one")
    make_run(folder / "cells" / "two")
    (folder / "study.yaml").write_text("matrix: {}\n")
    first.train(range(1, 4))
    first.train(range(2, 6), attempt=2)
    first.result()
    return folder


def test_event_files_have_each_step_once_and_the_score(tmp_path, make_run, writer, capsys):
    folder = study(tmp_path, make_run)
    place = tmp_path / "tensorboard" / "demo" / "s1"
    (place / "left").mkdir(parents=True)
    assert main(["sync", str(folder), "--to", "tensorboard"]) == 0
    assert capsys.readouterr().out == f"{folder}: written to {place}\n"
    assert list(writer) == [str(place), str(place / "cells" / "one")]
    assert not (place / "left").exists()
    rows = writer[str(place / "cells" / "one")]
    assert [row[2] for row in rows if row[0] == "train/loss"] == [1, 2, 3, 4, 5]
    assert ("test/accuracy", 0.75, 15) in [row[:3] for row in rows]
    assert ("mixer.name", "one") in rows
    assert ("subquad.kind", "study") in writer[str(place)]


def test_a_run_without_any_file_of_a_run_is_empty(tmp_path, make_run, writer):
    folder = study(tmp_path, make_run)
    (folder / "cells" / "three").mkdir()
    (folder / "cells" / "three" / "attempts.jsonl").touch()
    place = write_events(folder) / "cells" / "three"
    assert [row for row in writer[str(place)] if len(row) > 2] == []


def test_event_files_are_those_of_tensorboard(tmp_path, make_run):
    pytest.importorskip("tensorboard")
    place = write_events(study(tmp_path, make_run))
    assert len(list(place.rglob("events.out.tfevents.*"))) == 2


def test_event_files_follow_no_link(tmp_path, make_run, writer):
    folder = study(tmp_path, make_run)
    victim = tmp_path / "victim"
    (victim / "s1").mkdir(parents=True)
    (victim / "s1" / "own").touch()
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "demo").symlink_to(victim)
    with pytest.raises(RunError, match="a link, which is refused"):
        write_events(folder)
    assert (victim / "s1" / "own").exists()
    assert writer == {}


def test_without_tensorboard_one_line_says_so(run_folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["sync", str(run_folder.path), "--to", "tensorboard"]) == 2
    assert capsys.readouterr().err == (
        "subquad: --to tensorboard needs tensorboard: pip install 'subquad[tensorboard]'\n"
    )


def test_what_is_no_use_for_event_files_is_refused(run_folder, capsys):
    assert main(["sync", str(run_folder.path), "--to", "tensorboard", "--uri", "http://x"]) == 2
    assert "leave --uri and --json out" in capsys.readouterr().err


def test_the_pages_command_sends_to_weights_and_biases(tmp_path, make_run, monkeypatch):
    """With a stand-in in place of wandb."""
    sent = []

    def init(**about):
        run = SimpleNamespace(about=about, logged=[], ended=None)
        run.log = lambda values, step: run.logged.append((step, values))
        run.finish = lambda exit_code: setattr(run, "ended", exit_code)
        sent.append(run)
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 50
    space: dict = {}
    exec(compile(code, str(PAGE), "exec"), space)
    folder = study(tmp_path, make_run)
    write_json(folder / "cells" / "one" / "identity.json", ended("", digest="d"))
    outcome = CliRunner().invoke(space["to_wandb"], [str(folder)], catch_exceptions=False)
    assert outcome.exit_code == 0
    above, run = sent
    assert (above.about["name"], run.about["name"]) == ("demo/s1", "one")
    assert run.about["config"]["mixer.name"] == "one"
    assert [step for step, values in run.logged if "train/loss" in values] == [1, 2, 3, 4, 5]
    assert {step for step, values in run.logged if "test/accuracy" in values} == {15}
    assert (run.about["config"]["subquad.status"], run.ended) == ("finished", False)
