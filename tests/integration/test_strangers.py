"""Every command is given what strangers make; docs/security.md says what it may then do.

Nothing of theirs runs, nothing leaves, nothing outside is touched, and each answer is one line.
"""

from __future__ import annotations

import csv
import re
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import click
import pytest
from damage import Said, call
from leaves import COMMANDS
from reach import Reach, reaches
from s3fs import S3FileSystem
from strangers import ESCAPES, FOLDERS, FORMULA, HOSTILE, SECRETS, Hostile, World, trained

from subquad.experiment import load_given
from subquad.experiment.components import resolve_unrun
from subquad.record import trust

RAYS_OWN = "ignore:ssl=None is deprecated:DeprecationWarning"
pytestmark = pytest.mark.filterwarnings(RAYS_OWN)
SOME = 6
"""CI gives each command every sixth hostile thing of a kind, each others; together they get all."""

NAMED = (
    "baseline budget compiler cost device driver_label exclude formats image job kind lengths "
    "match memory mixer name names only paper partition pruner rows sampler sender tables time uri "
    "words"
)
"""Parameters that take a name, or a few words."""
KINDS: dict[str, tuple[str, ...]] = {
    "target": ("experiment",),
    "targets": ("experiment", "folder"),
    "model": ("experiment", "folder"),
    "run": ("folder",),
    "runs": ("folder",),
    "folders": ("folder",),
    "ui root": ("folder",),
    "submit resume run": ("name",),
    "file": ("table",),
    "data": ("table",),
    "weights": ("weights",),
    "shards": ("pictures",),
    "source": ("pictures",),
    "labels": ("table",),
    "classes": ("table",),
    "space": ("space",),
    "points": ("points",),
    "protocol": ("protocol",),
    "check resume": ("records",),
    "new origin": ("name",),
    "overrides": ("setting",),
    "settings": ("setting",),
    "plugin": ("wheel",),
    "submit address": ("cluster",),
    "out": ("place",),
    "into": ("place",),
    "output": ("place",),
    "root": ("place",),
    "submit root": ("name",),
    "folder": ("place",),
    "markdown": ("place",),
    **dict.fromkeys(NAMED.split(), ("name",)),
    "address": (),  # of a Ray cluster that runs the user's code: it is trusted
}
"""What a parameter takes, by its name; with its command or group before it where that matters."""

WITHOUT = {
    "submit _job": "`submit` calls it on the head node, with what it has checked",
    "submit stop": "waits for the job; what it prints is that of `logs`",
}
WORDS: dict[str, tuple[str, ...]] = {
    "check": ("--only", "shapes"),
    "check resume": ("--all", "--json"),
    "data shard": ("--split", "train", "--jobs", "1"),
    "data index": ("--jobs", "1"),
    "sync": ("--timeout", "5"),
    "tune": ("--space", "optimizer", "--budget", "1-trials", "--dry-run"),
    "submit tune": ("--space", "optimizer", "--budget", "1-trials"),
    "bench step": ("--rounds", "1"),
    "bench mixers": ("--rounds", "1", "--lengths", "8", "--tokens", "8"),
    "diagnose": ("--samples", "1"),
    "swap": ("--new-weights",),
}
"""Options that keep a command quick."""
BENIGN: dict[str, Callable[[World], str]] = {
    "submit address": lambda world: world.dashboard.address,
    "file": lambda world: str(world.given / "data.csv"),
    "folder": lambda world: str(world.out / "new"),
    "into": lambda world: str(world.out),
    "job": lambda world: "small-3fa9c1",
    "kind": lambda world: "mixer",
    "mixer": lambda world: "identity",
    "model": lambda world: str(world.folder("plain")),
    "name": lambda world: "odd-mixer",
    "out": lambda world: str(world.out / "files"),
    "root": lambda world: str(world.out),
    "run": lambda world: str(world.folder("plain")),
    "runs": lambda world: str(world.folder("plain")),
    "folders": lambda world: str(world.folder("plain")),
    "submit resume run": lambda world: "runs/small/20260202-000000-bbbbbbbb",
    "submit root": lambda world: "/data/subquad",
    "shards": lambda world: str(world.given / "x.tar"),
    "source": lambda world: str(world.given),
    "target": lambda world: str(world.experiment()),
    "targets": lambda world: str(world.experiment()),
    "words": lambda world: "identity",
}
ALWAYS = ("address", "into", "out", "output", "root", "folder")
"""Options that are given each time, as they say where something is written or asked."""


