"""Figures of the structure of the core and the tools: what a reader meets, beside its bars; then
names, importers, arrows and circles between packages.

    python benchmarks/structure.py [ROOT] [--verbose]

ROOT is the folder above the packages (default: pipeline/ of this repository). Reads sources,
imports nothing of them. A syntax node is every node of `ast.walk` but docstrings and the marks
Load, Store and Del.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median, quantiles
from typing import Any

CORE, TOOLS = "subquad", "subquad_tools"
APART = {"ray", "search", "space", "subquad_check", "subquad_tools", "testing", "tracking"}
"""Rooms that one can do without: clusters, searches, certificate, tools, MLflow."""
LONGEST_LINE, LONGEST_FUNCTION, LONGEST_FILE = 100, 40, 400
DEFAULT_ROOT = Path(__file__).resolve().parents[1] / "pipeline"
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    """One function or method.

    Attributes:
        place: file, line and name.
        nodes: of its body; those of functions within it count too.
        lines: from `def` to its end, without the docstring.
    """

    place: str
    nodes: int
    lines: int


@dataclass
class Structure:
    """What was found below a root.

    Attributes:
        trees: each module's syntax, by its name.
        lines: lines of each module.
        long_lines: how many lines have more than 100 columns.
        homes: modules that define a public class or function, by its name.
        importers: modules that import a module.
        functions: every function, shortest first.
    """

    trees: dict[str, ast.Module] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    long_lines: int = 0
    homes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    importers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    functions: list[Function] = field(default_factory=list)

    @property
    def single_importers(self) -> list[str]:
        """Modules that exactly one other module imports."""
        return sorted(name for name in self.lines if len(self.importers[name]) == 1)

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
    """`subquad.engine.loop` is in `engine`, `subquad.errors` its own; the tools are one room."""
    first, _, rest = module.partition(".")
    return rest.split(".")[0] if rest and first == CORE else first


def read(root: Path) -> Structure:
    """Parse every file below `root`."""
    files = {_module(path, root): path for path in sorted(root.rglob("*.py"))}
    found = Structure()
    for module, path in files.items():
        text = path.read_text(encoding="utf-8")
        tree = found.trees[module] = ast.parse(text)
        lines = text.splitlines()
        found.lines[module] = len(lines)
        found.long_lines += sum(len(line) > LONGEST_LINE for line in lines)
        for node in tree.body:
            if isinstance(node, Definition) and not node.name.startswith("_"):
                found.homes[node.name].append(module)
        for target in _imported(tree, files):
            found.importers[target].add(module)
        place = path.relative_to(root).as_posix()
        found.functions += _functions(tree, place)
    found.functions.sort(key=lambda function: function.lines)
    return found


def _module(path: Path, root: Path) -> str:
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _imported(tree: ast.Module, files: Mapping[str, Path]) -> Iterator[str]:
    """Modules of the packages that a file imports, also inside its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and is_ours(node.module or ""):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in files else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_ours(alias.name))


def is_ours(module: str) -> bool:
    """Whether a module belongs to the core or the tools."""
    return module.split(".")[0] in (CORE, TOOLS, "subquad_check")


