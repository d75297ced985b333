"""Writing a report's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from subquad.errors import ConfigError
from subquad.report import markdown, page, sensitivity_plot, sheet
from subquad.report.build import Report
from subquad.runs import write_text
from subquad.suggest import did_you_mean

Reported = TypeVar("Reported")

WRITERS = {"md": markdown.render, "csv": sheet.render, "html": page.render}
"""Format -> what renders it."""

FORMATS = tuple(WRITERS)
PICTURES = "sensitivity"


def parse_formats(text: str) -> tuple[str, ...]:
    """Formats from `md,csv,html`.

    Raises:
        ConfigError: one is unknown, or there is none.
    """
    chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in chosen or ("",):
        if name not in WRITERS:
            raise ConfigError(f"--format: {name!r} is none of {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}")
    return chosen


def write(report: Report, folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `report.<format>` files; the same runs give the same bytes.

    Returns:
        the files written, in the order of `formats`; with the page, pictures of varied settings after them.
    """
    written = write_with(WRITERS, report, folder, formats)
    return [*written, *write_pictures(report, folder)] if "html" in formats else written


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write a picture of each varied setting into `sensitivity/`."""
    paths = [folder / PICTURES / name for name in sensitivity_plot.file_names(report.sensitivities)]
    for path, one in zip(paths, report.sensitivities, strict=True):
        write_text(path, sensitivity_plot.to_file(one))
    return paths


def write_with(
    writers: Mapping[str, Callable[[Reported], str]], report: Reported, folder: Path, formats: Sequence[str]
) -> list[Path]:
    """The same with other writers, by format."""
    paths = [folder / f"report.{name}" for name in formats]
    for path, name in zip(paths, formats, strict=True):
        write_text(path, writers[name](report))
    return paths
