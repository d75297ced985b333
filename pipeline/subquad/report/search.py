"""The report of a search: what each candidate's trials came to, then its final study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from subquad.metric import metric_of, read_metrics
from subquad.report.document import NEVER, ReportDocument, Section, Table, document_of
from subquad.report.formats import print_document
from subquad.report.report import read_report
from subquad.report.text import DASH, printable
from subquad.runs import FINAL, is_study, read_bytes, runs_below

_TOLD = ("finished", "pruned", "failed", "infeasible")
_UNITS = {"seconds": "s", "flops": "FLOPs"}


def search_document(folder: Path, summary: Mapping[str, Any], *, baseline: str | None = None) -> ReportDocument:
    """A search's report, at whatever point it stands.

    Args:
        folder: the search's.
        summary: what search.json holds.
        baseline: as for `read_report`, of the final study.

    Raises:
        RunError: a result of the final study cannot be read.
    """
    place, folder = folder / FINAL, folder.resolve()
    begun = is_study(place) and bool(runs_below(place))
    final = (
        document_of(read_report([place], baseline=baseline, search=summary))
        if begun
        else ReportDocument(title="", sections=())
    )
    left = _left(summary, [run.status == "finished" for run in final.runs])
    drawn = filter(Path.is_file, folder.glob("plots/*.png"))
    pictures = sorted(drawn, key=lambda path: (not path.stem.startswith("best-so-far"), path))
    return ReportDocument(
        title=f"Search {printable(f'{folder.parent.name}/{folder.name}')}",
        lead=(_asked(summary), *_opened_before(summary), *left),
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


def _final(sections: Sequence[Section], summary: Mapping[str, Any]) -> Iterator[Section]:
    """Those of the final study; beside its table stands which rows were not tuned."""
    note = untuned(summary["settings"]["space"], {one["label"]: one["dimensions"] for one in summary["candidates"]})
    for number, one in enumerate(sections):
        yield replace(one, title=f"Final study: {one.title}", lines=(*(() if number else note), *one.lines))


def untuned(space: str, dimensions: Mapping[str, int]) -> tuple[str, ...]:
    """Which candidates have nothing to vary, in one line; none where all have.

    Args:
        dimensions: how many settings of each candidate are searched, by label.
    """
    if not (idle := [label for label, count in dimensions.items() if not count]):
        return ()
    said = f"not tuned, as nothing of space {space} varies there: {', '.join(idle)} (one trial each, as it stands); "
    return (printable(f"{said}a space that all share, such as optimizer, gives all the same number of trials"),)


def print_candidates(summary: Mapping[str, Any], console: Console) -> None:
    """Print the table of candidates, then lines on each."""
    print_document(ReportDocument(title="", sections=(_candidates(summary),)), console)


def _asked(summary: Mapping[str, Any]) -> str:
    """What was searched and how."""
    settings, candidates = summary["settings"], summary["candidates"]
    whom = f"each of {len(candidates)} candidates" if len(candidates) > 1 else candidates[0]["label"]
    parts = [f"sampler {settings['sampler']}, pruner {settings['pruner']}"]
    parts += [f"--{name} {settings[name]}" for name in ("match", "cost") if settings[name] != "none"]
    parts += [f"at most {settings['budget'].replace('-', ' ')} for {whom}", f"seed {settings['seed']}"]
    return printable(f"space {settings['space']}, {', '.join(parts)}; selected on the validation split")


def _opened_before(summary: Mapping[str, Any]) -> Iterator[str]:
    """That other winners met the test split before the search was extended."""
    for name, labels in summary["earlier_finals"].items():
        if labels:
            runs = ", ".join(labels)
            yield printable(f"the test split was opened before with other winners ({name}): {runs}")


def _left(summary: Mapping[str, Any], done: Sequence[bool]) -> list[str]:
    """What is left to do; a folder cannot tell whether somebody is at it. `done`: the runs of the final study."""
    if open_ones := [one["label"] for one in summary["candidates"] if not one["over"] or _unended(one)]:
        return [printable(f"unfinished, still running or interrupted: trials of {', '.join(open_ones)}")]
    if all(done) and (done or not any(one["best"] for one in summary["candidates"])):
        return []  # without a best trial the final study never comes
    if not done:
        return ["unfinished: all trials ended, the final study has not begun"]
    return [f"unfinished: {sum(done)} of {len(done)} runs of the final study finished"]


def _unended(candidate: Mapping[str, Any]) -> int:
    """Trials that are to come, run right now, or were interrupted: a folder cannot tell which."""
    return candidate["trials"]["waiting"] + candidate["trials"]["running"]


def _candidates(summary: Mapping[str, Any]) -> Section:
    """How each was searched, its trials by state, what they consumed, and the best one."""
    candidates, settings = summary["candidates"], summary["settings"]
    states = (*_TOLD, *(("unfinished",) if any(map(_unended, candidates)) else ()))
    cells = [
        {
            "candidate": printable(one["label"]),
            "sampler": settings["sampler"],
            "pruner": settings["pruner"],
            "dims": str(one["dimensions"]),
            **{state: str(one["trials"].get(state, _unended(one))) for state in states},
            "steps": f"{one['steps']:,}",
            "FLOPs": "unknown" if one["flops"] is None else f"{one['flops']:.4g}",
            "seconds": f"{one['seconds']:.1f}",
            "best validation": _best(one) if one["best"] else DASH,
            "winning point": f"trial {one['best']['number']}: {point_text(one['best']['point'])}"
            if one["best"]
            else DASH,
        }
        for one in candidates
    ]
    numeric = ("dims", *states, "steps", "FLOPs", "seconds", "best validation")
    ranks: dict[str, int] = dict.fromkeys(("sampler", "pruner", "best validation", "winning point"), NEVER)
    lines = [f"{one['label']}: {line}" for one in candidates for line in _lines(one)]
    finished = [one["trials"]["finished"] for one in candidates]
    if len(set(finished)) > 1:
        told = ", ".join(f"{one['label']} {count}" for one, count in zip(candidates, finished, strict=True))
        lines.append(f"unequal budgets, trials that finished: {told}")
    return Section(title="Candidates", table=Table.of(cells, numeric, ranks), lines=tuple(map(printable, lines)))


def _best(one: Mapping[str, Any]) -> str:
    return _said(one, one["best"]["value"])


def _said(candidate: Mapping[str, Any], value: float) -> str:
    """`accuracy 91.23 %`: a value of what a candidate's trials are judged by."""
    metric = metric_of(read_metrics(candidate.get("metrics")), candidate["metric"])
    return printable(metric.text(value))


