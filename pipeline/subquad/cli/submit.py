"""`subquad submit`: train and search on a cluster, by Ray Jobs."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.job import RUN_OF_JOB, do_job, fill_job
from subquad.cli.train import resume_command, train_command
from subquad.cli.tune import tune_command
from subquad.errors import Interrupted, UserError, escaped
from subquad.experiment.folder import local_folder
from subquad.output.terminal import (
    LocalPath,
    Matching,
    print_json,
    print_line,
    print_table,
    print_text,
)
from subquad.ray.upload import JOB, check_packages, pack
from subquad.record.stores import root_of
from subquad.suggest import to_paste

if TYPE_CHECKING:
    from subquad.ray.jobs import JobDetails, Jobs

_HERE_ONLY = {"address", "as_json", "debug", "dry_run", "local", "root"}
"""Options of `train`, `tune` and `resume` that a job has in another way, or not at all."""
_ROOT = "~/subquad"

_ADDRESS = [
    click.Option(
        ["--address"],
        metavar="URL",
        help="The dashboard of the cluster, as in http://127.0.0.1:8265.  [default: "
        "RAY_API_SERVER_ADDRESS, or RAY_ADDRESS where it begins with http]",
    ),
    click.Option(
        ["--insecure"],
        is_flag=True,
        help="Allow a cluster that asks for no token, or a token sent without "
        "encryption over a network.",
    ),
]
_JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="Print one JSON object at the end, and nothing else."
)
_INTO = click.Option(
    ["--into"],
    type=LocalPath(file_okay=False, path_type=Path),
    default=".",
    help="Folder here that gets runs/ with the results from storage.  [default: this one]",
)
_SUBMITTING = [
    click.Option(
        ["--plugin"],
        multiple=True,
        metavar="WHEEL",
        help="A wheel to send, a .whl file. May be given several times.",
    ),
    click.Option(
        ["--detach"],
        is_flag=True,
        help="Return when the job is accepted. Default: follow it to its end.",
    ),
    click.Option(
        ["--root"],
        default=_ROOT,
        show_default=True,
        metavar="DIR",
        help="Folder for runs/ on the head node; or an address of storage, which also "
        "gets checkpoints and a copy.",
    ),
    click.Option(
        ["--driver-label"],
        type=Matching("label", r"[\w./-]+=[\w.-]+", "KEY=VALUE, as in `ray start --labels`"),
        help="Start the job on a node with this label of `ray start --labels`. Default: the head "
        "node.",
    ),
    _INTO,
    *_ADDRESS,
    _JSON,
]


@click.group("submit")
def submit_command() -> None:
    """Train and search on a Ray cluster, from here.

    A job gets the wheels given by --plugin and the resolved experiment, on every node, which has
    the same subquad. Nothing else is sent: no data, no .git, no environment variable. Paths of data
    are paths on the cluster.

    The token is Ray's: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token. Reach a cluster
    through a tunnel, as in `ssh -L 8265:127.0.0.1:8265 HEAD`: over plain http to another host the
    token could be read on the way.

    \b
    subquad submit train quickstart --address http://127.0.0.1:8265
    subquad submit train experiment.yaml train.lr=3e-4 --detach \\
        --plugin dist/my_mixer-1.0-py3-none-any.whl
    subquad submit tune experiment.yaml --space auto --budget 40-trials
    subquad submit status
    """


def _connect(address: str | None, insecure: bool) -> Jobs:
    environ = os.environ
    named = environ.get("RAY_API_SERVER_ADDRESS") or environ.get("RAY_ADDRESS", "")
    if address is None and named.startswith("http"):
        address = named
    if address is None:
        raise UserError(
            "--address: none given, and RAY_API_SERVER_ADDRESS is not set; write http://HOST:8265"
        )
    try:
        from subquad.ray.jobs import Jobs
    except ImportError as error:
        raise UserError(
            f"Ray is not installed ({error.name}): pip install 'subquad[ray]'"
        ) from error
    return Jobs(address, insecure=insecure)


def _submitted(
    base: click.Command,
    plugin: tuple[str, ...],
    detach: bool,
    root: str,
    driver_label: str | None,
    into: Path,
    as_json: bool,
    address: str | None,
    insecure: bool,
    **given: Any,
) -> int:
    """Hand a command in as a job, and follow it. Returns the job's exit code."""
    root, given = _placed(root, given)
    with tempfile.TemporaryDirectory(prefix="subquad-job-") as scratch:
        folder = Path(scratch, "job")
        archive = Path(scratch, "job.zip")
        job, words, storage = fill_job(folder, base, plugin, given)
        packages = check_packages(folder)
        files = [path.name for path in (folder / JOB).rglob("*") if path.is_file()]
        subquad = dict(map(str.split, packages)).get("subquad", version("subquad"))
        jobs = _connect(address, insecure)
        size = pack(folder, archive) / 1e6
        sent = ", ".join([*packages, *files])
        print_line(f"uploads {size:.1f} MB to {jobs.address}: {sent}", err=as_json)
        jobs.submit(
            archive,
            ["submit", "_job", job, root, subquad, *words],
            job,
            {"subquad": subquad, "command": shlex.join(words)},
            dict([driver_label.split("=")]) if driver_label else {},
        )
    print_line(f"job {job} on {jobs.address}, files in {root} on its node", err=as_json)
    again = _reached(address, insecure)
    if not detach:
        return _report_outcome(jobs, _followed(jobs, job, again, as_json), into, storage, as_json)
    if as_json:
        click.echo(json.dumps({"job": job}))
    else:
        print_line(f"follow it with: {to_paste('submit', 'logs', job, '-f', *again)}")
    return 0


