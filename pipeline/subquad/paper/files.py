"""A paper's tables as files, with where each number comes from; and whether such a folder is still
what its runs give.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from subquad.errors import RunError, in_one_line
from subquad.experiment import load_study
from subquad.output.markup import as_csv, fill_template, in_latex, in_markdown
from subquad.paper.file import Paper, open_paper
from subquad.paper.grid import Entry, Grid, fill, fill_published, printed_in
from subquad.paper.runs import Wanted, runs_on_disk
from subquad.paper.sheet import notes_of, sheet_of, state_of
from subquad.record.files import json_text, read_bytes, read_file, write_text
from subquad.record.models import File
from subquad.record.names import RESULT
from subquad.reports.reported_run import ReportedRun

PROVENANCE = "provenance.json"
PUBLISHED = "published"
"""In place of a size: the printed numbers alone."""

_HERE = "subquad.paper"


class Provenance(File):
    """Where the numbers of a folder come from.

    Attributes:
        paper: as it was named.
        sha256: of its file.
        size: of the runs, or `PUBLISHED`.
        tables: the cells of each, with their runs and the sums of their results.
    """

    FILE = PROVENANCE
    format: Literal[1] = 1
    paper: str
    sha256: str
    size: str
    tables: dict[str, dict[str, dict[str, Any]]]


def grids_of(
    paper: Paper, size: str, tables: Iterable[str], root: Path, wanted: Wanted | None = None
) -> dict[str, Grid]:
    """Tables with what the runs below a root say, or with the printed numbers alone.

    Args:
        size: of the runs, or `PUBLISHED`.
        wanted: what they need, where it is known.

    Raises:
        UserError: see `Wanted`, and a result that is not that of its files.
    """
    if size == PUBLISHED:
        return fill_published(paper, tables)
    wanted = wanted or Wanted(paper, size, tables, load_study)
    return fill(wanted, runs_on_disk(root))


def folder_of(paper: Paper, size: str, root: Path) -> Path:
    """Where the files of a paper are."""
    return root / "papers" / f"{paper.name}-{size}"


def listed_in(folder: Path) -> Provenance | None:
    """What a folder of tables says of itself; None where it is none.

    Raises:
        RunError: it cannot be read.
    """
    try:
        return read_file(Provenance, folder) if (folder / PROVENANCE).exists() else None
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / PROVENANCE}: {in_one_line(error)}") from error


def contents(
    paper: Paper, target: str, size: str, grids: Mapping[str, Grid], root: Path
) -> dict[str, str]:
    """The files of tables, by name; the same runs give the same bytes."""
    made: dict[str, str] = {}
    numbers: dict[Markup, str] = {}
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for name, grid in grids.items():
        values: dict[str, Any] = {
            "sheet": sheet_of(grid, only_published=size == PUBLISHED),
            "legend": legend_of(paper, grid),
            "label": Markup(f"{paper.name}-{name}"),
        }
        for kind, shown in (("tex", in_latex), ("md", in_markdown), ("html", None)):
            made[f"{_file(name)}.{kind}"] = fill_template(
                _HERE, f"table.{kind}.j2", shown, **values
            )
        cells = {}
        for (row, column), entry in grid.entries.items():
            key = "/".join([name, _word(row), _word(column)])
            while key in cells:
                key += "-"
            cells[key] = {"row": row, "column": column, **_facts(entry)}
            numbers[Markup(key)] = entry.text
            cells[key]["runs"] = [_source(run, root) for run in entry.runs]
        tables[name] = cells
        made[f"{_file(name)}.csv"] = _sheet(cells.values())
    made["numbers.tex"] = fill_template(_HERE, "numbers.tex.j2", in_latex, numbers=numbers)
    names = [Markup(_file(name)) for name in grids]
    made["article.tex"] = fill_template(
        _HERE, "article.tex.j2", in_latex, title=paper.title, names=names
    )
    about = Provenance(paper=target, sha256=paper.sha256, size=size, tables=tables)
    made[PROVENANCE] = json_text(about.model_dump())
    return made


def legend_of(paper: Paper, grid: Grid) -> str:
    """What marks mean."""
    words = "Bold: best; underlined: second; in italics: stand-in data or missing."
    if any(entry.printed for entry in grid.entries.values()):
        words += f" With a dagger: {paper.source}, {printed_in(grid.name, grid.table)}, as printed."
    return words


def _file(table: str) -> str:
    return table if table.startswith("figure") else f"table-{table}"


def _word(name: str) -> str:
    """A name in the ASCII signs that a key of TeX may have."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", plain).strip("-" if plain[:1] != "-" else "") or "x"


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "state": state_of(entry),
        "text": entry.text,
        "value": entry.spread and entry.spread.mean,
        "std": entry.spread and entry.spread.std,
        "seeds": len(entry.by_seed),
        "published": entry.printed and entry.printed.printed,
        "comparable": entry.is_comparable,
        "notes": list(notes_of(entry)),
    }


def _source(run: ReportedRun, root: Path) -> dict[str, Any]:
    """A run, with the sum of its result."""
    return {
        "folder": str(run.folder.relative_to(root)),
        "experiment": run.experiment,
        "seed": run.seed,
        "sha256": hashlib.sha256(read_bytes(run.folder / RESULT)).hexdigest(),
    }


def _sheet(cells: Iterable[Mapping[str, Any]]) -> str:
    records = [{**cell, "notes": "; ".join(cell["notes"])} for cell in cells]
    columns = list(records[0]) if records else []
    return as_csv(records, [name for name in columns if name != "runs"])


def write_tables(folder: Path, files: Mapping[str, str]) -> None:
    """Write them; what says where they come from last."""
    for name, text in files.items():
        write_text(folder / name, text)


def verify_tables(folder: Path) -> Iterator[tuple[str, str]]:
    """Make the tables of a folder again, and hold its files against them; nothing is written.

    Yields:
        each file, and what is wrong with it, "" where nothing is.

    Raises:
        UserError: they cannot be made again.
    """
    about = listed_in(folder)
    assert about is not None
    paper = open_paper(about.paper)
    root = folder.absolute().parent.parent
    grids = grids_of(paper, about.size, about.tables, root)
    for name, text in contents(paper, about.paper, about.size, grids, root).items():
        path = folder / name
        is_same = path.exists() and read_bytes(path) == text.encode()
        yield name, "" if is_same else "not what its runs and its paper's file give"