def point_text(point: Mapping[str, Any]) -> str:
    """`train.lr=0.001 mixer.params.order=4`."""
    told = [f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in point.items()]
    return printable(" ".join(told)) or "nothing was searched"


def _lines(candidate: Mapping[str, Any]) -> Iterator[str]:
    """The best trial, the front of two objectives, why trials did not run, and why there were no more."""
    best = candidate["best"]
    if best:
        where = f"best trial {best['number']}, validation {_said(candidate, best['value'])} at step {best['step']}"
        yield f"{where}: {point_text(best['point'])}"
    for one in candidate["front"] or ():
        cost = f"{one['cost']:.4g} {_UNITS[candidate['cost']]}"
        yield f"front: trial {one['number']}, {_said(candidate, one['value'])} for {cost}: {point_text(one['point'])}"
    if candidate["front"] == []:
        yield "front: no finished trial has both a value and a cost"
    yield from candidate["reasons"]
    if candidate["dimensions"] and candidate["over"] not in ("", "budget used"):
        yield candidate["over"]


def _record(one: Mapping[str, Any]) -> dict[str, Any]:
    told = {name: one[name] for name in ("dimensions", "trials", "steps", "flops", "seconds", "metric")}
    told["flops"] = "unknown" if one["flops"] is None else one["flops"]
    best = one["best"] and {**one["best"], "point": point_text(one["best"]["point"])}
    return {"kind": "search", "candidate": one["label"], **told, "best": best or {}, "over": one["over"]}
