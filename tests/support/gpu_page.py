"""The section GPU of docs/performance.md, made of docs/gpu.json, which is a `day.json` of
`benchmarks/gpu_day.py`.

python tests/support/gpu_page.py [DAY.json]     # takes the file if one is given, writes the section
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs/performance.md"
FILE = REPO / "docs/gpu.json"
BEGIN = "\n## GPU\n"
CONTROLS = {"softmax", "identity"}
"""Mixers that are no alternative to attention."""

NEAR = 0.05
"""Times that differ by less are alike."""

Found = dict[str, Any]


def page() -> str:
    """The text of performance.md with the section as the file has it."""
    before, _, _ = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + "\n" + "\n".join(section(day())) + "\n"


def day() -> Found:
    """What was seen."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def seen_on(found: Found) -> str:
    """`one NVIDIA H200 (2026-11-28, revision 5077dd1, torch 2.11)`."""
    best = of(found, "mixers")[0]["best"]
    torch = found["versions"]["torch"]
    return f"one {best['device']} ({found['date']}, revision {found['revision']}, torch {torch})"


def verdict(found: Found) -> str:
    """How many mixers were faster than torch's attention, in one sentence."""
    layers = merged(of(found, "mixers", core=False))
    parts, total = [], set()
    for length in layers["lengths"]:
        ratios = mixers_over_attention(layers, length)
        total |= {*ratios}
        faster = sum(ratio < 1 - NEAR for ratio in ratios.values())
        parts.append(f"{faster} at {length:,} tokens")
    counts = f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"Of {len(total)} mixers, {counts} were faster than torch's attention"


def mixers_over_attention(layers: Found, length: int) -> dict[str, float]:
    """Time of forward and backward over that of torch's attention, by mixer at its first row."""
    ratios: dict[str, float] = {}
    for speed in layers["speeds"]:
        name = speed["mixer"].partition(":")[0]
        is_mixer = " " not in name and name not in CONTROLS
        if is_mixer and speed["length"] == length and speed["both_ratio"] is not None:
            ratios.setdefault(name, speed["both_ratio"])
    return ratios


def of(found: Found, what: str, **settings: Any) -> list[Found]:
    """What benches found, but for the papers' tables."""
    benches = [step["found"] for step in found["steps"] if "found" in step]
    return [
        bench
        for bench in benches
        if bench["what"] == what and not bench.get("table")
        if all(bench["settings"][key] == value for key, value in settings.items())
    ]


def merged(benches: Sequence[Found]) -> Found:
    """Benches of the same kind at several lengths as one."""
    speeds = [speed for bench in benches for speed in bench["speeds"]]
    baselines: dict[str, str] = {}
    for bench in benches:
        baselines |= bench["baselines"]
    lengths = sorted({speed["length"] for speed in speeds})
    settings = benches[0]["settings"] if benches else {}
    return {"speeds": speeds, "baselines": baselines, "lengths": lengths, "settings": settings}


def section(found: Found) -> Iterator[str]:
    """Its lines."""
    best = of(found, "mixers")[0]["best"]
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items() if value)
    yield (
        f"Seen on one {best['device']} on {found['date']}, revision {found['revision']}, "
        f"{versions}. In the same run a copy of 1 GiB reached {best['gbytes'] / 1e3:.2f} TB/s, "
        f"read and written, and a bf16 product of {best['size']}³ "
        f"{best['gflops'] / 1e3:.0f} TFLOP/s: the roofs."
    )
    yield (
        "Times are of CUDA events, in ms, forward / forward and backward. Made of "
        "[one file](gpu.json); [how to measure it anew](how-to/gpu.md)."
    )
    yield ""
    for step in found["steps"]:
        if "tests" in step:
            counts = ", ".join(f"{count} {word}" for word, count in step["tests"].items())
            failed = f". Failed: {'; '.join(step['failed'])}" if step["failed"] else ""
            yield f"- {step['name']}: {counts}{failed}."
    yield f"- {verdict(found)}."
    for title, core in (("Layers", False), ("Attention alone, without projections", True)):
        yield from speeds_of(title, merged(of(found, "mixers", core=core)))
    yield from operations(found)
    yield from slower(found)
    yield from tables(found)
    missing = [
        f"{step['name']} ({step['status'].partition(': ')[2]})"
        for step in found["steps"]
        if step["status"].startswith("left out")
    ]
    if missing:
        yield f"\n### Not measured\n\n{', '.join(missing)}."


