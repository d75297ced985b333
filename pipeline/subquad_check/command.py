"""`subquad check`: the certificate of one mixer, several, or all."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.completion import mixers
from subquad.errors import ConfigError, Interrupted, UserError
from subquad.output.terminal import print_text
from subquad.processes import available_cpus
from subquad.suggest import did_you_mean
from subquad_check.printed import CertificateDocument, print_end, show_certificate, show_progress

if TYPE_CHECKING:
    from subquad_check import Certificate

FOR_CHECKS = {
    "OMP_WAIT_POLICY": "passive",
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""Environment of a process that checks mixers, from its start: a thread that waits gives way to
others, and torch takes large tensors in pages of 2 MB. The kernel has to clear pages when they are
first touched, which took half the time of checks with the largest tensors in pages of 4 KB.
"""
_Mixers = list[tuple[str, dict[str, Any]]]
"""Mixers on the command line, each with the parameters behind it."""


def _compiler(ctx: click.Context, param: click.Parameter, name: str) -> str:
    """A backend of torch.compile.

    Raises:
        ConfigError: there is none of that name.
    """
    if name == "aot_eager":
        return name  # the compiler takes seconds to import, and not every check needs it
    from torch._dynamo.backends.registry import list_backends

    known = list_backends(exclude_tags=())
    if name not in known:
        raise ConfigError(
            f"--compiler {name}: torch has no such backend{did_you_mean(name, known)}"
        )
    return name


def _device(ctx: click.Context, param: click.Parameter, name: str) -> str:
    """A device that is here.

    Raises:
        ConfigError: there is none of that name.
    """
    if name == "cpu":
        return name
    import torch

    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:  # a torch without CUDA asserts
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ConfigError(f"--device {name}: not on this machine ({reason})") from None
    return name


@click.command("check")
@click.argument(
    "words",
    nargs=-1,
    metavar="MIXER [KEY=VALUE]... [MIXER ...]",
    shell_complete=mixers,
)
@click.option("--all", "everything", is_flag=True, help="Every installed mixer.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this check; may be repeated.")
@click.option(
    "--exclude", multiple=True, metavar="NAME=REASON", help="Leave a check out; may be repeated."
)
@click.option(
    "--dim", type=click.IntRange(min=2), default=16, show_default=True, help="Width of the mixer."
)
@click.option(
    "--heads",
    "num_heads",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Heads of the mixer.",
)
@click.option(
    "--compiler",
    default="aot_eager",
    show_default=True,
    callback=_compiler,
    help="Backend of torch.compile, such as inductor.",
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    callback=_device,
    help="Where kernels are compared with their reference.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of weights and tokens.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="CPU time for each check; what takes more is not tested.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes at a time. Default: the number of cores."
)
@click.option("--markdown", metavar="FILE", help="Write the certificate as Markdown; - for stdout.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, each mixer as soon as it is checked."
)
@click.option("-v", "--verbose", is_flag=True, help="Print also the table of all checks.")
@click.option(
    "--resume",
    metavar="FILE",
    help="With --all --json: take mixers from what an earlier one has printed.",
)
@click.pass_obj
def check_command(
    debug: bool,
    words: tuple[str, ...],
    everything: bool,
    only: tuple[str, ...],
    exclude: tuple[str, ...],
    jobs: int | None,
    markdown: str | None,
    as_json: bool,
    verbose: bool,
    resume: str | None,
    **built: Any,
) -> int:
    """Test a mixer against the contract and its own claims.

    MIXER is a name or ./file.py:Class, checked with its defaults and variants, or with the given
    parameters.

    The exit code is 0 if every check that applies passed, and 1 if one failed or was not proven.

    \b
    subquad check agf
    subquad check softmax rotary=true agf order=5
    subquad check ./my_mixer.py:MyMixer --markdown certificate.md
    subquad check --all --json > all.json
    """
    os.environ.update({**FOR_CHECKS, **os.environ})
    requested = _requested_mixers(words, everything)
    _refuse_together(everything, markdown, as_json, resume)
    from subquad_check.certificate import certificates_markdown
    from subquad_check.suite import chosen_checks

    settings = {"exclude": _reasons(exclude), "only": only, **built}
    checks = chosen_checks(only, settings["exclude"])
    done: list[Certificate] = []
    document = CertificateDocument(settings, resume)
    printed = document if as_json else None
    with _stopped_in_words(printed), printed or contextlib.nullcontext():
        requested = [(name, params) for name, params in requested if not document.has(name)]
        if not jobs:
            jobs = available_cpus() if "compiled" in {check.name for check in checks} else 1
        for certificate in _certificates(requested, settings, jobs, document.broken, everything):
            done.append(certificate)
            show_certificate(certificate, printed, markdown, verbose, debug)
    if markdown != "-" and not as_json:
        print_end(done, document.broken)
    if markdown:
        _write(markdown, certificates_markdown(done))
    hold = document.holds and all(certificate.holds for certificate in done)
    return int(not hold or bool(document.broken))