def count_nodes(trees: Iterable[ast.AST]) -> int:
    """Syntax nodes, without docstrings and marks."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    marks = sum(isinstance(node, ast.Load | ast.Store | ast.Del) for node in nodes)
    documented = sum(_docstring(node) is not None for node in nodes)
    return len(nodes) - marks - 2 * documented


def _docstring(node: ast.AST) -> str | None:
    if isinstance(node, ast.Module | Definition):
        return ast.get_docstring(node, clean=False)
    return None


def _functions(tree: ast.Module, place: str) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            text = _docstring(node)
            end = node.end_lineno or node.lineno
            yield Function(
                place=f"{place}:{node.lineno} {node.name}",
                nodes=count_nodes(node.body if text is None else node.body[1:]),
                lines=end - node.lineno + 1 - len((text or "").splitlines()),
            )


def count_single_use(trees: Iterable[ast.AST]) -> tuple[int, int]:
    """How many names that a function assigns once are read once, and how many there are."""
    single = 0
    assigned = 0
    for tree in trees:
        for function in ast.walk(tree):
            if not isinstance(function, FunctionNode):
                continue
            names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
            bound = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
            read = Counter(node.id for node in names if isinstance(node.ctx, ast.Load))
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    name = node.targets[0].id
                    assigned += bound[name] == 1
                    single += bound[name] == read[name] == 1
    return single, assigned


def walk(found: Structure, module: str, name: str) -> tuple[int, int, int]:
    """A function followed through imports and calls, each function once: how often a reader enters
    a package or module, how many there are, and how often it is one that was left before.

    A method is followed where one class alone has one of its name.
    """
    methods = defaultdict(list)
    for home, tree in found.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, FunctionNode):
                        methods[inner.name].append((home, inner))
    rooms: list[str] = []
    followed: set[ast.AST] = set()

    def follow(module: str, function: ast.AST) -> None:
        rooms.append(room(module))
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            goal = _called(found.trees, module, call.func, methods)
            if goal and goal[1] not in followed:
                followed.add(goal[1])
                follow(*goal)
                rooms.append(room(module))

    follow(module, _named(found, module, ast.FunctionDef)[name])
    stays = [place for place, _ in groupby(rooms)]
    return len(stays), len(set(stays)), len(stays) - len(set(stays))


def _called(
    trees: Mapping[str, ast.Module],
    module: str,
    called: ast.expr,
    methods: Mapping[str, list[tuple[str, FunctionNode]]],
) -> tuple[str, FunctionNode] | None:
    """The function or method that a call means, with its module; a class means its `__init__`."""
    if isinstance(called, ast.Attribute):
        known = methods.get(called.attr, [])
        return known[0] if len(known) == 1 else None
    if not isinstance(called, ast.Name):
        return None
    for node in trees[module].body:
        if isinstance(node, Definition) and node.name == called.id:
            if not isinstance(node, ast.ClassDef):
                return module, node
            first = [inner for inner in node.body if isinstance(inner, FunctionNode)][:1]
            return (module, first[0]) if first and first[0].name == "__init__" else None
    for node in ast.walk(trees[module]):
        if isinstance(node, ast.ImportFrom) and node.module in trees:
            for alias in node.names:
                if called.id == (alias.asname or alias.name):
                    return _called(trees, node.module, ast.Name(alias.name), methods)
    return None


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of packages or files that reach each other, each sorted."""
    reach = {start: _reached(start, arrows) for start in arrows}
    groups = {
        tuple(sorted({start, *(other for other in ends if start in reach.get(other, ()))}))
        for start, ends in reach.items()
        if start in ends
    }
    return [list(group) for group in sorted(groups)]


