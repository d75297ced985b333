"""The report of a search: what each candidate's trials came to, then its final study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from subquad.reports.report import read_report
from subquad.reports.sections import document_of
from subquad.reports.text import Values, printable

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
    left = _left(summary, [run.status == "finished" for run in final.runs])
    drawn = filter(Path.is_file, folder.glob("plots/*.png"))
    paths = sorted(drawn, key=lambda path: (not path.stem.startswith("best-so-far"), path))
    pictures = {}
    for path in paths:
        pictures[printable(path.stem)] = read_bytes(path)
    name = printable(f"{folder.parent.name}/{folder.name}")
    records = map(_record, summary["candidates"])
    return ReportDocument(
        title=f"Search {name}",
        lead=(_settings(summary), *_opened_before(summary), *left),
        overview=(_candidates(summary), *_in_final(final.overview)),
        summary=(*idle, *final.summary),
        sections=tuple(_in_final(final.sections)),
        runs=final.runs,
        pictures=pictures,
        records=(*records, *final.records),
        values={
            "format": 1,
            "search": summary,
            "finished": not left,
            "final": final.values or None,
            "pictures": list(map(str, paths)),
        },
    )


def _in_final(sections: Iterable[Section]) -> Iterator[Section]:
    for section in sections:
        yield replace(section, title=f"Final study: {section.title}")


def untuned(space: str, dimensions: Mapping[str, int]) -> tuple[str, ...]:
    """Which candidates have nothing to vary, in one line; none where all have.

    Args:
        dimensions: how many settings of each candidate are searched, by label.
    """
    idle = [label for label, count in dimensions.items() if not count]
    if not idle:
        return ()
    labels = ", ".join(idle)
    why = f"not tuned, as nothing of space {space} varies there"
    how = f"{labels} (one trial each, as it stands)"
    hint = "a space that all share, such as optimizer, gives all the same number of trials"
    return (printable(f"{why}: {how}; {hint}"),)


def print_candidates(summary: Values, console: Console) -> None:
    """Print the table of candidates, then lines on each."""
    print_document(ReportDocument(title="", overview=(_candidates(summary),)), console)


def _settings(summary: Values) -> str:
    """What was searched and how."""
    settings = summary["settings"]
    candidates = summary["candidates"]
    count = len(candidates)
    whom = candidates[0]["label"]
    if count > 1:
        whom = f"each of {count} candidates"
    parts = []
    for name in ("space", "sampler", "pruner"):
        value = settings[name]
        parts.append(f"{name} {value}")
    for name in ("match", "cost"):
        value = settings[name]
        if value != "none":
            parts.append(f"--{name} {value}")
    budget = settings["budget"].replace("-", " ")
    seed = settings["seed"]
    parts.append(f"at most {budget} for {whom}")
    parts.append(f"seed {seed}")
    words = ", ".join(parts)
    return printable(f"{words}; selected on the validation split")


def _opened_before(summary: Values) -> Iterator[str]:
    """That other winners met the test split before the search was extended."""
    for name, labels in summary["earlier_finals"].items():
        if labels:
            runs = ", ".join(labels)
            yield printable(f"the test split was opened before with other winners ({name}): {runs}")


def _left(summary: Values, done: Sequence[bool]) -> list[str]:
    """What is left to do; a folder cannot tell whether somebody is at it. `done`: the runs of
    the final study.
    """
    candidates = summary["candidates"]
    under_way = []
    has_best = False
    for entry in candidates:
        if entry["best"]:
            has_best = True
        if not entry["over"] or _unended(entry):
            under_way.append(entry["label"])
    if under_way:
        labels = ", ".join(under_way)
        return [printable(f"unfinished, still running or interrupted: trials of {labels}")]
    if not done:
        if not has_best:
            return []  # without a best trial the final study never comes
        return ["unfinished: all trials ended, the final study has not begun"]
    if all(done):
        return []
    return [f"unfinished: {sum(done)} of {len(done)} runs of the final study finished"]


def _unended(candidate: Values) -> int:
    """Trials that are to come, run right now, or were interrupted: a folder cannot tell which."""
    return candidate["trials"]["running"]


def _candidates(summary: Values) -> Section:
    """How each was searched, its trials by state, what they consumed, and the best one."""
    candidates = summary["candidates"]
    states: list[str] = list(_STATES)
    if any(map(_unended, candidates)):
        states.append("unfinished")
    cells = []
    lines = []
    finished = []
    counts = set[int]()
    for entry in candidates:
        label = entry["label"]
        cells.append(_cells(entry, states))
        lines += [f"{label}: {line}" for line in _lines(entry)]
        count = entry["trials"]["finished"]
        finished.append(f"{label} {count}")
        counts.add(count)
    if len(counts) > 1:
        budgets = ", ".join(finished)
        lines.append(f"unequal budgets, trials that finished: {budgets}")
    numeric = ("dims", *states, "steps", "FLOPs", "seconds", "best validation")
    return Section(
        title="Candidates",
        table=Table.of(cells, numeric),
        lines=tuple(map(printable, lines)),
    )


def _cells(candidate: Values, states: Sequence[str]) -> dict[str, str]:
    """The line of a candidate."""
    best = candidate["best"]
    value = _value_text(candidate, best["value"]) if best else DASH
    trials = candidate["trials"]
    unended = _unended(candidate)
    by_state = {state: str(trials.get(state, unended)) for state in states}
    flops = "unknown"
    if candidate["flops"] is not None:
        flops = f"{candidate['flops']:.4g}"
    return {
        "candidate": printable(candidate["label"]),
        "dims": str(candidate["dimensions"]),
        **by_state,
        "steps": f"{candidate['steps']:,}",
        "FLOPs": flops,
        "seconds": f"{candidate['seconds']:.1f}",
        "best validation": value,
    }


def _value_text(candidate: Values, value: float) -> str:
    """`accuracy 91.23 %`: a value of what a candidate's trials are judged by."""
    metric = metric_of(read_metrics(candidate.get("metrics")), candidate["metric"])
    return printable(metric.text(value))


