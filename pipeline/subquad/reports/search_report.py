"""The report of a search: what each candidate's trials came to, then its final study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from subquad.metric import metric_of, read_metrics
from subquad.reports.document import NEVER, ReportDocument, Section, Table
from subquad.reports.formats import print_document
from subquad.reports.report import read_report
from subquad.reports.sections import document_of
from subquad.reports.text import Values, printable
from subquad.runs import FINAL, is_study, read_bytes, runs_below
from subquad.terminal import DASH

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
    final = ReportDocument(title="", sections=())
    if is_study(place) and runs_below(place):
        report = read_report([place], baseline=baseline, search=summary)
        final = document_of(report)
    left = _left(summary, [run.status == "finished" for run in final.runs])
    drawn = filter(Path.is_file, folder.glob("plots/*.png"))
    pictures = sorted(drawn, key=lambda path: (not path.stem.startswith("best-so-far"), path))
    name = f"{folder.parent.name}/{folder.name}"
    return ReportDocument(
        title=f"Search {printable(name)}",
        lead=(_settings(summary), *_opened_before(summary), *left),
        sections=(_candidates(summary), *_final(final.sections, summary)),
        runs=final.runs,
        pictures={printable(path.stem): read_bytes(path) for path in pictures},
        records=(*map(_record, summary["candidates"]), *final.records),
        values={
            "format": 1,
            "search": summary,
            "finished": not left,
            "final": final.values or None,
            "pictures": [str(path) for path in pictures],
        },
    )


def _final(sections: Sequence[Section], summary: Values) -> Iterator[Section]:
    """Those of the final study; beside its table stands which rows were not tuned."""
    dimensions = {entry["label"]: entry["dimensions"] for entry in summary["candidates"]}
    note = untuned(summary["settings"]["space"], dimensions)
    for section in sections:
        lines = (*note, *section.lines)
        yield replace(section, title=f"Final study: {section.title}", lines=lines)
        note = ()


def untuned(space: str, dimensions: Mapping[str, int]) -> tuple[str, ...]:
    """Which candidates have nothing to vary, in one line; none where all have.

    Args:
        dimensions: how many settings of each candidate are searched, by label.
    """
    idle = ", ".join(label for label, count in dimensions.items() if not count)
    if not idle:
        return ()
    why = f"not tuned, as nothing of space {space} varies there"
    how = f"{idle} (one trial each, as it stands)"
    hint = "a space that all share, such as optimizer, gives all the same number of trials"
    return (printable(f"{why}: {how}; {hint}"),)


def print_candidates(summary: Values, console: Console) -> None:
    """Print the table of candidates, then lines on each."""
    print_document(ReportDocument(title="", sections=(_candidates(summary),)), console)


def _settings(summary: Values) -> str:
    """What was searched and how."""
    settings = summary["settings"]
    candidates = summary["candidates"]
    whom = candidates[0]["label"]
    if len(candidates) > 1:
        whom = f"each of {len(candidates)} candidates"
    parts = [f"{name} {settings[name]}" for name in ("space", "sampler", "pruner")]
    for name in ("match", "cost"):
        if settings[name] != "none":
            parts.append(f"--{name} {settings[name]}")
    budget = settings["budget"].replace("-", " ")
    parts.append(f"at most {budget} for {whom}")
    parts.append(f"seed {settings['seed']}")
    return printable(f"{', '.join(parts)}; selected on the validation split")


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
    under_way = [entry["label"] for entry in candidates if not entry["over"] or _unended(entry)]
    if under_way:
        still = "unfinished, still running or interrupted"
        return [printable(f"{still}: trials of {', '.join(under_way)}")]
    if all(done) and (done or not any(entry["best"] for entry in candidates)):
        return []  # without a best trial the final study never comes
    if not done:
        return ["unfinished: all trials ended, the final study has not begun"]
    return [f"unfinished: {sum(done)} of {len(done)} runs of the final study finished"]


def _unended(candidate: Values) -> int:
    """Trials that are to come, run right now, or were interrupted: a folder cannot tell which."""
    return candidate["trials"]["waiting"] + candidate["trials"]["running"]


def _candidates(summary: Values) -> Section:
    """How each was searched, its trials by state, what they consumed, and the best one."""
    candidates = summary["candidates"]
    states: list[str] = list(_STATES)
    if any(map(_unended, candidates)):
        states.append("unfinished")
    cells = []
    lines = []
    finished = {}
    for entry in candidates:
        label = entry["label"]
        cells.append(_cells(entry, summary["settings"], states))
        lines += [f"{label}: {line}" for line in _lines(entry)]
        finished[label] = entry["trials"]["finished"]
    if len(set(finished.values())) > 1:
        budgets = ", ".join(f"{label} {count}" for label, count in finished.items())
        lines.append(f"unequal budgets, trials that finished: {budgets}")
    numeric = ("dims", *states, "steps", "FLOPs", "seconds", "best validation")
    hidden = ("sampler", "pruner", "best validation", "winning point")
    return Section(
        title="Candidates",
        table=Table.of(cells, numeric, dict.fromkeys(hidden, NEVER)),
        lines=tuple(map(printable, lines)),
    )


def _cells(candidate: Values, settings: Values, states: Sequence[str]) -> dict[str, str]:
    """The line of a candidate."""
    best = candidate["best"]
    value = point = DASH
    if best:
        value = _value_text(candidate, best["value"])
        point = f"trial {best['number']}: {point_text(best['point'])}"
    trials = candidate["trials"]
    unended = _unended(candidate)
    flops = candidate["flops"]
    return {
        "candidate": printable(candidate["label"]),
        "sampler": settings["sampler"],
        "pruner": settings["pruner"],
        "dims": str(candidate["dimensions"]),
        **{state: str(trials.get(state, unended)) for state in states},
        "steps": f"{candidate['steps']:,}",
        "FLOPs": "unknown" if flops is None else f"{flops:.4g}",
        "seconds": f"{candidate['seconds']:.1f}",
        "best validation": value,
        "winning point": point,
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
    return printable(" ".join(words)) or "nothing was searched"


def _lines(candidate: Values) -> Iterator[str]:
    """The best trial, the front of two objectives, why trials did not run, and why there were no
    more.
    """
    if best := candidate["best"]:
        value = _value_text(candidate, best["value"])
        point = point_text(best["point"])
        where = f"best trial {best['number']}, validation {value} at step {best['step']}"
        yield f"{where}: {point}"
    for trial in candidate["front"] or ():
        unit = _UNITS[candidate["cost"]]
        cost = f"{trial['cost']:.4g} {unit}"
        value = _value_text(candidate, trial["value"])
        point = point_text(trial["point"])
        yield f"front: trial {trial['number']}, {value} for {cost}: {point}"
    if candidate["front"] == []:
        yield "front: no finished trial has both a value and a cost"
    yield from candidate["reasons"]
    if candidate["dimensions"] and candidate["over"] not in ("", "budget used"):
        yield candidate["over"]


def _record(candidate: Values) -> Values:
    names = ("dimensions", "trials", "steps", "flops", "seconds", "metric", "best", "over")
    record = {"kind": "search", "candidate": candidate["label"]}
    for name in names:
        record[name] = candidate[name]
    if record["flops"] is None:
        record["flops"] = "unknown"
    best = dict(record["best"] or {})
    if best:
        best["point"] = point_text(best["point"])
    record["best"] = best
    return record
