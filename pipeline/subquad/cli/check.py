"""`subquad check`: the certificate of one mixer, several, or all."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from subquad.cli.tables import print_json, print_line, print_table
from subquad.errors import ConfigError, UserError
from subquad.registry.foreign import plain

if TYPE_CHECKING:
    from subquad.testing import Certificate, CheckOutcome
    from subquad.testing.check import Status


MARKS: dict[Status, str] = {"passed": "ok", "failed": "FAIL", "excluded": "-", "not proven": "?"}


@dataclass
class _Asked:
    """One mixer on the command line, and the parameters behind it."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)


@click.command("check")
@click.argument("words", nargs=-1, metavar="MIXER [KEY=VALUE]... [MIXER ...]")
@click.option("--all", "everything", is_flag=True, help="Every installed mixer.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this check; may be repeated.")
@click.option("--exclude", multiple=True, metavar="NAME=REASON", help="Leave a check out; may be repeated.")
@click.option("--dim", type=click.IntRange(min=2), default=16, show_default=True, help="Width it is built with.")
@click.option("--heads", type=click.IntRange(min=1), default=2, show_default=True, help="Heads it is built with.")
@click.option("--compiler", default="aot_eager", show_default=True, help="Backend of torch.compile, such as inductor.")
@click.option("--device", default="cpu", show_default=True, help="Where kernels are held against their reference.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at a time; default: the number of cores.")
@click.option("--markdown", metavar="FILE", help="Write the certificate as Markdown; - for stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def check_command(
    debug: bool,
    words: tuple[str, ...],
    everything: bool,
    only: tuple[str, ...],
    exclude: tuple[str, ...],
    dim: int,
    heads: int,
    compiler: str,
    device: str,
    jobs: int | None,
    markdown: str | None,
    as_json: bool,
) -> int:
    """Check MIXER, a name or ./file.py:Class, with its defaults and variants, or with the given parameters.

    Exit code 0 where all that applies was shown, 1 where a check failed or was not proven.

    \b
    subquad check agf
    subquad check softmax rotary=true agf order=5
    subquad check ./my_mixer.py:MyMixer --markdown certificate.md
    """
    asked = _asked(words, everything)
    if as_json and markdown == "-":
        raise ConfigError("--json and --markdown - would both write to stdout: give --markdown a file")
    from subquad.drivers.preflight import available_cpus
    from subquad.testing.certificate import certificates_markdown, chosen_checks

    reasons = _reasons(exclude)
    slow = any(check.name == "compiled" for check in chosen_checks(only, reasons))
    settings = {"exclude": reasons, "only": only, "dim": dim, "num_heads": heads, "compiler": _compiler(compiler)}
    settings["device"] = _device(device)
    done: list[Certificate] = []
    broken: dict[str, str] = {}
    for certificate in _certificates(asked, settings, jobs or (available_cpus() if slow else 1), broken, everything):
        done.append(certificate)
        if not as_json and markdown != "-":
            _print(certificate)
        if debug:
            _print_tracebacks(certificate)
    if as_json:
        print_json(_as_json(done, broken))
    elif markdown != "-":
        _print_end(done, broken)
    if markdown:
        _write(markdown, certificates_markdown(done))
    return int(bool(broken) or not all(certificate.holds for certificate in done))


def _certificates(
    asked: Sequence[_Asked], settings: Mapping[str, Any], jobs: int, broken: dict[str, str], everything: bool
) -> Iterator[Certificate]:
    """One certificate after the other. With --all a plugin that cannot be used is noted in `broken`."""
    from subquad.registry import stdout_to_stderr
    from subquad.testing import certify
    from subquad.testing.workers import CheckWorkers

    with CheckWorkers(jobs) as workers:
        for one in asked:
            try:
                with stdout_to_stderr():
                    side_by_side = workers if jobs > 1 else None
                    found = certify(one.name, one.params, workers=side_by_side, done=_progress(one.name), **settings)
            except UserError as error:
                if not everything:
                    raise
                broken[one.name] = str(error)
            else:
                yield found


