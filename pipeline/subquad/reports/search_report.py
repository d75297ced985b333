"""The report of a search: what each candidate's trials came to, then its final study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from subquad.output.terminal import DASH
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
    paths = sorted(
        filter(Path.is_file, folder.glob("plots/*.png")),
        key=lambda path: (not path.stem.startswith("best-so-far"), path),
    )
    return ReportDocument(
        title=f"Search {printable(f'{folder.parent.name}/{folder.name}')}",
        lead=tuple(map(printable, (_settings(summary), *_opened_before(summary), *left))),
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
    hint = "a space that all share, such as optimizer, gives all the same number of trials"
    how = f"{labels} (one trial each, as it stands); {hint}"
    line = printable(f"not tuned, as nothing of space {space} varies there: {how}")
    return (line,) if labels else ()


def print_candidates(summary: Values, console: Console) -> None:
    """Print the table of candidates, then lines on each."""
    print_document(ReportDocument(title="", overview=(_candidates(summary),)), console)


def _settings(summary: Values) -> str:
    """What was searched and how."""
    settings = summary["settings"]
    labels = [entry["label"] for entry in summary["candidates"]]
    whom = f"each of {len(labels)} candidates" if len(labels) > 1 else labels[0]
    parts = [f"{name} {settings[name]}" for name in ("space", "sampler", "pruner")]
    parts += [
        f"--{name} {settings[name]}" for name in ("match", "cost") if settings[name] != "none"
    ]
    parts.append(f"at most {settings['budget'].replace('-', ' ')} for {whom}")
    return f"{', '.join(parts)}, seed {settings['seed']}; selected on the validation split"


def _opened_before(summary: Values) -> Iterator[str]:
    """That other winners met the test split before the search was extended."""
    for name, labels in summary["earlier_finals"].items():
        if labels:
            winners = ", ".join(labels)
            yield f"the test split was opened before with other winners ({name}): {winners}"


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
    states: list[str] = list(_STATES)
    if any(entry["trials"]["running"] for entry in entries):
        states.append("unfinished")
    lines = [f"{entry['label']}: {line}" for entry in entries for line in _lines(entry)]
    finished = {entry["label"]: entry["trials"]["finished"] for entry in entries}
    if len(set(finished.values())) > 1:
        budgets = ", ".join(f"{label} {count}" for label, count in finished.items())
        lines.append(f"unequal budgets, trials that finished: {budgets}")
    return Section(
        title="Candidates",
        table=Table.of(
            [_cells(entry, states) for entry in entries],
            ("dims", *states, "steps", "FLOPs", "seconds", "best validation"),
        ),
        lines=tuple(map(printable, lines)),
    )


def _cells(candidate: Values, states: Sequence[str]) -> dict[str, str]:
    """The line of a candidate. `unfinished`: trials that are to come, run right now, or were
    interrupted; a folder cannot tell which.
    """
    best = candidate["best"]
    trials = candidate["trials"]
    flops = candidate["flops"]
    return {
        "candidate": printable(candidate["label"]),
        "dims": str(candidate["dimensions"]),
        **{state: str(trials.get(state, trials["running"])) for state in states},
        "steps": f"{candidate['steps']:,}",
        "FLOPs": "unknown" if flops is None else f"{flops:.4g}",
        "seconds": f"{candidate['seconds']:.1f}",
        "best validation": _value_text(candidate, best["value"]) if best else DASH,
    }


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