def _reached(start: str, arrows: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    due = [*arrows.get(start, ())]
    while due:
        if (place := due.pop()) not in reached:
            reached.add(place)
            due += arrows.get(place, ())
    return reached


SETTINGS = ("Train", "Resources", "Tracking")
"""Classes whose fields are an experiment's settings but for its plugins."""


def count_settings(found: Structure) -> int:
    """Fields of `train`, `resources` and `tracking`."""
    classes = _named(found, "subquad.experiment.schema", ast.ClassDef)
    fields = [node for name in SETTINGS for node in classes[name].body]
    return sum(isinstance(node, ast.AnnAssign) for node in fields)


def count_options(found: Structure) -> int:
    """Options of `subquad tune` that its help shows."""
    command = _named(found, "subquad.cli.tune", ast.FunctionDef)["tune_command"]
    texts = [ast.unparse(decorator) for decorator in command.decorator_list]
    others = ("click.command", "click.argument", "Reach")
    return sum(not text.startswith(others) and "hidden=True" not in text for text in texts)


def count_kinds(found: Structure) -> int:
    """Kinds of plugins, each with its group of entry points."""
    value = _assigned(found, "subquad.registry.found", "GROUPS")
    return len(value.keys) if isinstance(value, ast.Dict) else 0


def count_study_keys(found: Structure) -> int:
    """Keys that only a study's file has."""
    value = _assigned(found, "subquad.experiment.settings", "STUDY_KEYS")
    return len(value.elts) if isinstance(value, ast.Tuple) else 0


def _named(found: Structure, module: str, kind: type) -> dict[str, Any]:
    body: list[Any] = found.trees[module].body
    return {node.name: node for node in body if isinstance(node, kind)}


def _assigned(found: Structure, module: str, name: str) -> ast.expr | None:
    """The value of a module's name."""
    for node in found.trees[module].body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return getattr(node, "value", None)
    return None


def bars(found: Structure) -> Iterator[tuple[str, str, str]]:
    """What is counted, how much of it there is, and its bar."""
    own = [tree for module, tree in found.trees.items() if room(module) not in APART]
    single, assigned = count_single_use(found.trees.values())
    stays, rooms, returns = walk(found, "subquad.api", "train")
    long_lines = found.long_lines / sum(found.lines.values())
    long_functions = sum(function.lines > LONGEST_FUNCTION for function in found.functions)
    long_files = sum(count > LONGEST_FILE for count in found.lines.values())
    yield "syntax nodes", f"{count_nodes(found.trees.values()):,}", "150,000"
    yield "of them what one needs to train and compare", f"{count_nodes(own):,}", "85,000"
    yield "public names", str(len(found.homes)), "500"
    yield "assignments used once", f"{single / assigned:.1%}", "33%"
    yield "`train` followed: stays", str(stays), ""
    yield "`train` followed: rooms", str(rooms), ""
    yield "`train` followed: returns", str(returns), ""
    yield f"lines above {LONGEST_LINE} columns", f"{long_lines:.1%}", "1%"
    yield "settings of train, resources, tracking", str(count_settings(found)), "42"
    yield "options of tune", str(count_options(found)), "13"
    yield "kinds of plugins", str(count_kinds(found)), "8"
    yield "keys of a study", str(count_study_keys(found)), "5"
    yield f"functions above {LONGEST_FUNCTION} lines", str(long_functions), "0"
    yield f"files above {LONGEST_FILE} lines", str(long_files), "0"
    yield "circles of packages", str(len(circles(found.arrows))), "0"
    yield "circles of files", str(len(circles(_turned(found.importers)))), "0"


def _turned(importers: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What each module imports."""
    imported: dict[str, set[str]] = defaultdict(set)
    for target, sources in importers.items():
        for source in sources:
            imported[source].add(target)
    return imported


def report(found: Structure, *, verbose: bool) -> Iterator[str]:
    """The figures, line by line."""
    for what, count, bar in (("", "now", "bar"), *bars(found)):
        yield f"{what:<44} {count:>9} {bar:>9}"
    lengths = [function.lines for function in found.functions]
    nodes = [function.nodes for function in found.functions]
    twice = {name: homes for name, homes in sorted(found.homes.items()) if len(homes) > 1}
    yield f"lines {sum(found.lines.values()):,} in {len(found.lines)} files"
    yield f"public names defined more than once {len(twice)}"
    yield f"modules with a single importer {len(found.single_importers)}"
    yield (
        f"functions {len(lengths)}: median {median(lengths):.0f} lines and {median(nodes):.0f} "
        f"nodes, nine in ten below {quantiles(lengths, n=10)[-1]:.0f} lines, longest {lengths[-1]}"
    )
    yield f"circles {circles(found.arrows) or 'none'}"
    for place, modules in sorted(_by_room(found.trees).items()):
        trees = [found.trees[module] for module in modules]
        arrows = " ".join(sorted(found.arrows.get(place, ())))
        yield f"  {place:<13} {count_nodes(trees):>7,} nodes -> {arrows}"
    if verbose:
        yield from _behind(found, twice)


def _by_room(modules: Iterable[str]) -> dict[str, list[str]]:
    rooms: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        rooms[room(module)].append(module)
    return rooms


def _behind(found: Structure, twice: Mapping[str, list[str]]) -> Iterator[str]:
    """Names, modules and functions behind the figures."""
    for name, homes in twice.items():
        yield f"twice: {name}: {' '.join(homes)}"
    for module in found.single_importers:
        yield f"single importer: {module} <- {next(iter(found.importers[module]))}"
    for module, count in Counter(found.lines).most_common(10):
        yield f"long: {module}: {count} lines"
    for function in found.functions[-20:]:
        yield f"long: {function.place}: {function.lines} lines"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Figures of the structure of core and tools.")
    parser.add_argument("root", nargs="?", type=Path, default=DEFAULT_ROOT)
    parser.add_argument(
        "--verbose", action="store_true", help="also the names, modules and functions behind them"
    )
    given = parser.parse_args()
    structure = read(given.root)
    print(*report(structure, verbose=given.verbose), sep="\n")
