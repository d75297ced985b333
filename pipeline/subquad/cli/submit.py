"""`subquad submit`: train and search on a cluster, by Ray Jobs."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.tables import LocalPath, print_json, print_line, print_table, print_text
from subquad.cli.train import resume_command, train_command
from subquad.cli.tune import is_of_pruner, search_options, tune_command
from subquad.errors import ConfigError, Interrupted, RunError, UserError, plain
from subquad.ray.results import leave_results
from subquad.ray.upload import JOB, add_file, add_packages, check_packages, pack
from subquad.reach import Reach
from subquad.runs import OWNER, flatten, read_json
from subquad.storage import root_of

if TYPE_CHECKING:
    from subquad.experiment import Study
    from subquad.ray.jobs import JobDetails, Jobs

_HERE_ONLY = {"address", "as_json", "debug", "dry_run", "export", "local", "root"}
"""Options of `train`, `tune` and `resume` that a job has in another way, or not at all."""
_ROOT = "~/subquad"

_ADDRESS = [
    click.Option(
        ["--address"],
        metavar="URL",
        help="The dashboard of the cluster, as in http://127.0.0.1:8265.  [default: RAY_API_SERVER_ADDRESS, or "
        "RAY_ADDRESS where it begins with http]",
    ),
    click.Option(
        ["--insecure"],
        is_flag=True,
        help="Allow a cluster that asks for no token, or a token sent without encryption over a network.",
    ),
]
_JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object at the end, and nothing else.")
_INTO = click.Option(
    ["--into"],
    type=LocalPath(file_okay=False, path_type=Path),
    default=".",
    help="Folder here that gets runs/ with the results.  [default: this one]",
)
_SUBMITTING = [
    click.Option(
        ["--plugin"],
        multiple=True,
        metavar="WHEEL",
        help="A plugin to send: a .whl file, or the name of a package installed here. May be given several times.",
    ),
    click.Option(["--detach"], is_flag=True, help="Return when the job is accepted. Default: follow it to its end."),
    click.Option(
        ["--root"],
        default=_ROOT,
        show_default=True,
        metavar="DIR",
        help="Folder for runs/ on the head node; or an address of storage, which also gets checkpoints and a copy.",
    ),
    _INTO,
    *_ADDRESS,
    _JSON,
]


@click.group("submit")
def submit_command() -> None:
    """Train and search on a Ray cluster, from here.

    A job gets subquad itself, the plugins given by --plugin and the resolved experiment, on every node. Nothing else is
    sent: no data, no .git, no environment variable. Paths of data are paths on the cluster.

    The token is Ray's: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token. Reach a cluster through a tunnel, as
    in `ssh -L 8265:127.0.0.1:8265 HEAD`: over plain http to another host the token could be read on the way.

    \b
    subquad submit train quickstart --address http://127.0.0.1:8265
    subquad submit train experiment.yaml train.lr=3e-4 --plugin dist/my_mixer-1.0-py3-none-any.whl --detach
    subquad submit tune experiment.yaml --space auto --budget 40-trials
    subquad submit status
    """


def _connect(address: str | None, insecure: bool) -> Jobs:
    named = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS", "")
    if address is None and named.startswith("http"):
        address = named
    if address is None:
        raise UserError("--address: none given, and RAY_API_SERVER_ADDRESS is not set; write http://HOST:8265")
    try:
        from subquad.ray.jobs import Jobs
    except ImportError as error:
        raise UserError(f"Ray is not installed ({error.name}): pip install 'subquad[ray]'") from error
    return Jobs(address, insecure=insecure)


def _submitted(
    base: click.Command,
    address: str | None,
    insecure: bool,
    plugin: tuple[str, ...],
    detach: bool,
    root: str,
    into: Path,
    as_json: bool,
    **given: Any,
) -> int:
    """Hand a command in as a job, and follow it. Returns the job's exit code."""
    again = f" --address {address}" * bool(address) + " --insecure" * insecure
    root, given = _placed(root, given)
    if not root.startswith(("/", "~")):
        raise UserError(f"--root {root}: must be a whole path on the head node, as in /data/subquad or {_ROOT}")
    with tempfile.TemporaryDirectory(prefix="subquad-job-") as scratch:
        folder, archive = Path(scratch, "job"), Path(scratch, "job.zip")
        (folder / JOB).mkdir(parents=True)
        if left_out := add_packages(plugin, folder):
            print_line(f"not sent, as they may be data or secrets (a wheel sends all): {', '.join(left_out)}", err=True)
        check_packages(folder)
        with _importable(folder):
            study = _study_of(base, given, folder)
            job = f"{study.name if study else 'resume'}-{secrets.token_hex(3)}"
            words = _words(base, given, folder, study, job)
        if not list(folder.glob("subquad-*.dist-info")):
            add_packages(["subquad"], folder)
        sent = [*check_packages(folder), *(one.name for one in (folder / JOB).rglob("*") if one.is_file())]
        jobs = _connect(address, insecure)
        print_line(f"uploads {pack(folder, archive) / 1e6:.1f} MB to {jobs.address}: {', '.join(sent)}", err=as_json)
        metadata = {"subquad": version("subquad"), "command": shlex.join(words)}
        jobs.submit(archive, ["submit", "_job", job, root, *words], job, metadata)
    print_line(f"job {job} on {jobs.address}, files in {root} on its head node", err=as_json)
    if detach:
        click.echo(json.dumps({"job": job}) if as_json else f"follow it with: subquad submit logs {job} -f{again}")
        return 0
    info = _followed(jobs, job, again, as_json)
    return _told(jobs, job, info, into, _place_of(given.get("run") or given.get("resume")), as_json)


