"""The report of a search: what each candidate's trials came to, then its final study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from subquad.plugin.metric import metric_of, read_metrics
from subquad.record.files import read_bytes
from subquad.record.layout import is_study, runs_below
from subquad.record.names import FINAL
from subquad.reports.document import ReportDocument, Section, Table
from subquad.reports.formats import print_document
from subquad.reports.reading import read_report
from subquad.reports.reported_run import printable
from subquad.reports.sections import document_of
from subquad.reports.text import Values

_STATES = ("finished", "pruned", "failed", "infeasible")
_UNITS = {"seconds": "s", "flops": "FLOPs"}


def search_document(
    folder: Path, summary: Values, *, baseline: str | None = None
) -> ReportDocument:
    """A search's report, at whatever point it stands.

    Args:
        folder: the search's.
        summary: what search.json holds.
        baseline: as for `read_report`, of the final study.

    Raises:
        RunError: a result of the final study cannot be read.
    """
    place = folder / FINAL
    folder = folder.resolve()
    final = ReportDocument(title="")
    idle: tuple[str, ...] = ()
    if is_study(place) and runs_below(place):
        final = document_of(read_report([place], baseline=baseline, search=summary))
        dimensions = {entry["label"]: entry["dimensions"] for entry in summary["candidates"]}
        idle = untuned(summary["settings"]["space"], dimensions)
    left = tuple(_left(summary, [run.status == "finished" for run in final.runs]))
    opened = [
        f"the test split was opened before with other winners ({name}): {', '.join(labels)}"
        for name, labels in summary["earlier_finals"].items()
        if labels
    ]
    paths = sorted(
        filter(Path.is_file, folder.glob("plots/*.png")),
        key=lambda path: (not path.stem.startswith("best-so-far"), path),
    )
    return ReportDocument(
        title=f"Search {printable(f'{folder.parent.name}/{folder.name}')}",
        lead=tuple(map(printable, (_settings(summary), *opened, *left))),
        overview=(_candidates(summary), *map(_in_final, final.overview)),
        summary=(*idle, *final.summary),
        sections=tuple(map(_in_final, final.sections)),
        runs=final.runs,
        pictures={printable(path.stem): read_bytes(path) for path in paths},
        records=(*map(_record, summary["candidates"]), *final.records),
        values={
            "format": 1,
            "search": summary,
            "finished": not left,
            "final": final.values or None,
            "pictures": list(map(str, paths)),
        },
    )


def _in_final(section: Section) -> Section:
    return replace(section, title=f"Final study: {section.title}")


def untuned(space: str, dimensions: Mapping[str, int]) -> tuple[str, ...]:
    """Which candidates have nothing to vary, in one line; none where all have.

    Args:
        dimensions: how many settings of each candidate are searched, by label.
    """
    labels = ", ".join(label for label, count in dimensions.items() if not count)
    line = (
        f"not tuned, as nothing of space {space} varies there: {labels} (one trial each, as it "
        "stands); a space that all share, such as optimizer, gives all the same number of trials"
    )
    return (printable(line),) if labels else ()


def print_candidates(summary: Values, console: Console) -> None:
    """Print the table of candidates, then lines on each."""
    print_document(ReportDocument(title="", overview=(_candidates(summary),)), console)


def _settings(summary: Values) -> str:
    """What was searched and how."""
    settings = summary["settings"]
    labels = [entry["label"] for entry in summary["candidates"]]
    whom = f"each of {len(labels)} candidates" if len(labels) > 1 else labels[0]
    how = "space {space}, sampler {sampler}, pruner {pruner}".format_map(settings)
    for name in ("match", "cost"):
        if settings[name] != "none":
            how += f", --{name} {settings[name]}"
    budget = f"at most {settings['budget'].replace('-', ' ')} for {whom}, seed {settings['seed']}"
    return f"{how}, {budget}; selected on the validation split"


def _left(summary: Values, done: Sequence[bool]) -> Iterator[str]:
    """What is left to do; a folder cannot tell whether somebody is at it. `done`: the runs of
    the final study.
    """
    candidates = summary["candidates"]
    under_way = [
        entry["label"] for entry in candidates if not entry["over"] or entry["trials"]["running"]
    ]
    if under_way:
        yield f"unfinished, still running or interrupted: trials of {', '.join(under_way)}"
    elif not all(done):
        yield f"unfinished: {sum(done)} of {len(done)} runs of the final study finished"
    elif not done and any(entry["best"] for entry in candidates):
        # without a best trial the final study never comes
        yield "unfinished: all trials ended, the final study has not begun"


def _candidates(summary: Values) -> Section:
    """How each was searched, its trials by state, what they consumed, and the best one."""
    entries = summary["candidates"]
    # unfinished: to come, run right now, or interrupted; a folder cannot tell which
    is_left = any(entry["trials"]["running"] for entry in entries)
    states = (*_STATES, "unfinished") if is_left else _STATES
    cells = []
    lines = []
    for entry in entries:
        label = entry["label"]
        best = entry["best"]
        trials = entry["trials"]
        cells.append(
            {
                "candidate": printable(label),
                "dims": str(entry["dimensions"]),
                **{state: str(trials.get(state, trials["running"])) for state in states},
                "steps": f"{entry['steps']:,}",
                "FLOPs": "unknown" if entry["flops"] is None else f"{entry['flops']:.4g}",
                "seconds": f"{entry['seconds']:.1f}",
                "best validation": _value_text(entry, best["value"]) if best else "",
            }
        )
        lines += [f"{label}: {line}" for line in _lines(entry)]
    if len({entry["trials"]["finished"] for entry in entries}) > 1:
        budgets = [f"{entry['label']} {entry['trials']['finished']}" for entry in entries]
        lines.append(f"unequal budgets, trials that finished: {', '.join(budgets)}")
    return Section(
        title="Candidates",
        table=Table.of(cells, ("dims", *states, "steps", "FLOPs", "seconds", "best validation")),
        lines=tuple(map(printable, lines)),
    )


def _value_text(candidate: Values, value: float) -> str:
    """`accuracy 91.23 %`: a value of what a candidate's trials are judged by."""
    metric = metric_of(read_metrics(candidate.get("metrics")), candidate["metric"])
    return printable(metric.text(value))


