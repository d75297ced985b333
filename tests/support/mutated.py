"""Drawn changes of the JSON files of a run, study or search, as a stranger may make them: every
check and sum fits.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from subquad.record.names import RESULT, SUMMARY

from subquad.record.files import json_text, json_value
from subquad.record.sums import manifest_of

RAW = "@raw"
"""What stands before a text that is written without quotes, as no writer of JSON would."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 7, 2**31, 2**63, 10**39, -(10**39), 10**400, 0.5, -0.5, 1e308, -1e308,
    5e-324, "", " ", "x", "NaN", "Infinity", "1e5", "../../x", "a/b", "\0",
    "\x1b[2J\x1b]52;c;eA==\a", "\u202eabc\u2028\u200b", "=1+1", "\r\n\t=x", "[x]", "é" * 3000,
    "long " * 40_000, "\ud800", [], {}, [None], [[]], [1, "x", {}], {"": None},
    {"a": {"a": {"a": 1}}}, {"name": 1}, {"metrics": 1}, [{"label": 3}], {"\x1b[31m": 0.5},
    {"step": "x"}, f"{RAW}NaN", f"{RAW}-Infinity", f"{RAW}1e999", f"{RAW}" + "9" * 10_000,
    f"{RAW}" + "[" * 100_000, f"{RAW}" + "[" * 45 + "]" * 45,
    f"{RAW}" + '{"a":' * 60 + "1" + "}" * 60, f'{RAW}{{"a":1,"a":2}}',
)  # fmt: skip


def places(data: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values below one; of long lists the first two."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(data, dict):
        inner = list(data.items())
    elif isinstance(data, list):
        inner = list(enumerate(data))[:2]
    found = list[tuple[Any, ...]]()
    for key, value in inner:
        found += [(*above, key), *places(value, (*above, key))]
    return found


def change(data: Any, rng: random.Random) -> tuple[Any, str]:
    """The data with one change, and what it is."""
    where = rng.choice([(), *places(data)]) if rng.random() < 0.95 else ()
    kind = rng.choice(
        ("replaced", "replaced", "replaced", "removed", "renamed", "wrapped", "exchanged")
    )
    value = rng.choice(VALUES)
    if not where:
        return value, f"is now {str(value)[:40]!r}"
    holder = data
    for key in where[:-1]:
        holder = holder[key]
    last = where[-1]
    if kind == "removed":
        del holder[last]
    elif kind == "renamed" and isinstance(holder, dict):
        holder[rng.choice(("x", "", "\x1b[5m", "name", "metrics"))] = holder.pop(last)
    elif kind == "wrapped":
        holder[last] = rng.choice(([holder[last]], {"x": holder[last]}))
    elif kind == "exchanged":
        other = rng.choice(places(data))
        source = data
        for key in other:
            source = source[key]
        holder[last] = json.loads(json.dumps(source))
    else:
        holder[last] = value
    return data, f"{'.'.join(map(str, where))} {kind}: {str(value)[:40]!r}"


def written(data: Any) -> str:
    """JSON with a check that fits, where there is one for such data."""
    if isinstance(data, dict):
        data.pop("check", None)
        try:
            data["check"] = json.loads(json_text(json.loads(text_of(data))))["check"]
        except (ValueError, RecursionError):
            data["check"] = "0" * 16
    return text_of(data)


def text_of(data: Any) -> str:
    text = json.dumps(data)
    while (start := text.find(f'"{RAW}')) >= 0:
        raw, length = json.JSONDecoder().raw_decode(text[start:])
        text = text[:start] + raw.removeprefix(RAW) + text[start + length :]
    return text


def mutate(root: Path, rng: random.Random, kinds: tuple[str, ...] = (".json", ".jsonl")) -> str:
    """Change one file of a folder, and forge all sums of it. Returns what was done."""
    files = sorted(path for path in root.rglob("*") if path.suffix in kinds and path.stat().st_size)
    path = rng.choice(files)
    if path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        number = rng.randrange(len(lines))
        data, change_made = change(json.loads(lines[number]), rng)
        lines[number] = written(data)
        path.write_text("".join(f"{line}\n" for line in lines))
        change_made = f"line {number + 1}: {change_made}"
    else:
        data, change_made = change(json.loads(path.read_text()), rng)
        path.write_text(written(data))
    if rng.random() < 0.8:
        forge(root, path)
    return f"{path.relative_to(root)}: {change_made}"


def forge(root: Path, changed: Path) -> None:
    """Let every manifest fit the files as they are; one that was changed itself stays."""
    for name in ("manifest.json", RESULT, SUMMARY):
        for path in sorted(root.rglob(name)):
            if path == changed:
                continue
            data = json.loads(path.read_text())
            data["files"] |= manifest_of({file: path.parent / file for file in data["files"]})
            path.write_text(json_text(json_value(data)))