def _place_of(resumed: str | None) -> str:
    """`runs/NAME/STAMP` of the run that a job goes on with; "" where it begins one."""
    return "/".join(PurePosixPath(resumed).parts[-3:]) if resumed else ""


def _placed(root: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The folder on the head node, and the options with the storage that an address stands for."""
    storage = root_of(root)[1]
    if storage and "overrides" not in given:
        raise UserError(f"--root {root}: a run goes on where its own storage is; leave it out")
    return (_ROOT, given | {"overrides": (*given["overrides"], *storage)}) if storage else (root, given)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Plugins of the folder are found in this process, before those that are installed here."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _study_of(base: click.Command, given: Mapping[str, Any], folder: Path) -> Study | None:
    """The study that a job is about, checked here and written into its folder; None where it goes on with another.

    Raises:
        UserError: it cannot be done as it is, or holds a secret.
    """
    from subquad.experiment import load_study
    from subquad.search.search import plan_search
    from subquad.search.settings import Settings
    from subquad.trust import training

    goes_on = base is resume_command or given.get("resume")
    if goes_on and given.get("target"):
        raise click.UsageError("--resume knows its TARGET: leave it out")
    if goes_on:
        return None
    if given["target"] is None:
        raise click.UsageError("Missing argument 'TARGET', or --resume RUN")
    searching = base is tune_command
    own, options = search_options(given["overrides"], _chosen(given)) if searching else (given["overrides"], {})
    with training():
        study = load_study(given["target"], own)
    refuse_secrets(study)
    if searching:
        plan_search(study, Settings(**options))
    text = study.text
    sources = {one.path: one for run in study.runs for one in run.sources.values()}
    for path in sorted(sources, key=len, reverse=True):
        placed = add_file(Path(path).name, sources[path].text.encode(), folder)
        text = text.replace(f"{path}:", f"./{placed}:")
    (folder / JOB / "experiment.yaml").write_text(text, encoding="utf-8")
    return study


def _chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: one for key, one in given.items() if one not in (None, (), False) and key not in ("target", "overrides")
    }


def refuse_secrets(study: Study) -> None:
    """What is sent lies on the cluster's disks, and in its run folders; there, secrets of the nodes' environment are.

    Raises:
        ConfigError: a setting holds a password, token or key.
        UserError: only the experiment's file names the address that it is tracked at.
    """
    from subquad.addresses import without_secrets
    from subquad.tracking.address import store_uri
    from subquad.tracking.publisher import refuse_strange

    for run in study.runs:
        if uri := run.experiment.tracking.uri:
            refuse_strange(store_uri(uri, Path.cwd()), Path.cwd(), f"tracking.uri: {uri}", f"tracking.uri={uri}")
        for key, value in flatten(run.experiment.model_dump(mode="json")).items():
            if without_secrets(value, key) != value:
                raise ConfigError(
                    f"{key}: holds a secret, which would be sent and kept in run folders; set it in the environment "
                    "of the cluster's nodes, as in MLFLOW_TRACKING_PASSWORD"
                )


def _words(base: click.Command, given: Mapping[str, Any], folder: Path, study: Study | None, job: str) -> list[str]:
    """The command as it is called on the head node, where the working directory is the root of the runs."""
    words = [str(base.name)]
    if study:
        words += [f"jobs/{job}/experiment.yaml"]
        words += [text for text in given["overrides"] if base is tune_command and is_of_pruner(text)]
    for param in base.params:
        value = _chosen(given).get(str(param.name))
        if value is None:
            continue
        if isinstance(param, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(param.opts[0])
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [param.opts[0], _sent(str(one), folder, job)]
    return words


def _sent(value: str, folder: Path, job: str) -> str:
    """An option's value, with each space or list of points that is a file here sent along."""
    parts = value.split("+")
    for number, part in enumerate(parts):
        if part.endswith((".yaml", ".yml")) and Path(part).is_file():
            parts[number] = f"jobs/{job}/{add_file(Path(part).name, Path(part).read_bytes(), folder)}"
    return "+".join(parts)


def _followed(jobs: Jobs, job: str, again: str, as_json: bool) -> JobDetails:
    """Show what a job says until it ends; Ctrl-C leaves it alone."""
    try:
        return jobs.follow(job, lambda text: print_text(text, err=as_json))
    except KeyboardInterrupt:
        raise Interrupted(
            signal.SIGINT,
            f"job {job} goes on; follow it with: subquad submit logs {job} -f{again}; end it with: subquad submit "
            f"stop {job}{again}",
        ) from None


def _told(jobs: Jobs, job: str, info: JobDetails, into: Path, goes_on: str, as_json: bool) -> int:
    """Fetch what a job has made and say what became of it. Returns the job's exit code."""
    code, folders = _code(info), list[Path]()
    try:
        folders = jobs.fetch(job, into, goes_on=goes_on)
    except RunError as error:
        if code == 0:
            print_line(f"subquad: {error}", err=True)
    if info.driver_exit_code is None and info.status.value == "FAILED":
        reason = (info.message or "?").splitlines()[0]
        print_line(f"subquad: job {job} did not run: {plain(reason)}", err=True)
    if as_json:
        print_json(
            {"job": job, "status": info.status.value, "exit_code": code, "fetched": [str(one) for one in folders]}
        )
    else:
        print_line(f"job {job}: {info.status.value}")
        for folder in folders:
            print_line(f"fetched {folder}")
    return code


def _code(info: JobDetails) -> int:
    ends, code = {"SUCCEEDED": 0, "STOPPED": 128 + signal.SIGTERM}, info.driver_exit_code or 1
    return ends.get(info.status.value, code if code > 0 else 128 - code)


for _base, _reads, _runs, _sends, _text in (
    (
        train_command,
        "TARGET, --plugin, answers of --address",
        "plugin files that TARGET names",
        "TARGET, --plugin and the token, to --address",
        "Train TARGET on a cluster; see `subquad train`.\n\n\b\nsubquad submit train quickstart --detach",
    ),
    (
        tune_command,
        "TARGET, --space, --points, --plugin, answers of --address",
        "plugin files that TARGET names",
        "TARGET, --space, --points, --plugin and the token, to --address",
        "Search the settings of TARGET on a cluster; see `subquad tune`.\n\n\b\n"
        "subquad submit tune quickstart --space auto+optimizer --budget 40-trials",
    ),
    (
        resume_command,
        "--plugin, answers of --address",
        "nothing",
        "--plugin and the token, to --address",
        "Go on with RUN, a folder below --root on the head node, or its address in storage.\n\n\b\n"
        "subquad submit resume runs/quickstart/20260101-101500-ab12cd34",
    ),
):
    _own = [one for one in _base.params if one.name not in _HERE_ONLY]
    _call = Reach(_reads, _runs, "runs/ in --into", _sends)(partial(_submitted, _base))
    _params = [*_own, *_SUBMITTING]
    _added = click.Command(_base.name, params=_params, callback=_call, help=_text)
    submit_command.add_command(_added)


@submit_command.command("status", params=[click.Argument(["job"], required=False), *_ADDRESS, _JSON])
@Reach(reads="answers of --address", sends="the token, to --address")
def _status_command(job: str | None, address: str | None, insecure: bool, as_json: bool) -> None:
    """Show the jobs of a cluster, or JOB alone.

    \b
    subquad submit status --address http://127.0.0.1:8265
    """
    jobs = _connect(address, insecure)
    rows = [_row(one) for one in ([jobs.info(job)] if job else jobs.all())]
    if as_json:
        print_json(rows)
    else:
        print_table(("job", "status", "exit code", "accepted", "minutes", "command"), [[*one.values()] for one in rows])


def _row(info: JobDetails) -> dict[str, Any]:
    begun = info.start_time / 1e3 if info.start_time else None
    accepted = ""
    with suppress(ValueError, OverflowError, OSError):  # a cluster may say any number
        if begun:
            accepted = datetime.fromtimestamp(begun, UTC).isoformat(" ", "milliseconds")
    minutes = ((info.end_time / 1e3 if info.end_time else time.time()) - begun) / 60 if begun else None
    return {
        "job": info.submission_id,
        "status": info.status.value,
        "exit_code": _code(info) if info.status.is_terminal() else "",
        "accepted": accepted,
        "minutes": f"{minutes:.1f}" if minutes is not None else "",
        "command": (info.metadata or {}).get("command", ""),
    }


_GOES_ON = re.compile(r"go on with: subquad resume (runs/\w[\w.-]*/\w[\w.-]*)(?:\s|$)")
"""What a job that was stopped says at the end. The cluster may say anything, so only such a place is taken from it."""
_JOB_ARGUMENT = click.Argument(["job"])
_FOLLOW = click.Option(["-f", "--follow"], is_flag=True, help="Go on until the job ends.")


@submit_command.command("logs", params=[_JOB_ARGUMENT, _FOLLOW, *_ADDRESS])
@Reach(reads="answers of --address", sends="the token, to --address")
def _logs_command(job: str, follow: bool, address: str | None, insecure: bool) -> int:
    """Print what JOB has said. With -f the exit code is the job's.

    \b
    subquad submit logs quickstart-3fa9c1 -f
    """
    jobs = _connect(address, insecure)
    if follow:
        again = f" --address {address}" * bool(address) + " --insecure" * insecure
        return _code(_followed(jobs, job, again, False))
    print_text(jobs.logs(job))
    return 0


@submit_command.command("stop", params=[_JOB_ARGUMENT, *_ADDRESS])
@Reach(reads="answers of --address", sends="the token, to --address")
def _stop_command(job: str, address: str | None, insecure: bool) -> None:
    """Let JOB save its state, and end it.

    \b
    subquad submit stop quickstart-3fa9c1
    """
    jobs = _connect(address, insecure)
    info, ran = jobs.stop(job)
    print_line(f"job {job}: {'' if ran else 'has ended before: '}{info.status.value}")
    stops = [line for line in jobs.logs(job).splitlines() if line.startswith("subquad: ")]
    if stops:
        print_line(stops[-1].partition("; go on with:")[0])
    if stops and (place := _GOES_ON.search(stops[-1])):
        print_line(f"go on with: subquad submit resume {place.group(1)} (and --root, --plugin as before)")


@submit_command.command("fetch", params=[_JOB_ARGUMENT, _INTO, *_ADDRESS])
@Reach(reads="answers of --address", writes="runs/ in --into", sends="the token, to --address")
def _fetch_command(job: str, into: Path, address: str | None, insecure: bool) -> None:
    """Copy the results of JOB to this machine, without its checkpoints. `report` and `sync` work on them.

    \b
    subquad submit fetch quickstart-3fa9c1 --into results
    """
    for folder in _connect(address, insecure).fetch(job, into):
        print_line(f"fetched {folder}")


@submit_command.command("_job", hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("job")
@click.argument("root")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@Reach(
    reads="what `subquad submit` sent",
    runs="the command in WORDS, with the plugins that were sent",
    writes="runs/ in ROOT, and what the command in WORDS does",
    sends="what the command in WORDS does",
)
def _job_command(job: str, root: str, words: tuple[str, ...]) -> int:
    """What a job itself calls on the head node, in the folder that was sent (`subquad submit` calls it)."""
    from subquad.cli.main import main

    sent, begun = Path.cwd(), time.time() - 1
    check_packages(sent)
    runs = Path(root).expanduser()
    runs.mkdir(parents=True, exist_ok=True)
    os.chdir(runs)
    with suppress(FileNotFoundError):
        shutil.copytree(sent / JOB, Path("jobs", job))
    # Its addresses were checked where it was sent from.
    sent_text = Path("jobs", job, "experiment.yaml")
    also = [sent_text.read_text(encoding="utf-8")] if sent_text.exists() else []
    try:
        return main([*words], also=also)
    finally:
        mine = {"pid": os.getpid(), "host": os.uname().nodename}
        owners = [one for one in Path("runs").glob(f"*/*/{OWNER}") if one.stat().st_mtime >= begun]
        folders = [one.parent for one in owners if read_json(one) == mine]
        try:
            leave_results(job, folders)
        except (OSError, RunError) as error:
            print_line(f"results cannot be fetched: {error}", err=True)