def point_text(point: Values) -> str:
    """`train.lr=0.001 mixer.params.order=4`."""
    words = [
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in point.items()
    ]
    return printable(" ".join(words) or "nothing was searched")


def _lines(candidate: Values) -> Iterator[str]:
    """The best trial, the front of two objectives, why trials did not run, and why there were no
    more.
    """
    if best := candidate["best"]:
        value = f"{_value_text(candidate, best['value'])} at step {best['step']}"
        yield f"best trial {best['number']}, validation {value}: {point_text(best['point'])}"
    for trial in candidate["front"] or ():
        cost = f"{trial['cost']:.4g} {_UNITS[candidate['cost']]}"
        value = f"{_value_text(candidate, trial['value'])} for {cost}"
        yield f"front: trial {trial['number']}, {value}: {point_text(trial['point'])}"
    if candidate["front"] == []:
        yield "front: no finished trial has both a value and a cost"
    yield from candidate["reasons"]
    if candidate["dimensions"] and candidate["over"] not in ("", "budget used"):
        yield candidate["over"]


def _record(candidate: Values) -> Values:
    best = candidate["best"]
    known = ("dimensions", "trials", "steps", "seconds", "metric", "over")
    return {
        "kind": "search",
        "candidate": candidate["label"],
        **{name: candidate[name] for name in known},
        "flops": "unknown" if candidate["flops"] is None else candidate["flops"],
        "best": {**best, "point": point_text(best["point"])} if best else {},
    }