def _placed(root: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The folder on the head node, and the options with the storage that an address stands for.

    Raises:
        UserError: it is neither an address nor a whole path, or an address has no effect.
    """
    _, storage = root_of(root)
    if storage and "overrides" not in given:
        raise UserError(f"--root {root}: a run goes on where its own storage is; leave it out")
    if storage:
        return _ROOT, {**given, "overrides": (*given["overrides"], *storage)}
    if not root.startswith(("/", "~")):
        raise UserError(
            f"--root {root}: must be a whole path on the head node, as in /data/subquad or {_ROOT}"
        )
    return root, given


def _reached(address: str | None, insecure: bool) -> list[str]:
    """The options with which another command reaches the same cluster."""
    return [*(["--address", address] if address else ()), *(["--insecure"] if insecure else ())]


def _followed(jobs: Jobs, job: str, again: Sequence[str], as_json: bool) -> JobDetails:
    """Show what a job says until it ends; Ctrl-C leaves it alone."""
    try:
        return jobs.follow(job, lambda text: print_text(text, err=as_json))
    except KeyboardInterrupt:
        follow = to_paste("submit", "logs", job, "-f", *again)
        end = to_paste("submit", "stop", job, *again)
        raise Interrupted(
            signal.SIGINT, f"job {job} goes on; follow it with: {follow}; end it with: {end}"
        ) from None


def _report_outcome(
    jobs: Jobs, info: JobDetails, into: Path, storage: str | None, as_json: bool
) -> int:
    """Say what became of a job, and copy the files of its run from storage. Returns the job's exit
    code.
    """
    code = _exit_code(info)
    job = info.submission_id or ""
    place = _place_of(jobs, job)
    folders: list[str] = []
    if info.driver_exit_code is None and info.status.value == "FAILED":
        message = info.message or "?"
        print_line(f"subquad: job {job} did not run: {escaped(message.splitlines()[0])}", err=True)
    elif place and storage and "://" in storage:
        folders.append(
            str(local_folder(f"{storage.rstrip('/')}/{place}", into, partial(print_line, err=True)))
        )
    elif place:
        print_line(f"its files are in {place} below --root on the head node", err=True)
    if as_json:
        print_json({"job": job, "status": info.status.value, "exit_code": code, "fetched": folders})
    else:
        print_line(f"job {job}: {info.status.value}")
        _tell_how_to_go_on(info, place)
    return code


_PLACE = re.compile(rf"^{RUN_OF_JOB}(runs/\w[\w.-]*/\w[\w.-]*)$", re.MULTILINE)
"""The cluster may say anything, so only such a place is taken from it."""


def _place_of(jobs: Jobs, job: str) -> str:
    """The run, study or search of a job, below its root; "" where it has none."""
    found = _PLACE.search(jobs.logs(job))
    return found[1] if found else ""


def _tell_how_to_go_on(info: JobDetails, place: str) -> None:
    """With the run of a job that has ended without its result."""
    if place and info.status.is_terminal() and _exit_code(info):
        again = to_paste("submit", "resume", place)
        print_line(f"go on with: {again} (and --root, --plugin as before)", err=True)


def _exit_code(info: JobDetails) -> int:
    """The exit code of a job's command; of one that a signal ended as a shell has it."""
    if info.status.value == "SUCCEEDED":
        return 0
    if info.status.value == "STOPPED":
        return 128 + signal.SIGTERM
    code = info.driver_exit_code or 1
    return code if code > 0 else 128 - code


def _row_of(info: JobDetails) -> dict[str, Any]:
    """A job's row of the table of jobs."""
    accepted = ""
    minutes = ""
    if info.start_time:
        begun = info.start_time / 1e3
        ended = info.end_time / 1e3 if info.end_time else time.time()
        minutes = f"{(ended - begun) / 60:.1f}"
        with suppress(ValueError, OverflowError, OSError):  # a cluster may say any number
            accepted = datetime.fromtimestamp(begun, UTC).isoformat(" ", "milliseconds")
    return {
        "job": info.submission_id,
        "status": info.status.value,
        "exit_code": _exit_code(info) if info.status.is_terminal() else "",
        "accepted": accepted,
        "minutes": minutes,
        "command": (info.metadata or {}).get("command", ""),
    }


def _add_command(base: click.Command, help: str) -> None:
    """A command of `subquad` that a job can do, with its options but those of this machine."""
    params = [param for param in base.params if param.name not in _HERE_ONLY]
    params += _SUBMITTING
    submit_command.add_command(
        click.Command(base.name, params=params, callback=partial(_submitted, base), help=help)
    )


_add_command(
    train_command,
    """Train TARGET on a cluster; see `subquad train`.

    \b
    subquad submit train quickstart --detach
    """,
)
_add_command(
    tune_command,
    """Search the settings of TARGET on a cluster; see `subquad tune`.

    \b
    subquad submit tune quickstart --space auto+optimizer --budget 40-trials
    """,
)
_add_command(
    resume_command,
    """Go on with RUN, a folder below --root on the head node, or its address in storage.

    \b
    subquad submit resume runs/quickstart/20260101-101500-ab12cd34
    """,
)


@submit_command.command(
    "status", params=[click.Argument(["job"], required=False), *_ADDRESS, _JSON]
)
def _status_command(job: str | None, as_json: bool, **where: Any) -> None:
    """Show the jobs of a cluster, or JOB alone.

    \b
    subquad submit status --address http://127.0.0.1:8265
    """
    jobs = _connect(**where)
    chosen = [jobs.info(job)] if job else jobs.all()
    rows = [_row_of(info) for info in chosen]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("job", "status", "exit code", "accepted", "minutes", "command"),
        [[*row.values()] for row in rows],
    )
    if job:
        _tell_how_to_go_on(chosen[0], _place_of(jobs, job))


