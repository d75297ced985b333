"""`subquad`: the command line. A verb's module is imported when that verb is called, so `--help` stays light."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence

import click

_VERBS = {
    "list": ("plugins", "List the plugins, recipes and spaces that are installed."),
    "show": ("plugins", "Show one plugin: its parameters, what it claims, its paper."),
    "doctor": ("plugins", "Find plugins that do not work, and packages in wrong versions."),
    "new": ("new", "Write a complete package with a plugin of your own, to start from."),
    "check": ("check", "Test a mixer against the contract and its own claims."),
    "train": ("train", "Train an experiment or a study, from a file or a recipe."),
    "resume": ("train", "Go on with a run or a study exactly where it stopped."),
    "tune": ("tune", "Search the settings of an experiment, fairly over its mixers."),
    "submit": ("submit", "Train and search on a Ray cluster, from here."),
    "verify": ("report", "Check that a run, study or search still says what its training found."),
    "predict": ("trained", "Write a run's answers to a file of inputs."),
    "eval": ("trained", "Score a run on another labelled file."),
    "diagnose": ("diagnose", "Measure what a model's mixers do to frequencies, and whether tokens become alike."),
    "swap": ("swap", "Put another mixer into a trained model, keep its weights, and evaluate it without training."),
    "export": ("trained", "Write a run's model as a folder of its own, or as a program."),
    "report": ("report", "Write the results of runs as tables and one HTML page."),
    "bench": ("bench", "Measure the speed of mixers, kernels and training steps."),
    "cluster": ("cluster", "Make files that start a cluster for an experiment."),
    "sync": ("tracking", "Send to MLflow what it does not have yet."),
    "ui": ("tracking", "Show the runs in MLflow's web pages."),
}
"""Verb: the module of this package that holds `<verb>_command`, and one line of help."""


class _Verbs(click.Group):
    """A group that knows its verbs' one-line helps and imports the one that is called, of plugins too."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_VERBS, *_of_plugins()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            from subquad.registry import choose_plugin, load_command

            return load_command(choose_plugin("command", cmd_name)) if cmd_name in _of_plugins() else None
        module = importlib.import_module(f"subquad.cli.{_VERBS[cmd_name][0]}")
        return getattr(module, f"{cmd_name}_command")

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args and args[0] not in (known := self.list_commands(ctx)):
            from subquad.suggest import did_you_mean

            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in _VERBS.items()])
        if added := _of_plugins():
            with formatter.section("Commands of plugins"):
                formatter.write_dl([(name, f"from {owner}") for name, owner in added.items()])


def _of_plugins() -> dict[str, str]:
    """Commands that plugins add, by name, with their distributions; none may take a verb's name."""
    from subquad.registry import blocked, find_plugins

    found = find_plugins("command")
    return {one.name: one.owner for one in found if one.name not in _VERBS and not blocked(one.distribution)}


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="subquad", message="%(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error. May stand anywhere.")
@click.option(
    "--trust",
    multiple=True,
    metavar="SHA256",
    help="Let a plugin's file with this content run, which an experiment or a folder names. May stand anywhere.",
)
def cli(debug: bool, trust: tuple[str, ...]) -> None:
    """Train, check and compare sub-quadratic token mixers.

    \b
    subquad train quickstart      train a small example
    subquad list mixers           see which mixers are installed
    subquad COMMAND --help        see what a command does, with examples
    """


def main(argv: list[str] | None = None, *, also: Sequence[str] = ()) -> int:
    """Run the command line and return its exit code: 0 done, 2 user error, 1 failure, 128 + signal when stopped.

    Args:
        argv: the words; those of this process where None.
        also: further texts that the user gave, see `subquad.trust`.
    """
    given = sys.argv[1:] if argv is None else argv
    debug = "--debug" in given
    arguments, trusted = _parted([word for word in given if word != "--debug"])
    from subquad.errors import SubquadError
    from subquad.processes import keep_strange_code_out
    from subquad.trust import take_words, trust_file

    take_words([*given, *also])
    keep_strange_code_out()
    try:
        for sha256 in trusted:
            trust_file(sha256)
        outcome = _called(arguments, debug)
        return outcome if isinstance(outcome, int) else 0
    except click.ClickException as error:
        return _failed(error.format_message(), 2)
    except click.Abort as error:  # Ctrl-C, or the second signal to a run, whose number it has
        numbers = [one for one in getattr(error.__cause__, "args", ()) if isinstance(one, int)]
        return 128 + (numbers or [signal.SIGINT])[0]
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except SubquadError as error:
        if debug:
            raise
        return _failed(str(error), error.exit_code)
    except Exception as error:
        if debug:
            raise
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    """Say in one line what went wrong outside of subquad's own refusals. Returns the exit code."""
    from subquad.errors import UserError, plain

    if isinstance(error, ModuleNotFoundError) and not (error.name or "subquad").startswith("subquad"):
        needs = f"this needs {error.name}, which is not installed: pip install 'subquad[all]'"
        return _failed(needs, 2)
    if isinstance(error, OSError) and error.filename:  # what the system refuses to do with a file
        return _failed(f"{plain(error.filename)}: {error.strerror}", 2)
    text = plain(" ".join(str(error).split()), UserError.longest)
    return _failed(f"unexpected {type(error).__name__}: {text} (--debug shows where)", 1)


def _failed(message: str, code: int) -> int:
    """Say in one line, whatever names it holds, why a command ends with this exit code."""
    from subquad.addresses import mask
    from subquad.errors import UserError, plain

    line = mask(" ".join(message.split()))
    click.echo("subquad: " + plain(line, UserError.longest), err=True)
    return code


def _parted(words: list[str]) -> tuple[list[str], list[str]]:
    """The words without `--trust SHA256`, wherever that stands, and what it names."""
    arguments: list[str] = []
    trusted: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--trust":
            trusted.append(next(rest, ""))
        elif word.startswith("--trust="):
            trusted.append(word.removeprefix("--trust="))
        else:
            arguments.append(word)
    return arguments, trusted


def _called(arguments: list[str], debug: bool) -> object:
    try:
        return cli.main(args=arguments, standalone_mode=False, obj=debug)
    except UnicodeDecodeError:
        from subquad.registry.found import check_environment

        check_environment()
        raise


if __name__ == "__main__":
    sys.exit(main())
