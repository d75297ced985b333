"""`subquad`: the command line. A verb's module is imported when that verb is called, so `--help` stays light."""

from __future__ import annotations

import importlib
import sys

import click

VERBS = {
    "list": ("subquad.cli.list", "List the plugins and recipes that are installed."),
    "show": ("subquad.cli.show", "Show one plugin: parameters, facts, paper."),
    "doctor": ("subquad.cli.doctor", "Probe every plugin in a process of its own and check versions."),
    "check": ("subquad.cli.check", "Prove a mixer's contract and claims: the certificate."),
    "train": ("subquad.cli.train", "Train an experiment or a study, from a file or a recipe."),
    "resume": ("subquad.cli.resume", "Go on with a run or a study exactly where it stopped."),
    "tune": ("subquad.cli.tune", "Search the settings of an experiment or study, fairly over its mixers."),
    "report": ("subquad.cli.report", "Table of runs as Markdown, CSV and a self-contained HTML page."),
    "bench": ("subquad.cli.bench", "Measure the engine's own costs and the speed of mixers."),
    "sync": ("subquad.cli.sync", "Send MLflow what a run could not send."),
    "ui": ("subquad.cli.ui", "Open the MLflow pages of the runs."),
}


class Verbs(click.Group):
    """A group that knows its verbs' one-line helps and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(VERBS[cmd_name][0]).command

    def resolve_command(self, ctx: click.Context, args: list[str]):
        if args and args[0] not in VERBS:
            from subquad.suggest import did_you_mean

            ctx.fail(f"no command {args[0]!r}{did_you_mean(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, summary) for verb, (_, summary) in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="subquad", message="%(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Train, certify and compare sub-quadratic token mixers."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 2 user error, 1 failure, 128 + signal when stopped."""
    arguments = sys.argv[1:] if argv is None else argv
    from subquad.errors import SubquadError

    try:
        outcome = cli.main(args=arguments, standalone_mode=False)
        return outcome if isinstance(outcome, int) else 0
    except click.ClickException as error:
        click.echo(f"subquad: {error.format_message()}", err=True)
        return 2
    except click.Abort:
        return 130
    except SubquadError as error:
        if "--debug" in arguments:
            raise
        click.echo(f"subquad: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        if "--debug" in arguments:
            raise
        text = " ".join(str(error).split())
        click.echo(f"subquad: unexpected {type(error).__name__}: {text} (--debug shows where)", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
