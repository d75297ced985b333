"""A folder that somebody else made may hold links: each is refused by name, and what it points
to stays as it is.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_run import SMALL, only_run, run_here, stopped_at

import subquad
from subquad.cli.main import main
from subquad.errors import RunError
from subquad.experiment import load_study
from subquad.experiment.folder import reopen, start
from subquad.record.files import append_line, write_json, write_text
from subquad.record.layout import enter
from subquad.record.storage import put, remove_tree
from subquad.security import disk

CANARY = b"what only its owner may read or change\n"
EXPERIMENT = "experiment.yaml"


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the user's with a file, which nothing may touch."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "kept").write_bytes(CANARY)
    yield folder
    assert [path.name for path in folder.iterdir()] == ["kept"]
    assert (folder / "kept").read_bytes() == CANARY
    assert (folder / "kept").stat().st_nlink == 1


def a_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / EXPERIMENT).write_text(SMALL)
    write_json(folder / "identity.json", {"experiment": {}})
    return folder


def a_study(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_text(SMALL + "matrix: {seed: [0, 1]}\n")
    a_run(folder / "cells" / "seed0")
    return folder


def a_search(folder: Path) -> Path:
    a_run(folder / "trials" / "agf" / "00000")
    (folder / "search.yaml").write_text("format: 2\n")
    a_study(folder / "final")
    return folder


def an_export(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


MADE = {"run": a_run, "study": a_study, "search": a_search, "export": an_export}
TO_FILES = {
    "run": (
        *(
            "result.json",
            "lock",
            "owner.json",
            "mlflow.json",
            "attempts.jsonl",
            "metrics.jsonl",
            "best.json",
        ),
        *(
            "error.txt",
            "stop",
            "test-openings.jsonl",
            "report.md",
            ".mlflow.lock",
            "odd name\n.txt",
        ),
        *(
            "checkpoints/step-00000010/model.safetensors",
            "checkpoints/step-00000010/manifest.json",
            "source/x.py",
        ),
    ),
    "study": (
        "cells/seed0/attempts.jsonl",
        "cells/seed0/checkpoints/step-00000010/state.json",
        "report.html",
    ),
    "search": (
        "trials/agf/00000/metrics.jsonl",
        "best/agf.yaml",
        "final/cells/seed0/result.json",
        "search.json",
    ),
    "export": ("model.safetensors",),
}
TO_FOLDERS = {
    "run": ("checkpoints", "checkpoints/step-00000010", "source", "charts", "diagnosis"),
    "study": ("cells/seed1",),
    "search": ("trials/agf/00001", "plots", "final-1", "trials/agf/00000/seed-0"),
    "export": ("more",),
}
COMMANDS = {
    "run": (
        "resume RUN --local",
        "eval RUN file",
        "predict RUN file",
        "export RUN out",
        "verify RUN",
        "report RUN",
        "report RUN --out out",
        "sync RUN",
        "diagnose RUN",
        "swap RUN softmax",
        f"train {EXPERIMENT} init.from=RUN --local",
    ),
    "study": ("resume RUN --local", "verify RUN", "report RUN", "sync RUN", "verify other RUN"),
    "search": (
        "resume RUN --local",
        "verify RUN",
        "report RUN",
        "sync RUN",
    ),
    "export": (),
}


def links_of(kind: str, outside: Path) -> Iterator[tuple[str, Path]]:
    """Links to put into a folder, and what each points to."""
    for name in TO_FILES[kind]:
        yield name, outside / "kept"
    for name in TO_FOLDERS[kind]:
        yield name, outside
    yield "dangling", outside / "new"
    yield "to-itself", Path("to-itself")
    yield "to-the-top", Path(".")


@pytest.mark.parametrize(
    ("kind", "words"), [(kind, words) for kind in COMMANDS for words in COMMANDS[kind]]
)
def test_every_command_refuses_a_link_by_its_name(kind, words, tmp_path, outside, capsys):
    Path("file").write_text("{}")
    Path(EXPERIMENT).write_text(SMALL)
    a_run(tmp_path / "other")
    for number, (name, target) in enumerate(links_of(kind, outside)):
        folder = MADE[kind](Path("runs", "small", f"20260101-000000-{number:08d}"))
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        code = main([word.replace("RUN", str(folder)) for word in words.split()])
        errors = capsys.readouterr().err
        assert (code, errors.count("\n")) == (2, 1), errors
        assert f"{str(link).encode('unicode_escape').decode()}: a link" in errors
        assert link.is_symlink()
        assert not Path("out").exists()


@pytest.mark.parametrize("kind", ["run", "export"])
def test_load_refuses_a_link_by_its_name(kind, outside):
    for number, (name, target) in enumerate(links_of(kind, outside)):
        folder = MADE[kind](Path("runs", str(number)))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
        with pytest.raises(RunError, match="a link, which is refused"):
            subquad.load(folder)


def test_what_is_neither_a_file_nor_a_folder_is_refused(tmp_path, capsys):
    """Each of them was opened, and a pipe waited for, before."""
    folder = a_run(tmp_path / "run")
    os.mkfifo(folder / "metrics.jsonl")
    assert main(["report", str(folder)]) == 2
    assert "metrics.jsonl: neither a file nor a folder" in capsys.readouterr().err
    (folder / "metrics.jsonl").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("run/stop")  # a longer name would not fit an address
        assert main(["report", str(folder)]) == 2
    assert "stop: neither a file nor a folder" in capsys.readouterr().err


def test_the_folder_that_the_user_names_may_be_a_link(tmp_path):
    folder = a_run(tmp_path / "run")
    Path("newest").symlink_to("run")
    assert enter(Path("newest")) == folder
    assert enter(Path("run")) == Path("run")


@pytest.fixture
def trained(tmp_path) -> Path:
    """A run that was stopped at its thirtieth step, with two checkpoints."""
    study = start(load_study(str(written(tmp_path))), tmp_path)
    assert run_here(study.runs[0], stopped_at(30)) == "stopped"
    return only_run(tmp_path)


def written(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize("name", ["attempts.jsonl", "metrics.jsonl", "checkpoints", "plan.json"])
def test_a_link_that_comes_after_the_look_is_not_followed(name, trained, outside):
    run = reopen(trained).runs[0]
    before = (trained / name).rename(trained / f"{name}.before")
    (trained / name).symlink_to(outside if before.is_dir() else outside / "kept")
    if name == "plan.json":  # replaced whole, as nothing is read of it
        assert run_here(run) == "finished"
        assert not (trained / name).is_symlink()
        return
    with pytest.raises(RunError, match=f"{name}: a link"):
        run_here(run)


def test_another_runs_checkpoints_are_not_pruned_through_a_link(trained, tmp_path, monkeypatch):
    """Also where the checkpoints are kept elsewhere, in a folder that only the experiment names."""
    kept = sorted(path.name for path in (trained / "checkpoints").iterdir())
    assert kept
    storage = tmp_path / "storage"
    theirs = start(
        load_study(str(written(tmp_path)), ["train.epochs=1", f"resources.storage={storage}"]),
        tmp_path,
    ).folder
    below = storage / theirs.relative_to(tmp_path)
    below.mkdir(parents=True)
    (below / "checkpoints").symlink_to(trained / "checkpoints")
    with pytest.raises(RunError, match="checkpoints: a link"):
        run_here(reopen(theirs).runs[0])
    monkeypatch.setattr(disk, "_held", set())
    with pytest.raises(RunError, match="checkpoints: a link"):
        run_here(reopen(theirs).runs[0])
    assert sorted(path.name for path in (trained / "checkpoints").iterdir()) == kept


def test_nothing_below_an_open_folder_is_reached_through_a_link(tmp_path, outside):
    folder = a_run(tmp_path / "run")
    disk.held(folder)
    (folder / "file").symlink_to(outside / "kept")
    (folder / "deep").symlink_to(outside)
    for act in (
        lambda: append_line(folder / "file", {}),
        lambda: disk.opened(folder / "file"),
        lambda: disk.opened(folder / "deep" / "kept"),
        lambda: append_line(folder / "deep" / "new", {}),
        lambda: write_text(folder / "deep" / "new", ""),
        lambda: write_text(folder / "deep" / "more" / "new", ""),
        lambda: put({folder / "deep" / "new": b""}),
        lambda: disk.make_folder(folder / "deep" / "new"),
        lambda: disk.make_folder(folder / "deep" / "new" / "new", exist_ok=True),
        lambda: disk.delete(folder / "deep" / "kept"),
        lambda: disk.rename(folder / "deep" / "kept", folder / "kept"),
        lambda: disk.rename(folder / EXPERIMENT, folder / "deep" / "kept"),
        lambda: remove_tree(folder / "deep" / "kept"),
    ):
        with pytest.raises(RunError, match=r"(file|deep): a link"):
            act()
    assert (folder / EXPERIMENT).read_text() == SMALL


def test_a_link_itself_is_replaced_and_deleted(tmp_path, outside):
    write_text(tmp_path / "home2" / "file", "")
    for name, target in (("file", outside / "kept"), ("folder", outside)):
        (tmp_path / name).symlink_to(target)
        remove_tree(tmp_path / name)
        assert not (tmp_path / name).is_symlink()
    (tmp_path / "file").symlink_to(outside / "kept")
    write_text(tmp_path / "file", "own")
    assert (tmp_path / "file").read_text() == "own"


def test_the_ledger_beside_all_runs_is_not_appended_to_through_a_link(tmp_path, outside):
    (tmp_path / "test-openings.jsonl").symlink_to(outside / "kept")
    with pytest.raises(RunError, match=r"test-openings\.jsonl: a link"):
        append_line(tmp_path / "test-openings.jsonl", {})


def test_a_second_name_of_a_file_is_not_appended_to(tmp_path):
    (tmp_path / "theirs").write_bytes(CANARY)
    os.link(tmp_path / "theirs", tmp_path / "attempts.jsonl")
    append_line(tmp_path / "attempts.jsonl", {})
    assert (tmp_path / "theirs").read_bytes() == CANARY
    assert (tmp_path / "attempts.jsonl").read_bytes().startswith(CANARY)


def test_what_is_made_follows_the_umask_and_no_temporary_name_is_like_another(tmp_path):
    before = os.umask(0o077)
    try:
        write_text(tmp_path / "a" / "text", "")
        append_line(tmp_path / "a" / "lines", {})
        disk.make_folder(tmp_path / "a" / "folder")
        with disk.opened(tmp_path / "a" / "new", "xb"):
            pass
    finally:
        os.umask(before)
    loose = [
        path
        for path in (tmp_path / "a", *(tmp_path / "a").iterdir())
        if stat.S_IMODE(path.stat().st_mode) & 0o77
    ]
    assert loose == []
    assert len({disk.temporary_beside(tmp_path / "a") for _ in range(100)}) == 100


def test_a_temporary_file_is_gone_after_an_error(tmp_path):
    def breaks_off() -> None:
        with disk.replacing(tmp_path / "text") as stream:
            stream.write(CANARY)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        breaks_off()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
