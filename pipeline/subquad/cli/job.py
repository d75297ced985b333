"""What a job brings to a cluster: packages, the resolved experiment, and the command that it runs;
and what it does there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.train import resume_command
from subquad.cli.tune import is_of_search, search_options, tune_command
from subquad.errors import ConfigError, UserError
from subquad.output.terminal import print_line
from subquad.ray.upload import JOB, add_file, add_wheels, check_packages
from subquad.record.files import find_file, flatten
from subquad.record.models import Owner
from subquad.record.names import OWNER

if TYPE_CHECKING:
    from subquad.experiment import Study

RUN_OF_JOB = "the job's run: "
"""Begins the line in which a job says what it drives, from its root."""


def fill_job(
    folder: Path, base: click.Command, wheels: Sequence[str], given: Mapping[str, Any]
) -> tuple[str, list[str], str | None]:
    """Make the folder that is sent, of wheels and experiment. Returns the job's name, the command
    that it runs, and the storage of its runs.
    """
    (folder / JOB).mkdir(parents=True)
    add_wheels(wheels, folder)
    check_packages(folder)
    sys.path.insert(0, str(folder))  # its plugins are found before those that are installed here
    try:
        study = _study_of(base, given, folder)
        job = f"{study.name if study else 'resume'}-{secrets.token_hex(3)}"
        words = _words(base, given, folder, study, job)
    finally:
        sys.path.remove(str(folder))
    if study:
        return job, words, study.runs[0].experiment.resources.storage
    storage, _, _ = given["run"].rpartition("/runs/")
    return job, words, storage or None


def _study_of(base: click.Command, given: Mapping[str, Any], folder: Path) -> Study | None:
    """The study that a job is about, checked here and written into its folder; None where it goes
    on with another.

    Raises:
        UserError: it cannot be done as it is, or holds a secret.
    """
    from subquad.experiment import load_given
    from subquad.record.trust import note_place
    from subquad.search.settings import Settings

    if base is resume_command:
        return None
    searching = base is tune_command
    own, options = given["overrides"], dict[str, Any]()
    if searching:
        own, options = search_options(
            own, {name: value for name, value in _chosen(given).items() if name != "jobs"}
        )
    study = load_given(given["target"], own)
    refuse_secrets(study)
    for run in study.runs:  # so that what is fetched of them may ask these places
        for place in run.outside:
            note_place(place)
    if searching:
        from subquad.search.search import plan_search

        plan_search(study, Settings(**options))
    text = study.text
    sources = {source.path: source for run in study.runs for source in run.sources.values()}
    for path in sorted(sources, key=len, reverse=True):
        placed = add_file(Path(path).name, sources[path].text.encode(), folder)
        text = text.replace(f"{path}:", f"./{placed}:")
    (folder / JOB / "experiment.yaml").write_text(text, encoding="utf-8")
    return study


def _chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in given.items()
        if value not in (None, (), False) and key not in ("target", "overrides")
    }


def refuse_secrets(study: Study) -> None:
    """What is sent lies on the cluster's disks, and in its run folders; there, secrets of the
    nodes' environment are.

    Raises:
        ConfigError: a setting holds a password, token or key.
        UserError: only the experiment's file names the address that it is tracked at.
    """
    from subquad.addresses import without_secrets
    from subquad.tracking.publisher import given_store

    for run in study.runs:
        if address := run.experiment.tracking.address:
            given_store(address, Path.cwd())
        for key, value in flatten(run.experiment.model_dump(mode="json")).items():
            if without_secrets(value, key) != value:
                raise ConfigError(
                    f"{key}: holds a secret, which would be sent and kept in run folders; set it "
                    "in the environment of the cluster's nodes, as in MLFLOW_TRACKING_PASSWORD"
                )


def _words(
    base: click.Command, given: Mapping[str, Any], folder: Path, study: Study | None, job: str
) -> list[str]:
    """The command as it is called on the cluster, where the working directory is the root of the
    runs.
    """
    words = [str(base.name)]
    if study:
        words += [
            f"jobs/{job}/experiment.yaml",
            *(filter(is_of_search, given["overrides"]) if base is tune_command else ()),
        ]
    chosen = _chosen(given)
    for param in base.params:
        value = chosen.get(str(param.name))
        if value is None:
            continue
        if isinstance(param, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(param.opts[0])
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [param.opts[0], _sent(str(each), folder, job)]
    return words


def _sent(value: str, folder: Path, job: str) -> str:
    """An option's value, with each space or list of points that is a file here sent along."""
    parts = []
    for part in value.split("+"):
        path = Path(part)
        if path.suffix in (".yaml", ".yml") and path.is_file():
            part = f"jobs/{job}/{add_file(path.name, path.read_bytes(), folder)}"
        parts.append(part)
    return "+".join(parts)


def do_job(job: str, root: Path, sender: str, words: Sequence[str]) -> int:
    """Run a job's command on the cluster, in the folder that was sent; where its process is
    killed, it goes on in another one. Returns its exit code.

    Args:
        job: its name.
        root: of the runs.
        sender: version of subquad that the command is for.
        words: the command.

    Raises:
        UserError: here is another version.
    """
    from subquad.cli.main import main
    from subquad.experiment.strict_yaml import read_yaml
    from subquad.record.trust import give, trust_folder

    if (own := version("subquad")) != sender:
        raise UserError(
            f"this node has version {own} of subquad, the job is from {sender}: install the "
            "same on all nodes, or send it with --plugin subquad-VERSION.whl"
        )
    sent = Path.cwd()
    check_packages(sent)
    root.mkdir(parents=True, exist_ok=True)
    os.chdir(root)
    with suppress(FileNotFoundError):
        shutil.copytree(sent / JOB, Path("jobs", job))
    # what it names was checked where it was sent from
    experiment = Path("jobs", job, "experiment.yaml")
    if experiment.exists():
        give(read_yaml(experiment))
        trust_folder(experiment.parent, always=False)
    code = 0
    place = ""
    for _ in range(_MOST_STARTS):
        sys.stdout.flush()
        driver = os.fork()
        if not driver:
            return main([*words])
        code, place = _watched(driver, place)
        if code >= 0:
            return code
        name = signal.Signals(-code).name
        print_line(f"the driver was killed by {name}; another one goes on", err=True)
        if place:
            words = ["resume", place]
    return 128 - code


_MOST_STARTS = 10
_LOOK_SECONDS = 0.5


def _watched(driver: int, place: str) -> tuple[int, str]:
    """Wait for the end of a driver's process. Returns its exit code, and the folder of what it
    drove, which is told once it is known.

    Args:
        place: what is known of that before.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Ray sends it to both
    mine = Owner(pid=driver, host=os.uname().nodename)
    while True:
        ended, status = os.waitpid(driver, os.WNOHANG)
        for path in () if place else Path("runs").glob(f"*/*/{OWNER}"):
            if find_file(Owner, path.parent) == mine:
                place = str(path.parent)
                print_line(f"{RUN_OF_JOB}{place}")
        if ended:
            return os.waitstatus_to_exitcode(status), place
        time.sleep(_LOOK_SECONDS)
