"""What a job brings to a cluster: packages, the resolved experiment, and the command that it runs;
and what it does there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.train import resume_command
from subquad.cli.tune import is_of_search, search_options, tune_command
from subquad.errors import ConfigError, RunError
from subquad.output.terminal import print_line
from subquad.ray.results import leave_results
from subquad.ray.upload import JOB, add_file, add_packages, check_packages
from subquad.record.files import find_file, flatten
from subquad.record.models import Owner
from subquad.record.names import OWNER

if TYPE_CHECKING:
    from subquad.experiment import Study


def fill_job(
    folder: Path, base: click.Command, plugin: Sequence[str], given: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Make the folder that is sent, of packages and experiment. Returns the job's name, and the
    command that it runs.
    """
    (folder / JOB).mkdir(parents=True)
    if left_out := add_packages(plugin, folder):
        names = ", ".join(left_out)
        print_line(
            f"not sent, as they may be data or secrets (a wheel sends all): {names}", err=True
        )
    check_packages(folder)
    with _importable(folder):
        study = _study_of(base, given, folder)
        job = f"{study.name if study else 'resume'}-{secrets.token_hex(3)}"
        words = _words(base, given, folder, study, job)
    if not list(folder.glob("subquad-*.dist-info")):
        add_packages(["subquad"], folder)
    return job, words


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Plugins of the folder are found in this process, before those that are installed here."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


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
        settings = {name: value for name, value in _chosen(given).items() if name != "jobs"}
        own, options = search_options(own, settings)
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
                    f"{key}: holds a secret, which would be sent and kept in run "
                    "folders; set it in the environment "
                    "of the cluster's nodes, as in MLFLOW_TRACKING_PASSWORD"
                )


def _words(
    base: click.Command, given: Mapping[str, Any], folder: Path, study: Study | None, job: str
) -> list[str]:
    """The command as it is called on the head node, where the working directory is the root of
    the runs.
    """
    words = [str(base.name)]
    if study:
        words += [f"jobs/{job}/experiment.yaml"]
        words += [
            text for text in given["overrides"] if base is tune_command and is_of_search(text)
        ]
    for param in base.params:
        value = _chosen(given).get(str(param.name))
        if value is None:
            continue
        if isinstance(param, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(param.opts[0])
        else:
            for address in value if isinstance(value, tuple) else (value,):
                words += [param.opts[0], _sent(str(address), folder, job)]
    return words


def _sent(value: str, folder: Path, job: str) -> str:
    """An option's value, with each space or list of points that is a file here sent along."""
    parts = value.split("+")
    for number, part in enumerate(parts):
        if part.endswith((".yaml", ".yml")) and Path(part).is_file():
            parts[number] = (
                f"jobs/{job}/{add_file(Path(part).name, Path(part).read_bytes(), folder)}"
            )
    return "+".join(parts)


def do_job(job: str, root: Path, words: Sequence[str]) -> int:
    """Run a job's command on the head node, in the folder that was sent. Returns its exit code.

    Args:
        job: its name.
        root: of the runs.
        words: the command.
    """
    from subquad.cli.main import main
    from subquad.experiment.strict_yaml import parse_yaml, read_text
    from subquad.record.trust import give, trust_folder

    sent, begun = Path.cwd(), time.time() - 1
    check_packages(sent)
    root.mkdir(parents=True, exist_ok=True)
    os.chdir(root)
    with suppress(FileNotFoundError):
        shutil.copytree(sent / JOB, Path("jobs", job))
    # what it names was checked where it was sent from
    experiment = Path("jobs", job, "experiment.yaml")
    if experiment.exists():
        name = str(experiment)
        give(parse_yaml(read_text(experiment, name), name).data)
        trust_folder(experiment.parent, always=False)
    try:
        return main([*words])
    finally:
        mine = Owner(pid=os.getpid(), host=os.uname().nodename)
        owners = Path("runs").glob(f"*/*/{OWNER}")
        new = [path for path in owners if path.stat().st_mtime >= begun]
        folders = [path.parent for path in new if find_file(Owner, path.parent) == mine]
        try:
            leave_results(job, folders)
        except (OSError, RunError) as error:
            print_line(f"results cannot be fetched: {error}", err=True)