def speeds_of(title: str, found: Found) -> Iterator[str]:
    """A table of rows by lengths: times, in brackets over torch's fastest attention."""
    if not found["speeds"]:
        return
    used, lengths = found["settings"], found["lengths"]
    yield f"\n### {title}\n"
    baselines = {found["baselines"][str(length)] for length in lengths}
    yield (
        f"{used['tokens']:,} tokens a pass, D = {used['dim']:,}, H = {used['heads']}, "
        f"{used['precision']}. In brackets: forward and backward over "
        f"{', '.join(sorted(baselines))}, the fastest of torch's attentions that were timed. "
        "Memory is what both passes add at their peak.\n"
    )
    middle = lengths[(len(lengths) - 1) // 2]
    titles = [f"{length:,}" for length in lengths]
    titles.append(f"MiB at {middle:,}")
    yield f"| | {' | '.join(titles)} |"
    yield "|---" * (len(titles) + 1) + "|"
    cells = {(speed["mixer"], speed["length"]): speed for speed in found["speeds"]}
    names = dict.fromkeys(name for name, _ in cells)
    for name in sorted(names, key=lambda name: cells.get((name, middle), {}).get("both_us", 1e9)):
        row = [time(cells.get((name, length)), used["tokens"]) for length in lengths]
        peak = cells.get((name, middle), {}).get("peak_mib")
        row.append("–" if peak is None else f"{peak:,.0f}")
        yield f"| `{name}` | {' | '.join(row)} |"


def time(speed: Found | None, tokens: int) -> str:
    """`9.4 / 22.2 (1.95)`; a dash where it was not timed."""
    if speed is None:
        return "–"
    forward, both = (speed[f"{part}_us"] for part in ("forward", "both"))
    ratio = "" if speed["both_ratio"] is None else f" ({speed['both_ratio']:.2f})"
    shown = "–" if forward is None else f"{forward * tokens / 1e3:.3g}"
    return f"{shown} / {both * tokens / 1e3:.3g}{ratio}"


def operations(found: Found) -> Iterator[str]:
    """A table of implementations."""
    rows = [row for bench in of(found, "kernels") for row in bench["kernels"] if row["operation"]]
    if not rows:
        return
    yield "\n### Operations\n"
    yield (
        "A `*` runs by itself. Roofs: the least time for the bytes of arguments, results and "
        "gradients, and for the counted operations, over the time of forward and backward.\n"
    )
    yield "| operation | of | L | by | ms | / reference | of the byte roof | of the product roof |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        by = row["implementation"] + "*" * row["chosen"]
        ratio = "–" if row["both_ratio"] is None else f"{row['both_ratio']:.2f}"
        shares = [share(row[f"{roof}_share"]) for roof in ("bytes", "product")]
        times = f"{row['forward_us'] / 1e3:.3g} / {row['both_us'] / 1e3:.3g}"
        cells = [f"`{row['operation']}`", f"`{row['mixer']}`", f"{row['length']:,}", by, times]
        yield f"| {' | '.join([*cells, ratio, *shares])} |"


def share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def slower(found: Found) -> Iterator[str]:
    """Where the chosen implementation was not the fastest."""
    lines = {}
    for step in found["steps"]:
        for row in step.get("found", {}).get("slower", ()):
            key = (row["operation"], row["mixer"], row["chosen"], row["faster"])
            lines.setdefault(key, []).append(f"{row['times']:.2f} at {row['length']:,}")
    if lines:
        yield "\n### Where the chosen implementation is not the fastest\n"
        yield "How many times as long it takes, forward and backward.\n"
        yield "| operation | in | runs by | faster | times as long |"
        yield "|---|---|---|---|---|"
    for (operation, mixer, chosen, faster), times in lines.items():
        yield f"| `{operation}` | `{mixer}` | {chosen} | {faster} | {', '.join(times)} |"


def tables(found: Found) -> Iterator[str]:
    """The papers' tables."""
    for step in found["steps"]:
        bench = step.get("found", {})
        if not bench.get("table"):
            continue
        yield f"\n### Protocol `{bench['protocol']}`\n"
        yield (
            "Times as fast as unfused attention and part of its memory, here and as printed; then "
            "over the fastest of torch's attentions.\n"
        )
        yield (
            "| row | column | times as fast | printed | memory | printed | over torch today | "
            "memory |"
        )
        yield "|---|---|---|---|---|---|---|---|"
        for row in bench["table"]:
            keys = ("speed", "printed_speed", "memory", "printed_memory", "now_speed", "now_memory")
            cells = ["–" if row[key] is None else f"{row[key]:.2f}" for key in keys]
            yield f"| {row['mixer']} | {row['column']} | {' | '.join(cells)} |"


if __name__ == "__main__":
    for path in sys.argv[1:]:
        shutil.copyfile(path, FILE)
    PAGE.write_text(page(), encoding="utf-8")
