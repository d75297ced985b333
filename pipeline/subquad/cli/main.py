"""`subquad`: the command line. A verb's module is imported when that verb is called, so `--help`
stays light.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from subquad.registry import Found

_VERBS = {
    "list": ("plugins", "List the plugins, recipes and spaces that are installed."),
    "show": ("plugins", "Show one plugin: its parameters, what it claims, its paper."),
    "doctor": ("plugins", "Find plugins that do not work, and packages in wrong versions."),
    "train": ("train", "Train an experiment or a study, from a file or a recipe."),
    "resume": ("train", "Go on with a run or a study exactly where it stopped."),
    "tune": ("tune", "Search the settings of an experiment, fairly over its mixers."),
    "submit": ("submit", "Train and search on a Ray cluster, from here."),
    "predict": ("trained", "Write a run's answers to a file of inputs."),
    "eval": ("trained", "Score a run on another labelled file."),
    "export": ("trained", "Write a run's model as a folder of its own, or as a program."),
    "trust": ("trust", "Let the code of a folder run that experiments there name."),
    "runs": ("overview", "List runs, studies and searches: state, age, best score, size."),
    "report": ("report", "Write the results of runs as tables and one HTML page."),
    "cluster": ("cluster", "Make files that start a cluster for an experiment."),
    "sync": ("tracking", "Send to MLflow what it does not have yet."),
    "ui": ("tracking", "Show the runs in MLflow's web pages."),
}
"""Verb: the module of this package that holds `<verb>_command`, and one line of help."""

_LONGEST_LINE = 100
"""Characters of a built-in command's line of help."""


class _Verbs(click.Group):
    """A group that knows its verbs' one-line helps and imports the one that is called, of
    plugins too.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_VERBS, *_of_plugins()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _VERBS:
            return getattr(
                importlib.import_module(f"subquad.cli.{_VERBS[cmd_name][0]}"), f"{cmd_name}_command"
            )
        from subquad.registry import choose_plugin, load_command

        found = _of_plugins().get(cmd_name)
        if found is None:
            return None
        return load_command(found if found.is_built_in else choose_plugin("command", cmd_name))

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args and args[0] not in (known := self.list_commands(ctx)):
            from subquad.suggest import did_you_mean

            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = [(verb, summary) for verb, (_, summary) in _VERBS.items()]
        lines += [(name, _line_of_help(found)) for name, found in _of_plugins().items()]
        with formatter.section("Commands"):
            formatter.write_dl(lines)


def _line_of_help(found: Found) -> str:
    """The first sentence of a built-in command's help; of another one, which is not imported for
    this, its distribution.
    """
    from subquad.registry import load_command

    if not found.is_built_in:
        return f"from {found.owner}"
    return load_command(found).get_short_help_str(_LONGEST_LINE)


def _of_plugins() -> dict[str, Found]:
    """Commands that packages add, by name, those of subquad's own packages first; none may take
    the name of a verb or of a built-in command.
    """
    from subquad.registry import blocked, find_plugins

    offered = [
        found
        for found in find_plugins("command")
        if found.name not in _VERBS and not blocked(found.distribution)
    ]
    commands: dict[str, Found] = {}
    for found in sorted(offered, key=lambda found: not found.is_built_in):
        commands.setdefault(found.name, found)
    return commands


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="subquad", message="%(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error. May stand anywhere.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Train, check and compare sub-quadratic token mixers.

    \b
    subquad train quickstart      train a small example
    subquad list mixers           see which mixers are installed
    subquad COMMAND --help        see what a command does, with examples
    """
    if ctx.invoked_subcommand is None:
        from subquad.output.terminal import print_text

        print_text(f"{ctx.get_help()}\n")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 2 user error, 1 failure, 128 + signal
    when stopped.

    Args:
        argv: the words; those of this process where None.
    """
    words = sys.argv[1:] if argv is None else argv
    debug = "--debug" in words
    from subquad.errors import SubquadError
    from subquad.processes import keep_strange_code_out

    keep_strange_code_out()
    if "_SUBQUAD_COMPLETE" in os.environ:
        importlib.import_module("subquad.completion")
    try:
        _refuse_strange(words)
        outcome = _called([word for word in words if word != "--debug"], debug)
        return outcome if isinstance(outcome, int) else 0
    except click.ClickException as error:
        return _failed(error.format_message(), 2)
    except click.Abort as error:  # Ctrl-C, or the second signal to a run, whose number it has
        numbers = [
            number for number in getattr(error.__cause__, "args", ()) if isinstance(number, int)
        ]
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
    from subquad.errors import UserError, escaped

    if isinstance(error, ModuleNotFoundError):
        module = error.name or "subquad"
        if not module.startswith("subquad"):
            return _failed(
                f"this needs {module}, which is not installed: pip install 'subquad[all]'", 2
            )
    if isinstance(error, OSError) and error.filename:  # what the system refuses to do with a file
        return _failed(f"{escaped(error.filename)}: {error.strerror}", 2)
    text = escaped(" ".join(str(error).split()), UserError.longest)
    return _failed(f"unexpected {type(error).__name__}: {text} (--debug shows where)", 1)


def _failed(message: str, code: int) -> int:
    """Say in one line, whatever names it holds, why a command ends with this exit code."""
    from subquad.addresses import mask
    from subquad.errors import UserError, escaped

    click.echo("subquad: " + escaped(mask(" ".join(message.split())), UserError.longest), err=True)
    return code


def _refuse_strange(words: list[str]) -> None:
    """Refuse an option, a setting or a plugin that is the name of something here: a shell writes
    those for `*`, `*/` and `*/*`, and a folder may hold any name.
    """
    from subquad.errors import UserError

    for word in words:
        first, _, _ = word.partition(os.sep)
        is_code = ".py:" in word and first not in ("", ".", "..")
        if (word.startswith("-") or "=" in first or is_code) and os.path.lexists(word):
            raise UserError(f"{word}: a file or folder here has this name; for that write ./{word}")


def _called(arguments: list[str], debug: bool) -> object:
    try:
        return cli.main(args=arguments, standalone_mode=False, obj=debug)
    except UnicodeDecodeError:
        from subquad.registry.found import check_environment

        check_environment()
        raise


if __name__ == "__main__":
    sys.exit(main())
