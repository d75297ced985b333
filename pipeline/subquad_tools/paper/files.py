"""A paper's tables as files, with where each number comes from; and whether such a folder is still
what its runs give.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from subquad.errors import RunError, in_one_line
from subquad.experiment import load_study
from subquad.output.markup import fill_template, in_latex
from subquad.record.files import json_text, read_bytes, read_file, write_text
from subquad.record.models import File
from subquad.record.names import RESULT
from subquad.reports import FORMATS, ReportDocument
from subquad.reports.reported_run import ReportedRun
from subquad.trained.verify import Verified
from subquad_tools.paper import PUBLISHED
from subquad_tools.paper.file import Paper, open_paper
from subquad_tools.paper.grid import Entry, fill
from subquad_tools.paper.measured import Measurements
from subquad_tools.paper.runs import OnDisk, Wanted, runs_on_disk
from subquad_tools.paper.sheet import section_of

_PROVENANCE = "provenance.json"

_HERE = "subquad_tools.paper"


class _Provenance(File):
    """Where the numbers of a folder come from.

    Attributes:
        paper: as it was named.
        sha256: of its file.
        size: of the runs, or `PUBLISHED`.
        tables: the cells of each, with their runs and the sums of their results.
    """

    FILE = _PROVENANCE
    format: Literal[1] = 1
    paper: str
    sha256: str
    size: str
    tables: dict[str, dict[str, dict[str, Any]]]


def build(
    paper: Paper, target: str, size: str, tables: Collection[str], root: Path
) -> tuple[dict[str, bytes], dict[str, ReportDocument]]:
    """The files of tables by name, and what each says; the same runs give the same bytes.

    Args:
        target: how the user names the paper.
        size: of the runs, or `PUBLISHED`.
        root: the folder that `runs` is in.

    Raises:
        UserError: see `Wanted`, and a result that is not that of its files.
    """
    is_published = size == PUBLISHED
    chosen = [name for name in paper.tables if name in tables]
    wanted = None if is_published else Wanted(paper, size, chosen, load_study)
    files: dict[str, bytes] = {}
    documents = {}
    numbers: dict[Markup, str] = {}
    cells_of: dict[str, dict[str, dict[str, Any]]] = {}
    there = runs_on_disk(root)
    for name, grid in fill(
        paper, chosen, wanted, there, measurements_in(tables_folder(paper, size, root), there)
    ).items():
        cells: dict[str, dict[str, Any]] = {}
        for key, entry in grid.shown.items():
            cells[_key(cells, name, *key)] = _facts(*key, entry)
        documents[name] = ReportDocument(
            title=f"{paper.said.title}: {name}",
            overview=(section_of(grid, only_published=is_published),),
            records=tuple(cells.values()),
        )
        files |= _rendered(name, documents[name])
        numbers |= {Markup(key): cell["text"] for key, cell in cells.items()}
        cells_of[name] = {
            key: {
                **cells[key],
                "runs": [_source(run, root) for run in entry.runs],
                "measured": entry.sources,
            }
            for key, entry in zip(cells, grid.shown.values(), strict=True)
        }
    names = {Markup(name): f"chart-{name}.pdf" in files for name in cells_of}
    for name, values in (("numbers", numbers), ("article", names)):
        files[f"{name}.tex"] = fill_template(
            _HERE, f"{name}.tex.j2", in_latex, paper=paper.said, values=values
        ).encode()
    about = _Provenance(paper=target, sha256=paper.sha256, size=size, tables=cells_of)
    files[_PROVENANCE] = json_text(about.model_dump()).encode()
    return files, documents


def _rendered(name: str, document: ReportDocument) -> dict[str, bytes]:
    """A table and its picture by the names of their files."""
    files = {f"table-{name}.{kind}": text(document).encode() for kind, text in FORMATS.items()}
    for chart in document.charts:
        files |= {f"chart-{name}.{kind}": chart.saved(kind) for kind in ("svg", "pdf")}
    return files


def _key(taken: Collection[str], *names: str) -> str:
    """`1/AGF/ListOps`, in signs that a name in TeX may have; the next of equal ones ends in a
    mark more.
    """
    key = "/".join(re.sub(r"[^A-Za-z0-9.+-]+", "-", name) for name in names)
    while key in taken:
        key += "+"
    return key


def _facts(row: str, column: str, entry: Entry) -> dict[str, Any]:
    spread = entry.spread
    return {
        "row": row,
        "column": column,
        "state": entry.state,
        "text": entry.text,
        "value": spread and spread.mean,
        "std": spread and spread.std,
        "seeds": len(entry.by_seed),
        "published": entry.printed and entry.printed.printed,
        "comparable": entry.is_comparable,
        "notes": "; ".join(entry.notes),
    }


def _source(run: ReportedRun, root: Path) -> dict[str, Any]:
    """A run, with the sum of its result."""
    return {
        "folder": str(run.folder.relative_to(root)),
        "experiment": run.experiment,
        "sha256": hashlib.sha256(read_bytes(run.folder / RESULT)).hexdigest(),
    }


def tables_folder(paper: Paper, size: str, root: Path) -> Path:
    """Of a paper's tables."""
    return root / "papers" / f"{paper.name}-{size}"


def measurements_in(folder: Path, there: Mapping[str, OnDisk]) -> Measurements:
    """Those of a folder of tables."""
    return Measurements(folder / "measured", there)


def write_tables(
    paper: Paper, target: str, size: str, tables: Collection[str], root: Path
) -> tuple[Path, list[ReportDocument]]:
    """Write tables to `papers/` in a root, with those that are there already. What says where
    they come from is written last.

    Returns:
        the folder, and what each of the tables says.
    """
    folder = tables_folder(paper, size, root)
    before = _read(folder).tables if is_of_tables(folder) else {}
    files, documents = build(paper, target, size, {*before, *tables}, root)
    for name, content in files.items():
        write_text(folder / name, content)
    return folder, [document for name, document in documents.items() if name in tables]


def _read(folder: Path) -> _Provenance:
    """What a folder of tables says of itself.

    Raises:
        RunError: it cannot be read.
    """
    try:
        return read_file(_Provenance, folder)
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / _PROVENANCE}: {in_one_line(error)}") from error


def is_of_tables(folder: Path) -> bool:
    """Whether a folder has a paper's tables."""
    return (folder / _PROVENANCE).exists()


def verify_tables(folder: Path) -> Iterator[Verified]:
    """Make the tables of a folder again, and hold its files against them; nothing is written.

    Raises:
        UserError: they cannot be made again.
    """
    about = _read(folder)
    paper = open_paper(about.paper)
    files, _ = build(paper, about.paper, about.size, about.tables, folder.absolute().parent.parent)
    for name, content in files.items():
        path = folder / name
        faults: tuple[str, ...] = ("not what its runs and the paper's file give",)
        if path.exists() and read_bytes(path) == content:
            faults = ()
        yield Verified(str(path), faults, "made again, every byte is the same")
