"""Figures of the core's structure: size, names, importers, functions, arrows and circles between packages.

    python benchmarks/structure.py [ROOT] [--verbose]

ROOT is the folder above the package (default: pipeline/ of this repository). Reads sources, imports nothing of them.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "subquad"
DEFAULT_ROOT = Path(__file__).resolve().parents[1] / "pipeline"
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Function:
    """One function or method; `lines` leaves out its docstring."""

    place: str
    lines: int


@dataclass
class Structure:
    """What was found below a root.

    Attributes:
        lines: lines of each module.
        homes: modules that define a public class or function, by its name.
        classes: how often each class name is defined.
        importers: modules that import a module.
        functions: every function, shortest first.
    """

    lines: dict[str, int] = field(default_factory=dict)
    homes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    classes: Counter[str] = field(default_factory=Counter)
    importers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    functions: list[Function] = field(default_factory=list)

    @property
    def single_importers(self) -> list[str]:
        """Modules that exactly one other module imports."""
        return sorted(name for name in self.lines if name != PACKAGE and len(self.importers[name]) == 1)

    @property
    def arrows(self) -> dict[str, set[str]]:
        """Which package, or module directly below the root, imports which others."""
        found: dict[str, set[str]] = defaultdict(set)
        for target, sources in self.importers.items():
            for source in sources:
                if room(source) != room(target):
                    found[room(source)].add(room(target))
        return found


def room(module: str) -> str:
    """`subquad.engine.loop` is in `engine`, `subquad.runs` is `runs`."""
    return module.split(".")[1] if "." in module else module


def read(root: Path) -> Structure:
    """Parse every file below `root`."""
    files = {_module(path, root): path for path in sorted(root.rglob("*.py"))}
    found = Structure()
    for module, path in files.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found.lines[module] = text.count("\n")
        for node in tree.body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                found.homes[node.name].append(module)
        found.classes.update(node.name for node in tree.body if isinstance(node, ast.ClassDef))
        for target in _imported(tree, files):
            found.importers[target].add(module)
        found.functions += [
            Function(f"{path.relative_to(root)}:{node.lineno} {node.name}", _length(node))
            for node in ast.walk(tree)
            if isinstance(node, FUNCTION)
        ]
    found.functions.sort(key=lambda one: one.lines)
    return found


def _module(path: Path, root: Path) -> str:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _imported(tree: ast.Module, files: Mapping[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports, also inside its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level and is_ours(node.module):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in files else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_ours(alias.name))


def is_ours(module: str) -> bool:
    """Whether a module belongs to the package."""
    return module.split(".")[0] == PACKAGE


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    docstring = ast.get_docstring(node, clean=False)
    return (node.end_lineno or node.lineno) - node.lineno + 1 - (len(docstring.splitlines()) if docstring else 0)


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of packages that reach each other, each sorted."""
    reach = {start: _reached(start, arrows) for start in arrows}
    groups = {
        tuple(sorted({start, *(other for other in ends if start in reach.get(other, ()))}))
        for start, ends in reach.items()
        if start in ends
    }
    return [list(group) for group in sorted(groups)]


def _reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    due = [*arrows.get(start, ())]
    while due:
        if (one := due.pop()) not in seen:
            seen.add(one)
            due += arrows.get(one, ())
    return seen


def report(found: Structure, *, verbose: bool) -> Iterator[str]:
    """The figures, line by line."""
    lengths = [one.lines for one in found.functions]
    twice = {name: homes for name, homes in sorted(found.homes.items()) if len(homes) > 1}
    yield f"lines {sum(found.lines.values())} in {len(found.lines)} files"
    yield f"public names {len(found.homes)}, of them defined more than once {len(twice)}"
    yield f"class names defined more than once {sum(count > 1 for count in found.classes.values())}"
    yield f"modules with a single importer {len(found.single_importers)}"
    yield (
        f"functions {len(lengths)}: median {lengths[len(lengths) // 2]}, p90 {lengths[int(len(lengths) * 0.9)]}, "
        f"longest {lengths[-1]}, above 40 lines {sum(length > 40 for length in lengths)}"
    )
    yield f"circles {circles(found.arrows) or 'none'}"
    sizes: Counter[str] = Counter()
    for module, count in found.lines.items():
        sizes[room(module)] += count
    for name, count in sorted(sizes.items()):
        yield f"  {name:<12} {count:>6} lines -> {' '.join(sorted(found.arrows.get(name, ())))}"
    if verbose:
        yield from (f"twice: {name}: {' '.join(homes)}" for name, homes in twice.items())
        yield from (f"single importer: {one} <- {next(iter(found.importers[one]))}" for one in found.single_importers)
        yield from (f"long: {one.place}: {one.lines}" for one in found.functions[-20:])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Figures of the core's structure.")
    parser.add_argument("root", nargs="?", type=Path, default=DEFAULT_ROOT)
    parser.add_argument("--verbose", action="store_true", help="also the names, modules and functions behind them")
    asked = parser.parse_args()
    print(*report(read(asked.root), verbose=asked.verbose), sep="\n")
