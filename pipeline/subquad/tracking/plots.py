"""Curves as PNG files, drawn from run directories. No global figure state is used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from subquad.disk import replacing
from subquad.metric import Metric, metric_of, read_metrics
from subquad.runs import Place, read_new, read_result

_Curve = tuple[list[int], list[float]]
_SIZE, _DPI = (7.2, 4.2), 120
_LEGEND_ROWS = 12
_STYLES = ("-", "--", ":", "-.")


def draw_run(run: Path, out: Path) -> list[Path]:
    """Loss, evaluation metric and learning rate of a run over steps; a plot without any value is left out."""
    result, curves = read_result(run) or {}, _curves_of(run)
    metric = result.get("metric") or _main_metric(curves)
    shown = metric_of(read_metrics(result.get("metrics")), metric)
    title = str(result.get("label") or run.name)
    name = "".join(character if character.isalnum() or character in "-_" else "_" for character in metric)
    plots = {  # where the metric is the loss, both are one plot
        "loss": ("loss", {}),
        name: (shown.with_unit, _scaled(shown, _of_splits(curves, metric))),
        "learning_rate": ("learning rate", {"learning rate": curves.get("train/lr")}),
    }
    plots["loss"] = ("loss", {"train": curves.get("train/loss"), **_of_splits(curves, "loss")})
    made = [_draw(out / f"{name}.png", title, ylabel, drawn) for name, (ylabel, drawn) in plots.items()]
    return [path for path in made if path]


def draw_study(runs: Sequence[Path], title: str, out: Path) -> list[Path]:
    """The evaluation metric of all runs over steps in one plot, one line a run."""
    drawn: dict[str, _Curve | None] = {}
    metric = ""
    shown = Metric()
    for run in runs:
        curves, result = _curves_of(run), read_result(run) or {}
        metric = metric or result.get("metric") or _main_metric(curves)
        if result:
            shown = metric_of(read_metrics(result.get("metrics")), metric)
        splits = _of_splits(curves, metric)
        drawn[str(result.get("label") or run.name)] = splits.get("validation") or next(iter(splits.values()), None)
    shown = metric_of({metric: shown}, metric)
    present = {label: curve for label, curve in drawn.items() if curve}
    made = _draw(out / "overview.png", title, shown.with_unit, _scaled(shown, present))
    return [made] if made else []


def _curves_of(run: Path) -> dict[str, _Curve]:
    """Finite values of a run by `train/<metric>` or `<split>/<metric>`: steps and values."""
    curves: dict[str, _Curve] = {}
    for record in read_new(run, Place())[0]:
        prefix = "train" if record.kind == "train" else record.split or "eval"
        for name, value in record.metrics.items():
            if math.isfinite(value) and record.kind in ("train", "eval"):
                steps, values = curves.setdefault(f"{prefix}/{name}", ([], []))
                steps.append(record.step)
                values.append(value)
    return curves


def _of_splits(curves: Mapping[str, _Curve], metric: str) -> dict[str, _Curve]:
    """A metric's curves by evaluated split."""
    named = ((key.split("/", 1), curve) for key, curve in curves.items())
    return {split: curve for (split, name), curve in named if name == metric and split != "train"}


def _scaled(metric: Metric, curves: Mapping[str, _Curve]) -> dict[str, _Curve]:
    """Curves in the unit of print."""
    return {label: (steps, list(map(metric.scaled, values))) for label, (steps, values) in curves.items()}


def _main_metric(curves: Mapping[str, _Curve]) -> str:
    evaluated = [key.split("/", 1)[1] for key in curves if not key.startswith("train/")]
    return next((name for name in evaluated if name != "loss"), "loss")


def _draw(path: Path, title: str, ylabel: str, curves: Mapping[str, _Curve | None]) -> Path | None:
    present = {label: curve for label, curve in curves.items() if curve}
    if not present:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for number, (label, (steps, values)) in enumerate(present.items()):
        marker = "o" if len(steps) <= 40 else None
        style = _STYLES[number // 10 % len(_STYLES)]  # colours repeat after ten
        axes.plot(steps, values, style, label=_short(label), linewidth=1.4, marker=marker, markersize=3)
    axes.set_title(_short(title, 80), fontsize=10)
    axes.set_xlabel("optimiser step")
    axes.set_ylabel(_short(ylabel))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if len(present) > _LEGEND_ROWS:
        axes.legend(fontsize=6, ncols=math.ceil(len(present) / 24), loc="center left", bbox_to_anchor=(1.01, 0.5))
    elif len(present) > 1 or ylabel not in present:
        axes.legend(fontsize=8)
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=_DPI)
    return path


def _short(text: str, limit: int = 40) -> str:
    """Text for a plot: no mathtext (`$` would start it), not longer than fits."""
    text = text.replace("$", r"\$")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