def of(table: dict[str, Any], command: str, parameter: str) -> Any:
    """The entry of a parameter of this command, of its group, or of its name; None without one."""
    group = command.split()[0]
    names = (f"{command} {parameter}", f"{group} {parameter}", parameter)
    return next((table[name] for name in names if name in table), None)


def texts(command: click.Command) -> Iterator[click.Parameter]:
    """Parameters that take any text."""
    closed = (click.Choice, click.types.IntParamType, click.types.FloatParamType)
    for param in command.params:
        if not getattr(param, "is_flag", False) and not isinstance(param.type, closed):
            yield param


CASES = [(name, str(param.name)) for name, command in COMMANDS.items() for param in texts(command)]


def chosen(name: str, tried: str, every: int) -> Iterator[tuple[str, Hostile]]:
    """Hostile things for a parameter: all, or its share of those that are given to CI."""
    for kind in of(KINDS, name, tried):
        takers = [case for case in CASES if kind in (of(KINDS, *case) or ())]
        stride = min(every, len(takers))
        yield from list(HOSTILE[kind].items())[takers.index((name, tried)) % stride :: stride]


def words_of(world: World, name: str, tried: str, word: str) -> list[str]:
    """A command line with one hostile word."""
    command, words, arguments = COMMANDS[name], name.split(), []
    names = {param.name for param in command.params}
    if "local" in names:
        words.append("--local")
    for option in WORDS.get(f"{name} {tried}", WORDS.get(name, ())):
        if not option.startswith("--") or option.removeprefix("--") != tried:
            words.append(option)
    for param in command.params:
        benign = of(BENIGN, name, str(param.name))
        if param.name == tried:
            given = word
        elif benign and (param.required or param.name in ALWAYS):
            given = benign(world)
        else:
            continue
        if isinstance(param, click.Argument):
            arguments.append(given)
        else:
            words += [param.opts[0], given]
    return [*words, "--", *arguments] if arguments else words


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        patch.chdir(made.work)
        trained(made, call)
        yield made
    made.sink.stop()
    made.dashboard.stop()


def renewed(world: World) -> None:
    """Nothing that was trusted or imported before is."""
    world.renew()
    trust._here.clear()
    trust._given.clear()
    for name in [name for name in sys.modules if name.startswith("subquad_source_")]:
        del sys.modules[name]


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """What hangs is ended."""

    def stop(signum: int, frame: Any) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def steering(text: str) -> set[str]:
    """Characters of a text that do something else than to be seen."""
    others = set(text) - {"\n", "\t"}
    return {char for char in others if unicodedata.category(char) in ("Cc", "Cf", "Cs")}


def formulas(folder: Path) -> list[str]:
    """Cells of tables that a spreadsheet would work out."""
    found = []
    for path in folder.rglob("*.csv"):
        with path.open(newline="", encoding="utf-8") as stream:
            cells = [cell for row in csv.reader(stream) for cell in row]
        found += [cell for cell in cells if re.match(r"\s*[=+@＝]", cell)]
    return found


def wrong(
    world: World,
    said: Said,
    before: dict[str, Any],
    reach: Reach,
    *,
    trains: bool = False,
) -> Iterator[str]:
    """What a command must not have done.

    Args:
        said: its words, and what it answered.
        before: the world's state.
        reach: what docs/security.md says of it.
        trains: a stranger's experiment, so that its plugin files run.
    """
    yield from said.faults()
    if found := steering(said.out + said.err):
        yield f"prints {sorted(found)!r}"
    if len(said.err) > 10_000:
        yield f"says {len(said.err)} characters"
    if world.mark.exists() and not trains:
        yield "runs a file"
    requests = "\n".join(world.sink.asked)
    if requests and "requests for data" not in reach.sends:
        yield f"asks {requests[:100]!r}"
    if any(secret in requests for secret in SECRETS.values()):
        yield f"gives a secret away: {requests[:300]!r}"
    after = world.state(given=reach.writes == "–")
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    own = [world.given] if reach.writes != "–" else []
    own += [world.storage] if "storage" in reach.sends and "--dry-run" not in said.words else []
    changed = [name for name in changed if not name.startswith(tuple(map(str, own)))]
    if changed:
        yield f"touches {sorted(changed)[:3]}"
    if found := formulas(world.out):
        yield f"writes the formula {found[0][:60]!r}"