def point_text(point: Values) -> str:
    """`train.lr=0.001 mixer.params.order=4`."""
    words = []
    for key, value in point.items():
        text = f"{value:.4g}" if isinstance(value, float) else value
        words.append(f"{key}={text}")
    if not words:
        return "nothing was searched"
    return printable(" ".join(words))


def _lines(candidate: Values) -> Iterator[str]:
    """The best trial, the front of two objectives, why trials did not run, and why there were no
    more.
    """
    if best := candidate["best"]:
        number = best["number"]
        step = best["step"]
        value = _value_text(candidate, best["value"])
        point = point_text(best["point"])
        yield f"best trial {number}, validation {value} at step {step}: {point}"
    front = candidate["front"]
    for trial in front or ():
        number = trial["number"]
        unit = _UNITS[candidate["cost"]]
        cost = f"{trial['cost']:.4g} {unit}"
        value = _value_text(candidate, trial["value"])
        point = point_text(trial["point"])
        yield f"front: trial {number}, {value} for {cost}: {point}"
    if front == []:
        yield "front: no finished trial has both a value and a cost"
    yield from candidate["reasons"]
    over = candidate["over"]
    if candidate["dimensions"] and over not in ("", "budget used"):
        yield over


def _record(candidate: Values) -> Values:
    flops = candidate["flops"]
    best = dict(candidate["best"] or {})
    if best:
        best["point"] = point_text(best["point"])
    return {
        "kind": "search",
        "candidate": candidate["label"],
        "dimensions": candidate["dimensions"],
        "trials": candidate["trials"],
        "steps": candidate["steps"],
        "flops": "unknown" if flops is None else flops,
        "seconds": candidate["seconds"],
        "metric": candidate["metric"],
        "best": best,
        "over": candidate["over"],
    }
