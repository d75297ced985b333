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
    place, folder = folder / FINAL, folder.resolve()
    final = ReportDocument(title="", sections=())
    if is_study(place) and runs_below(place):
        final = document_of(read_report([place], baseline=baseline, search=summary))
    left = _left(summary, [run.status == "finished" for run in final.runs])
    drawn = filter(Path.is_file, folder.glob("plots/*.png"))
    pictures = sorted(drawn, key=lambda path: (not path.stem.startswith("best-so-far"), path))
    return ReportDocument(
        title=f"Search {printable(f'{folder.parent.name}/{folder.name}')}",
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
    settings, candidates = summary["settings"], summary["candidates"]
    each = f"each of {len(candidates)} candidates"
    whom = each if len(candidates) > 1 else candidates[0]["label"]
    given = [name for name in ("match", "cost") if settings[name] != "none"]
    parts = [
        f"space {settings['space']}",
        f"sampler {settings['sampler']}",
        f"pruner {settings['pruner']}",
        *(f"--{name} {settings[name]}" for name in given),
        f"at most {settings['budget'].replace('-', ' ')} for {whom}",
        f"seed {settings['seed']}",
    ]
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
    candidates, settings = summary["candidates"], summary["settings"]
    states = (*_STATES, *(["unfinished"] if any(map(_unended, candidates)) else []))
    cells, lines = [], []
    for entry in candidates:
        best, flops = entry["best"], entry["flops"]
        cells.append(
            {
                "candidate": printable(entry["label"]),
                "sampler": settings["sampler"],
                "pruner": settings["pruner"],
                "dims": str(entry["dimensions"]),
                **{state: str(entry["trials"].get(state, _unended(entry))) for state in states},
                "steps": f"{entry['steps']:,}",
                "FLOPs": "unknown" if flops is None else f"{flops:.4g}",
                "seconds": f"{entry['seconds']:.1f}",
                "best validation": _value_text(entry, best["value"]) if best else DASH,
                "winning point": f"trial {best['number']}: {point_text(best['point'])}"
                if best
                else DASH,
            }
        )
        lines += [f"{entry['label']}: {line}" for line in _lines(entry)]
    finished = [entry["trials"]["finished"] for entry in candidates]
    if len(set(finished)) > 1:
        named = zip([entry["label"] for entry in candidates], finished, strict=True)
        budgets = ", ".join(f"{label} {count}" for label, count in named)
        lines.append(f"unequal budgets, trials that finished: {budgets}")
    numeric = ("dims", *states, "steps", "FLOPs", "seconds", "best validation")
    hidden = ("sampler", "pruner", "best validation", "winning point")
    return Section(
        title="Candidates",
        table=Table.of(cells, numeric, dict.fromkeys(hidden, NEVER)),
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
    return printable(" ".join(words)) or "nothing was searched"


def _lines(candidate: Values) -> Iterator[str]:
    """The best trial, the front of two objectives, why trials did not run, and why there were no
    more.
    """
    if best := candidate["best"]:
        value = _value_text(candidate, best["value"])
        where = f"best trial {best['number']}, validation {value} at step {best['step']}"
        yield f"{where}: {point_text(best['point'])}"
    for trial in candidate["front"] or ():
        cost = f"{trial['cost']:.4g} {_UNITS[candidate['cost']]}"
        value = _value_text(candidate, trial["value"])
        yield f"front: trial {trial['number']}, {value} for {cost}: {point_text(trial['point'])}"
    if candidate["front"] == []:
        yield "front: no finished trial has both a value and a cost"
    yield from candidate["reasons"]
    if candidate["dimensions"] and candidate["over"] not in ("", "budget used"):
        yield candidate["over"]


def _record(candidate: Values) -> Values:
    names = ("dimensions", "trials", "steps", "flops", "seconds", "metric", "best", "over")
    own = {name: candidate[name] for name in names}
    own["flops"] = "unknown" if own["flops"] is None else own["flops"]
    best = own["best"] or {}
    own["best"] = {**best, "point": point_text(best["point"])} if best else {}
    return {"kind": "search", "candidate": candidate["label"], **own}
