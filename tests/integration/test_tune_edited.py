"""`subquad resume` of a folder that was edited or damaged: one line, nothing trained,
nothing written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import cli
from small_run import SMALL
from wheels import MEAN

from subquad.cli.main import main
from subquad.record.files import read_json, write_json
from subquad.record.trust import trust_folder

LONG = "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}\ntrain: {epochs: 3,"
SHORT = "mixer: ./mine.py:Mean\ntrain: {steps: 4, eval_every_epochs: null,"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a search that ended."""
    place = tmp_path_factory.mktemp("ended")
    (place / "small.yaml").write_text(SMALL.replace(LONG, SHORT))
    (place / "mine.py").write_text(MEAN)
    (place / "space.yaml").write_text("dims: {train.lr: {choice: [1e-4, 1e-3, 1e-2]}}")
    cli(["trust", "."], place)
    cli(
        [
            "tune",
            "small.yaml",
            "--space",
            "./space.yaml",
            "--sampler",
            "grid",
            "--local",
            "--jobs",
            "1",
            "final.seeds=1",
        ],
        place,
    )
    (folder,) = (place / "runs" / "small-search").iterdir()
    return folder


@pytest.fixture
def search(ended: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    copy = Path(shutil.copytree(ended, tmp_path / ended.name))
    trust_folder(copy, always=False)
    return copy


def resume(search: Path) -> int:
    return main(["resume", str(search), "--local", "--jobs", "1"])


def trial(search: Path, *, won: bool) -> Path:
    """The trial that won, or one that did not."""
    best = (read_json(search / "search.json") or {})["candidates"][0]["best"]["number"]
    return search / "trials" / "small" / f"{best if won else (best + 1) % 3:05d}"


def contents(search: Path) -> dict[str, bytes]:
    """All files but those that say who works on the folder."""
    files = (
        path
        for path in sorted(search.rglob("*"))
        if path.is_file() and path.name not in ("lock", "owner.json")
    )
    return {str(path.relative_to(search)): path.read_bytes() for path in files}


def runs_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files of a study but its report, which says how many trials there were."""
    return {name: content for name, content in files.items() if not name.startswith("report.")}


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(search: Path) -> None:
        text = (search / name).read_text()
        assert old in text
        (search / name).write_text(text.replace(old, new))

    return edit


def halved(search: Path) -> None:
    text = (search / "search.yaml").read_text()
    (search / "search.yaml").write_text(text[: len(text) // 2])


def renamed(edit: Callable[[Path], None]) -> Callable[[Path], None]:
    """An edit of a folder whose name no longer has its hash; the folder is a link to it then."""

    def rename(search: Path) -> None:
        edit(search)
        os.rename(search, search.with_name("renamed"))
        search.symlink_to(search.with_name("renamed"))

    return rename


def slowed(search: Path) -> None:
    path = trial(search, won=False) / "result.json"
    write_json(path, (read_json(path) or {}) | {"seconds": 1e6})


def unsealed(*, won: bool) -> Callable[[Path], None]:
    """A trial is gone, and nothing says that it was there."""

    def edit(search: Path) -> None:
        shutil.rmtree(trial(search, won=won))
        summary = read_json(search / "search.json") or {}
        summary["files"] = {}
        write_json(search / "search.json", summary)

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            replaced("search.yaml", "steps: 4", "steps: 8"),
            "search.yaml: changed since the search was started; put it",
        ),
        (
            replaced("search.yaml", "measured: {}\n", ""),
            "search.yaml: changed since the search was started",
        ),
        (halved, "search.yaml: changed since the search was started"),
        (
            renamed(replaced("search.yaml", "measured: {}\n", "")),
            "renamed/search.yaml: damaged: KeyError: 'measured'",
        ),
        (renamed(halved), "renamed/search.yaml:"),
        (
            lambda search: (trial(search, won=True) / "trial.json").write_text("{"),
            "trial.json: is no JSON object",
        ),
        (
            lambda search: write_json(trial(search, won=False) / "trial.json", {}),
            "trial.json: candidate: Field req",
        ),
        (
            lambda search: shutil.rmtree(trial(search, won=False)),
            "result.json is missing; put it back as it was",
        ),
        (
            lambda search: (trial(search, won=False) / "result.json").unlink(),
            "result.json is missing; put it back as it",
        ),
        (
            slowed,
            "result.json has changed: ",
        ),
        (
            lambda search: shutil.rmtree(search / "trials"),
            "trials/small/00000/result.json is missing",
        ),
        (unsealed(won=True), "final study began with other winners than the trials"),
        (
            lambda search: (search / "trials" / "small" / "00001.bak").mkdir(),
            "00001.bak: not a trial's folder; move",
        ),
    ],
)
def test_it_is_refused_in_one_line_and_left_as_it_is(search, capsys, damage, message):
    damage(search)
    before = contents(search.resolve())
    assert resume(search) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert contents(search.resolve()) == before


def test_the_source_of_a_mixer_is_compared_with_that_of_the_trials(ended, search, capsys):
    source = ended.parents[2] / "mine.py"
    source.write_text(f"{MEAN}# edited\n")
    try:
        assert resume(search) == 2
    finally:
        source.write_text(MEAN)
    assert f"changed since the run was started: {source}" in capsys.readouterr().err


def test_no_trial_is_started_once_the_test_split_was_opened(search, capsys):
    """A trial that did not win is gone: before the final study its point would be tried again."""
    final, before = read_json(search / "search.json"), contents(search / "final")
    unsealed(won=False)(search)
    assert resume(search) == 0, capsys.readouterr()
    assert len(list((search / "trials" / "small").iterdir())) == 2
    assert runs_of(contents(search / "final")) == runs_of(before)
    (now,), (then,) = (
        (read_json(search / "search.json") or {})["candidates"],
        (final or {})["candidates"],
    )
    assert (now["best"], now["over"]) == (then["best"], then["over"])