def usage_of(param: click.Parameter, command: click.Command) -> str:
    if not isinstance(param, click.Argument):
        return param.opts[0]
    return re.findall("[A-Z]+", param.make_metavar(click.Context(command)))[0]


@pytest.mark.parametrize(
    "every",
    [SOME, pytest.param(1, marks=pytest.mark.extended)],
    ids=["some", "all"],
)
@pytest.mark.parametrize(("name", "tried"), CASES)
def test_what_strangers_make_is_only_looked_at(world: World, name: str, tried: str, every: int):
    command = COMMANDS[name]
    (param,) = (param for param in command.params if param.name == tried)
    reach, kinds = reaches()[name], of(KINDS, name, tried)
    assert kinds is not None, f"KINDS does not say what `subquad {name}` takes as {tried}"
    if name in WITHOUT:
        pytest.skip(WITHOUT[name])
    faults = []
    for thing, make in chosen(name, tried, every):
        renewed(world)
        words = words_of(world, name, tried, make(world))
        before = world.state(given=True)
        with in_time(60):
            outcome = call(*words)
        trains = usage_of(param, command) in reach.runs and "--dry-run" not in words
        for fault in wrong(world, outcome, before, reach, trains=trains):
            faults.append(f"{thing}: {fault}: {outcome.code} {outcome.err[:300]!r}")
        if trains and thing == "mixer in a file" and not world.mark.exists():
            faults.append(f"{thing}: does not run, so that what does not run it shows nothing")
    assert not faults, "\n".join(faults)


LOOKS = {
    "verify": "runs",
    "report": "runs",
    "runs": "folder",
    "eval": "run",
    "predict": "run",
    "export": "run",
    "sync": "folders",
    "diagnose": "targets",
}


@pytest.mark.parametrize("thing", ["storage", "data", "weights"])
def test_what_looks_asks_no_place_that_a_folder_alone_names(world: World, thing: str):
    for name, tried in LOOKS.items():
        renewed(world)
        outcome = call(*words_of(world, name, tried, FOLDERS[thing](world)))
        assert not world.sink.asked, (name, outcome)
    renewed(world)
    S3FileSystem.clear_instance_cache()  # it remembers the address of another test's server
    folder = FOLDERS[thing](world)
    load_given(f"{folder}/experiment.yaml", resolve=resolve_unrun)  # as the user's own TARGET
    call("verify", folder)
    assert world.sink.asked, "shows nothing: what the user trained with is not asked either"


def test_what_a_command_must_not_do_is_found(world: World):
    """Each check of `wrong` by something that it is there for."""
    renewed(world)
    before = world.state(given=True)
    reach = Reach(reads="nothing")
    fine = Said(("odd",), 2, "", "subquad: no\n")
    assert list(wrong(world, fine, before, reach)) == []
    world.mark.touch()
    (world.home / "new").touch()
    (world.given / "new").touch()
    (world.out / "table.csv").write_text(f"a,{FORMULA}\n")
    secret = {"Authorization": f"Bearer {SECRETS['MLFLOW_TRACKING_TOKEN']}"}
    with pytest.raises(HTTPError):
        urlopen(Request(world.sink.address, headers=secret))
    outcome = Said(("odd",), 2, ESCAPES, "Traceback\n" * 2000)
    found = list(wrong(world, outcome, before, reach))
    (world.home / "new").unlink()
    starts = ["Traceback", "not", "prints", "says", "runs", "asks", "gives", "touches", "writes"]
    assert [fault.split()[0] for fault in found] == starts
    assert "given/new" in found[-2]
    assert "home/new" in found[-2]
