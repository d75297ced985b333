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
from subquad.record.names import JOURNAL
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
            "sampler.seed=2",
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
    path = trial(search, won=True) / "result.json"
    write_json(path, (read_json(path) or {}) | {"seconds": 1e6})


def cut(search: Path, lines: int) -> None:
    """The journal as it was after some of its lines: one where a trial begins, one at its end."""
    path = search / JOURNAL
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def unwon(search: Path) -> None:
    """The end of the trial that won is gone, and of all that came after it."""
    cut(search, 2 * int(trial(search, won=True).name) + 1)


def without_a_line(search: Path) -> None:
    path = search / JOURNAL
    first, _, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, *others]))


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
            replaced(JOURNAL, '"finished"', '"failed"'),
            "trials.jsonl:2: damaged: ValueError: it",
        ),
        (without_a_line, "trials.jsonl:2: damaged: ValueError: was line 3; put it back as it was"),
        (unwon, "final study began with other winners than the trials"),
        (lambda search: (search / JOURNAL).unlink(), "final study began with other winners than"),
        (
            lambda search: (
                (search / JOURNAL).rename(search / "other")
                and (search / JOURNAL).symlink_to("other")
            ),
            "trials.jsonl: a link, which is refused among the files of runs: remove it",
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


@pytest.mark.parametrize("edit", [slowed, lambda search: shutil.rmtree(search / "trials")])
def test_what_a_trial_came_to_stays_whatever_becomes_of_its_folder(search, capsys, edit):
    before = read_json(search / "search.json")
    edit(search)
    assert resume(search) == 0, capsys.readouterr()
    now = read_json(search / "search.json")
    assert now["candidates"] == before["candidates"]


def test_a_trial_that_the_journal_does_not_know_is_not_trained_over(search, capsys):
    shutil.rmtree(search / "final")
    (search / JOURNAL).unlink()
    before = contents(search)
    assert resume(search) == 2
    errors = capsys.readouterr().err
    assert "trials.jsonl: does not know" in errors
    assert errors.count("\n") == 1
    assert contents(search / "trials") == {
        name.removeprefix("trials/"): content
        for name, content in before.items()
        if name.startswith("trials/")
    }


def test_no_trial_is_started_once_the_test_split_was_opened(search, capsys):
    """A trial that did not win is gone: before the final study its point would be tried again."""
    final, before = read_json(search / "search.json"), contents(search / "final")
    cut(search, 4)
    assert resume(search) == 0, capsys.readouterr()
    assert (search / JOURNAL).read_bytes().count(b"\n") == 4
    assert runs_of(contents(search / "final")) == runs_of(before)
    (now,), (then,) = (
        (read_json(search / "search.json") or {})["candidates"],
        (final or {})["candidates"],
    )
    assert (now["best"], now["over"]) == (then["best"], then["over"])