def _refuse_together(
    everything: bool, markdown: str | None, as_json: bool, resume: str | None
) -> None:
    """Refuse options that exclude each other."""
    if as_json and markdown == "-":
        raise ConfigError(
            "--json and --markdown - would both write to stdout: give --markdown a file"
        )
    if resume and not (everything and as_json and not markdown):
        raise ConfigError(
            "--resume goes on with what `check --all --json` has printed: give --all and --json "
            "alone"
        )


@contextlib.contextmanager
def _stopped_in_words(document: CertificateDocument | None) -> Iterator[None]:
    """SIGTERM is like Ctrl-C: processes are stopped, and what is known has been printed.

    A shell's background job ignores Ctrl-C, and goes on doing so.

    Raises:
        Interrupted: either came.
    """
    arrived: list[int] = []

    def stop(signum: int, frame: Any) -> None:
        arrived.append(signum)
        signal.raise_signal(signal.SIGINT)  # whose handlers tell it from what a plugin raises

    def interrupt(signum: int, frame: Any) -> None:
        if arrived:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop), signal.getsignal(signal.SIGINT)
    if before[1] is signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        hint = "; `--resume FILE` with what was printed goes on" if document else ""
        raise Interrupted([*arrived, signal.SIGINT][0], f"stopped{hint}") from None
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def _certificates(
    requested: _Mixers,
    settings: Mapping[str, Any],
    jobs: int,
    broken: dict[str, str],
    everything: bool,
) -> Iterator[Certificate]:
    """One certificate after the other. With --all a plugin that cannot be used is noted in
    `broken`.
    """
    from subquad.registry import stdout_to_stderr
    from subquad_check import certify
    from subquad_check.workers import CheckWorkers

    with CheckWorkers(jobs) as workers:
        for name, params in requested:
            try:
                with stdout_to_stderr():
                    found = certify(
                        name,
                        params,
                        workers=workers if jobs > 1 or everything else None,
                        done=partial(show_progress, name),
                        **settings,
                    )
            except UserError as error:
                if not everything:
                    raise
                broken[name] = str(error)
            else:
                yield found


def _requested_mixers(words: Sequence[str], everything: bool) -> _Mixers:
    """Mixers with the parameters written behind them.

    Raises:
        ConfigError: a parameter comes before any mixer, twice, or with --all, or is wrong; or
            nothing is asked.
        PluginError: a mixer is unknown.
    """
    from subquad.experiment import parameters
    from subquad.experiment.sources import parse_overrides
    from subquad.registry import resolve

    if everything:
        if words:
            raise ConfigError(
                "--all checks every mixer with its own variants: leave names and parameters out"
            )
        return [(name, {}) for name in _installed()]
    requested: _Mixers = []
    for word in words:
        key, equals, _ = word.partition("=")
        if not (equals and key.isidentifier()):
            requested.append((word, {}))
            continue
        if not requested:
            raise ConfigError(f"{word}: write the mixer first, as in: subquad check MIXER width=4")
        name, params = requested[-1]
        if key in params:
            raise ConfigError(f"{name}: {key} is given twice")
        (setting,) = parse_overrides([word], Path.cwd())
        params[key] = setting.value
    if not requested:
        raise ConfigError(
            "which mixer? write a name, ./file.py:Class, or --all (`subquad list "
            "mixer` shows names)"
        )
    for name, params in requested:
        if ".py:" not in name:  # which is told before torch is imported
            parameters(resolve("mixer", name), params)
    return requested


def _installed() -> list[str]:
    from subquad.registry import blocked, clash, find_plugins

    return [
        found.full_name if clash(found) else found.name
        for found in find_plugins("mixer")
        if not blocked(found.distribution)
    ]


def _reasons(exclude: Sequence[str]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for text in exclude:
        name, equals, reason = text.partition("=")
        if not equals:
            raise ConfigError(
                f"--exclude {text}: give a reason, as in --exclude {name}='why it does not apply'"
            )
        if name in reasons:
            raise ConfigError(f"--exclude {name} is given twice")
        reasons[name] = reason
    return reasons


def _write(target: str, text: str) -> None:
    if target == "-":
        print_text(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--markdown {target}: {error.strerror}") from error
