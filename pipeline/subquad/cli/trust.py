"""`subquad trust`: folders whose code may run."""

from __future__ import annotations

from pathlib import Path

import click

from subquad.output.terminal import LocalPath, print_line
from subquad.record.trust import forget_folder, trust_folder, trusted_folders


@click.command("trust")
@click.argument("folders", metavar="[FOLDER]...", nargs=-1, type=LocalPath(path_type=Path))
@click.option("--list", "listed", is_flag=True, help="Print the folders that you trust.")
@click.option("--remove", is_flag=True, help="Trust FOLDER no more.")
def trust_command(folders: tuple[Path, ...], listed: bool, remove: bool) -> int:
    """Let files of code below FOLDER run, `./file.py:NAME`, that experiments there name.

    The folder of a run, study, search or exported model below FOLDER is none of that: its code runs
    if you trained it here, or trust that folder itself. A file that you name on a command line, or
    in Python, needs no trust.

    \b
    subquad trust .
    subquad trust --list
    subquad trust --remove old-experiments
    """
    if bool(folders) == listed:
        raise click.UsageError("give a FOLDER, or --list")
    for folder in folders:
        if remove:
            forget_folder(folder)
        else:
            trust_folder(folder)
    for folder in trusted_folders() if listed else ():
        print_line(folder)
    return 0