def _asked(words: Sequence[str], everything: bool) -> list[_Asked]:
    """Mixers with the parameters written behind them.

    Raises:
        ConfigError: a parameter comes before any mixer, twice, or with --all; or nothing is asked.
    """
    from subquad.experiment.sources import parse_overrides

    if everything:
        if words:
            raise ConfigError("--all checks every mixer with its own variants: leave names and parameters out")
        return [_Asked(name) for name in _installed()]
    asked: list[_Asked] = []
    for word in words:
        if not _is_parameter(word):
            asked.append(_Asked(word))
            continue
        if not asked:
            raise ConfigError(f"{word}: write the mixer first, as in: subquad check MIXER width=4")
        (setting,) = parse_overrides([word], Path.cwd())
        key = ".".join(map(str, setting.path))
        if key in asked[-1].params:
            raise ConfigError(f"{asked[-1].name}: {key} is given twice")
        asked[-1].params[key] = setting.value
    if not asked:
        raise ConfigError("which mixer? write a name, ./file.py:Class, or --all (`subquad list mixer` shows names)")
    return asked


def _is_parameter(word: str) -> bool:
    return word.partition("=")[0].isidentifier() and "=" in word


def _installed() -> list[str]:
    from subquad.registry import blocked, clash, find_plugins

    usable = [found for found in find_plugins("mixer") if not blocked(found.distribution)]
    return [found.full_name if clash(found) else found.name for found in usable]


def _reasons(exclude: Sequence[str]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for text in exclude:
        name, equals, reason = text.partition("=")
        if not equals:
            raise ConfigError(f"--exclude {text}: give a reason, as in --exclude {name}='why it does not apply'")
        if name in reasons:
            raise ConfigError(f"--exclude {name} is given twice")
        reasons[name] = reason
    return reasons


def _compiler(name: str) -> str:
    """A backend of torch.compile.

    Raises:
        ConfigError: there is none of that name.
    """
    if name == "aot_eager":
        return name  # the compiler takes seconds to import, and not every check needs it
    from torch._dynamo.backends.registry import list_backends

    from subquad.suggest import did_you_mean

    known = list_backends(exclude_tags=())
    if name not in known:
        raise ConfigError(f"--compiler {name}: torch has no such backend{did_you_mean(name, known)}")
    return name


def _device(name: str) -> str:
    """A device that is here.

    Raises:
        ConfigError: there is none of that name.
    """
    import torch

    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:  # a torch without CUDA asserts
        raise ConfigError(
            f"--device {name}: not on this machine ({str(error).splitlines()[0].partition('. ')[0]})"
        ) from None
    return name


def _progress(name: str) -> Callable[[CheckOutcome], None]:
    """Shows on a terminal which check is done, on one line that the table replaces."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda outcome: None
    width = shutil.get_terminal_size().columns - 1

    def show(outcome: CheckOutcome) -> None:
        line = plain(f"{name}: {outcome.subject}: {outcome.check}", width)
        click.echo(f"\r\033[K{line}\r", err=True, nl=False)

    return show


def _print(certificate: Certificate) -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("\r\033[K", err=True, nl=False)
    ways = certificate.subjects
    for number, subject in enumerate(ways, 1):
        print_line(f"{number}  {certificate.name}, {subject}")
    rows = [(check.name, *marks, seen) for check, marks, seen in certificate.table(MARKS)]
    print_table(("check", *map(str, range(1, len(ways) + 1)), "seen, nearest to the limit"), rows)
    for status in ("excluded", "not proven", "failed"):
        for note in certificate.notes(status):
            print_line(f"{status}: {note}")
    print_line(f"{certificate.verdict} in {certificate.seconds:.1f} s")
    print_line()
    sys.stdout.flush()


def _print_tracebacks(certificate: Certificate) -> None:
    for outcome in certificate.outcomes:
        if outcome.traceback:
            click.echo(f"{certificate.name}, {outcome.subject}, {outcome.check}\n{outcome.traceback}", err=True)


def _print_end(certificates: Sequence[Certificate], broken: Mapping[str, str]) -> None:
    for name, problem in broken.items():
        print_line(f"{name}: {problem}")
    if len(certificates) + len(broken) > 1:
        failing = [done.name for done in certificates if not done.holds]
        seconds = sum(done.seconds for done in certificates)
        words = f"; not certified: {', '.join([*failing, *broken])}" if failing or broken else ""
        whole = len(certificates) + len(broken)
        print_line(f"{len(certificates) - len(failing)} of {whole} mixers certified in {seconds:.0f} s{words}")


def _as_json(certificates: Sequence[Certificate], broken: Mapping[str, str]) -> dict[str, Any]:
    from subquad.testing import Certificate

    mixers = [done.as_dict() for done in certificates]
    return {"environment": Certificate.environment(), "mixers": mixers, "broken": dict(broken)}


def _write(target: str, text: str) -> None:
    if target == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--markdown {target}: {error.strerror}") from error