_JOB_ARGUMENT = click.Argument(["job"])
_FOLLOW = click.Option(["-f", "--follow"], is_flag=True, help="Go on until the job ends.")


@submit_command.command("logs", params=[_JOB_ARGUMENT, _FOLLOW, *_ADDRESS])
def _logs_command(job: str, follow: bool, **where: Any) -> int:
    """Print what JOB has said. With -f the exit code is the job's.

    \b
    subquad submit logs quickstart-3fa9c1 -f
    """
    jobs = _connect(**where)
    if follow:
        info = _followed(jobs, job, _reached(**where), False)
    else:
        print_text(jobs.logs(job))
        info = jobs.info(job)
    _tell_how_to_go_on(info, _place_of(jobs, job))
    return _exit_code(info) if follow else 0


@submit_command.command("stop", params=[_JOB_ARGUMENT, *_ADDRESS])
def _stop_command(job: str, **where: Any) -> None:
    """Let JOB save its state, and end it.

    \b
    subquad submit stop quickstart-3fa9c1
    """
    jobs = _connect(**where)
    info, ran = jobs.stop(job)
    before = "" if ran else "has ended before: "
    print_line(f"job {job}: {before}{info.status.value}")
    stops = [line for line in jobs.logs(job).splitlines() if line.startswith("subquad: ")]
    if stops:
        print_line(stops[-1].partition("; go on with:")[0])
    _tell_how_to_go_on(info, _place_of(jobs, job))


@submit_command.command("_job", hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("root")
@click.argument("sender")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def _job_command(job: str, root: str, sender: str, words: tuple[str, ...]) -> int:
    """What a job itself calls on the head node, in the folder that was sent (`subquad submit`
    calls it).
    """
    return do_job(job, Path(root).expanduser(), sender, words)
