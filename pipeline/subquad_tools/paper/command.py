"""`subquad paper`: a paper's tables, what of them is there, and training what is missing."""

from __future__ import annotations

from typing import Any, get_args

import click

from subquad.cli.options import ADDRESS, JOBS, LOCAL
from subquad.output.terminal import print_line
from subquad_tools.paper import PUBLISHED, Size

_SIZES = get_args(Size)


@click.command("paper")
@click.argument("paper", required=False)
@click.option("--table", "tables", metavar="NAMES", help="Make what these lack: 1,2 or all.")
@click.option("--size", type=click.Choice(_SIZES), default=_SIZES[0], show_default=True)
@click.option("--only-print", is_flag=True, help="Write the tables from what exists.")
@click.option("--from-published", is_flag=True, help="Write the printed numbers alone, tested.")
@click.option("--dry-run", is_flag=True, help="Count what is missing. Train nothing.")
@LOCAL
@ADDRESS
@JOBS
@click.option(
    "--root",
    type=click.Path(file_okay=False),
    default=".",
    help="Folder for runs/ and papers/. Default: this one.",
)
def paper_command(
    paper: str | None,
    tables: str | None,
    size: Size,
    only_print: bool,
    from_published: bool,
    dry_run: bool,
    **where: Any,
) -> int:
    """The tables of PAPER: a name, or a file such as ./mine.yaml. Without one, which there are.

    With PAPER alone it says what of each table is there. With --table it makes what is missing,
    once for all tables, and writes them to papers/. The same command goes on after a stop.

    \b
    subquad paper agf
    subquad paper agf --table 1,13 --size smoke
    subquad paper agf --from-published
    """
    from subquad_tools.paper import making

    if paper is None:
        making.list_papers()
    elif only_print or from_published:
        making.write_and_print(paper, tables, PUBLISHED if from_published else size, where["root"])
    elif tables is None and not dry_run:
        making.show_state(paper, size, where["root"])
    else:
        failed = making.make_missing(paper, tables, size, where, dry_run=dry_run)
        if not dry_run:
            making.write_and_print(paper, tables, size, where["root"])
        for name, reason in failed.items():
            print_line(f"{name}: {reason}", err=True)
        return int(bool(failed))
    return 0
