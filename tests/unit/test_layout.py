"""Where code may lie, and who may import what. Each rule is a function of a tree, so that it can
be seen to fail.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import get_args

import click
import pytest

from subquad.cli.main import cli
from subquad.plugin import Role

REPO = Path(__file__).resolve().parents[2]
ROOTS = {
    "pipeline": ("subquad", "subquad_check", "subquad_tools"),
    "plugins": ("subquad_plugins",),
    "datasets": ("subquad_datasets",),
    "tune_spaces": ("subquad_spaces",),
}
"""Source roots and their packages."""
OTHERS = {package for packages in ROOTS.values() for package in packages} - {"subquad"}
"""Packages that the core reaches through entry points only."""

CORE = "pipeline/subquad"
CHECK = "pipeline/subquad_check"
TOOLS = "pipeline/subquad_tools"
PUBLIC = {
    "subquad",
    "subquad.plugin",
    "subquad.nn",
    "subquad.plan",
    "subquad.data",
    "subquad.errors",
    "subquad.rouge",
    "subquad.record",
    "subquad.security",
    "subquad.suggest",
    "subquad.output.terminal",
}
"""What plugins may import: contract, errors, a command's reach, whole files, names, what commands
print.
"""
CHECK_USES = {
    "subquad.plugin",
    "subquad.nn",
    "subquad.errors",
    "subquad.suggest",
    "subquad.output",
    "subquad.registry",
    "subquad.cost",
    "subquad.processes",
    "subquad.completion",
    "subquad.experiment",
}
"""What the certificate imports: the contract, the registry, the counter, what its commands say and
take. Of experiments it needs the parameters of a plugin alone.
"""
TOOLS_USE = {
    "subquad.cost",
    "subquad.trained",
    "subquad.cli.folders",
    "subquad.cli.options",
    "subquad.cli.report",
    "subquad.cli.study",
    "subquad.completion",
    "subquad.engine",
    "subquad.execution",
    "subquad.experiment",
    "subquad.output",
    "subquad.preparation",
    "subquad.session",
    "subquad.registry",
    "subquad.reports",
    "subquad.tracking",
}
"""What the tools import of the core besides: what reads, builds and runs an experiment."""

HOMES = {
    "ray": ("pipeline/subquad/ray/",),
    "mlflow": ("pipeline/subquad/tracking/gate.py", "pipeline/subquad/tracking/mlflow.py"),
    "optuna": ("pipeline/subquad/search/", "pipeline/subquad/space/"),
    "matplotlib": (
        "datasets/subquad_datasets/shown.py",
        "pipeline/subquad_tools/bench/draw.py",
        "pipeline/subquad_tools/figures.py",
        "pipeline/subquad_tools/diagnose/draw.py",
        "pipeline/subquad_tools/swap/draw.py",
        "pipeline/subquad/reports/drawing.py",
        "pipeline/subquad/search/plots.py",
    ),
    "scipy": (
        "pipeline/subquad_tools/paper/grid.py",
        "pipeline/subquad/reports/",
        "pipeline/subquad_check/fits.py",
        "datasets/subquad_datasets/pathfinder/discs.py",
    ),
}
CONTRACTS = {
    "addresses": set(),
    "errors": {"addresses", "suggest"},
    "suggest": set(),
    "processes": set(),
    "rouge": set(),
    "security": {"errors"},
    "record": {"addresses", "errors", "plugin", "security", "suggest"},
    "plugin": set(),
    "plan": {"errors"},
    "data": {"errors", "plan", "plugin"},
    "nn": {"data", "errors", "plugin", "suggest"},
    "cost": {"data", "errors", "nn", "plugin"},
    "registry": {"data", "errors", "nn", "plugin", "processes", "suggest"},
    "experiment": {
        *("addresses", "errors", "plugin", "record", "registry", "security", "suggest"),
    },
    "output": {"errors", "experiment", "record"},
    "completion": {"errors", "experiment", "registry"},
    "space": {"errors", "experiment", "plugin", "registry", "suggest"},
}
ABOVE = {
    *("engine", "preparation", "execution", "trained", "tracking", "reports", "results", "search"),
    "ray",
}
"""What works with an experiment."""
ARROWS = {
    **CONTRACTS,
    "engine": {*CONTRACTS} - {"space"},
    "tracking": {*CONTRACTS} - {"space", "nn", "cost", "data"},
    "reports": {*CONTRACTS} - {"space", "nn", "cost", "data"},
    "preparation": {*CONTRACTS, "engine"} - {"space"},
    "execution": {*CONTRACTS, "engine", "preparation", "tracking"} - {"space"},
    "trained": {*CONTRACTS, "engine", "preparation"} - {"space"},
    "search": {*CONTRACTS, "engine", "execution", "preparation", "tracking"},
    "ray": {*CONTRACTS, "engine", "execution", "preparation"} - {"space"},
    "results": {"errors", "experiment", "nn", "record", "reports", "search", "trained"},
    "session": {
        *("errors", "execution", "experiment", "preparation", "ray", "record", "search"),
        "security",
    },
    "api": {*CONTRACTS, *ABOVE, "session"},
    "cli": {*CONTRACTS, *ABOVE, "api", "session"},
    "__init__": {"api"},
}
"""What each package or module of the core may import of the others: docs/architecture.md draws
it.
"""

ORDINARY = {
    "copy",
    "identity",
    "mega",
    "optimizer",
    "recall",
    "softmax",
    "encoder",
    "classification",
    "fourier",
    "wavelet",
}
"""Names of built-in plugins that are words too: the core may use them in a sentence."""

WRITING = {
    *(
        "write_text",
        "write_bytes",
        "touch",
        "unlink",
        "rmdir",
        "rmtree",
        "mkdir",
        "makedirs",
        "rename",
        "renames",
    ),
    *(
        "symlink_to",
        "hardlink_to",
        "copy2",
        "copyfile",
        "copytree",
        "NamedTemporaryFile",
        "mkstemp",
    ),
}
BELOW_RUNS = (
    "record",
    "engine",
    "preparation",
    "execution",
    "trained",
    "search",
    "reports",
    "experiment",
    "paper",
    "tracking",
    "diagnose",
    "swap",
)
"""Modules and packages of core and tools that write and delete below the folders of runs."""
NOT_BELOW_RUNS = {
    "write_text": "another machine's file",
    "write_output": "the user names it",
    "fetched": "data",
    "_changing": "what the user trusts",
}
"""Functions of those that write elsewhere, and what."""

LONGEST_FUNCTION = 40
"""Lines, without the docstring."""

HEAVY = ("torch", "ray", "mlflow", "sktime", "matplotlib", "scipy", "optuna")
NAMES_A_PLUGIN_PACKAGE = re.compile(rf"({'|'.join(sorted(OTHERS))})([.:][\w.:]*)?")

pytestmark = pytest.mark.skipif(
    not (REPO / "pipeline").is_dir(), reason="runs beside the sources only"
)


def imports(path: Path) -> set[str]:
    """Every module a file imports, also inside a function, and every string that is a plugin
    package's name.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            found.update(
                {module}
                if module != "subquad"
                else {f"subquad.{alias.name}" for alias in node.names}
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and NAMES_A_PLUGIN_PACKAGE.fullmatch(node.value)
        ):
            found.add(node.value.replace(":", "."))
    return found


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def sources(repo: Path, folder: str) -> list[Path]:
    return sorted((repo / folder).rglob("*.py"))


def breaches(files: list[Path], is_wrong: Callable[[str], bool]) -> list[str]:
    """Imports that must not be, each with its file."""
    found = [(path, name) for path in files for name in imports(path)]
    return [f"{path.name}: {name}" for path, name in found if is_wrong(name)]


def is_private(module: str, public: set[str]) -> bool:
    """Whether a module is the core's, and none of those that others may import."""
    of_core = is_in(module, "subquad") and module != "subquad"
    return of_core and not any(is_in(module, allowed) for allowed in public - {"subquad"})


def core_breaches(repo: Path) -> list[str]:
    """The core reaches plugins and tools through entry points only."""

    def is_wrong(name: str) -> bool:
        return any(is_in(name, package) for package in OTHERS)

    return breaches(sources(repo, CORE), is_wrong)


def plugin_breaches(repo: Path) -> list[str]:
    """Built-in plugins use what a third party may use; the certificate is for its tests."""
    files = [path for root in ROOTS if root != "pipeline" for path in sources(repo, root)]
    return breaches(files, lambda name: is_in(name, "subquad_check") or is_private(name, PUBLIC))


def tool_breaches(repo: Path) -> list[str]:
    """The tools use what reads, builds and runs experiments, no plugin and no certificate."""

    def is_wrong(name: str) -> bool:
        is_strange = any(is_in(name, package) for package in OTHERS - {"subquad_tools"})
        return is_strange or is_private(name, PUBLIC | TOOLS_USE)

    return breaches(sources(repo, TOOLS), is_wrong)


def check_breaches(repo: Path) -> list[str]:
    """The certificate uses the contract and the registry, and no experiment's engine."""

    def is_wrong(name: str) -> bool:
        is_strange = any(is_in(name, other) for other in OTHERS - {"subquad_check"})
        return is_strange or is_private(name, CHECK_USES)

    return breaches(sources(repo, CHECK), is_wrong)


def home_breaches(repo: Path) -> list[str]:
    """What is an extra is imported in the places that need it, and nowhere else."""
    files = [path for root in ROOTS for path in sources(repo, root)]
    return [
        f"{path.name}: {name}"
        for path in files
        for name in imports(path)
        for package, homes in HOMES.items()
        if is_in(name, package) and not path.relative_to(repo).as_posix().startswith(homes)
    ]


def root_breaches(repo: Path) -> list[str]:
    """A source root holds its packages and no file of Python, or `datasets/` would shadow the
    library of that name.
    """
    loose = [path for root in ROOTS for path in (repo / root).glob("*.py")]
    packages = [
        p
        for root, own in ROOTS.items()
        for p in (repo / root).glob("*/__init__.py")
        if p.parent.name not in own
    ]
    stale = [path for root in (".", *ROOTS) for path in (repo / root).glob("*.egg-info")]
    return [path.relative_to(repo).as_posix() for path in (*loose, *packages, *stale)]


def arrow_breaches(repo: Path) -> list[str]:
    """A package of the core imports what stands below it, and there is no circle."""
    core = repo / CORE
    found = []
    for path in sources(repo, CORE):
        own = path.relative_to(core).parts[0].removesuffix(".py")
        for name in imports(path):
            other = [*name.split("."), "__init__"][1]
            if (
                is_in(name, "subquad")
                and other not in (own, "__init__")
                and other not in ARROWS.get(own, ())
            ):
                found.append(f"{path.relative_to(core).as_posix()}: {name}")
    return sorted(found)


def name_breaches(repo: Path) -> list[str]:
    """A public function or class of the core has its name for itself."""
    places = defaultdict(list)
    for path in sources(repo, "pipeline"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(repo / "pipeline").as_posix())
    return [
        f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1
    ]


def length_breaches(repo: Path) -> list[str]:
    """Functions of the core are short."""
    found = []
    for path in sources(repo, "pipeline"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node, clean=False)
                lines = (node.end_lineno or 0) - node.lineno + 1 - len((text or "").splitlines())
                if lines > LONGEST_FUNCTION:
                    found.append(f"{path.name}: {node.name}, {lines} lines")
    return found


def plugin_names(repo: Path) -> set[str]:
    """Names of the built-in mixers, backbones, tasks and data sets."""
    groups = tomllib.loads((repo / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "entry-points"
    ]
    files = ("subquad.recipes", "subquad.spaces", "subquad.published", "subquad.commands")
    kinds = [group for group in groups if group.startswith("subquad.") and group not in files]
    return {name for group in kinds for name in groups[group]}


def naming_breaches(repo: Path) -> list[str]:
    """No code of the core knows a built-in plugin by name; docstrings and help texts may show one
    as an example.

    The backbone `decoder` shares its name with a role of mixers, the mixer `local` with an option
    and with Ray's word, `linear` with a schedule, the task `multilabel` with its target, and the
    data set `table` with those of reports.
    """
    names, found = (
        plugin_names(REPO) - {*get_args(Role), "local", "linear", "multilabel", "table"},
        [],
    )
    for path in sources(repo, "pipeline"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in texts
            ):
                words = {node.value} | (set(re.findall(r"[\w-]+", node.value)) - ORDINARY)
                found += [f"{path.name}:{node.lineno}: {name}" for name in sorted(words & names)]
    return found


def writes_itself(node: ast.AST) -> bool:
    """Whether a call writes or deletes a file by the standard library."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    of_os = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "os"
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    words = [value.value for value in given if isinstance(value, ast.Constant)]
    modes = [
        word for word in words if isinstance(word, str) and re.fullmatch("[rwxabt+]{1,3}", word)
    ]
    # a function of ours, imported by its name
    is_bare = isinstance(node.func, ast.Name) and node.func.id in WRITING
    if name == "open":
        return any(set(mode) & set("wxa+") for mode in modes)
    return (name in WRITING and not is_bare) or (of_os and name in ("remove", "replace"))


def writing_breaches(repo: Path) -> list[str]:
    """What lies below a run's folder is written and deleted by one module, `disk`, which follows
    no link.
    """
    found = []
    for path in sources(repo, "pipeline"):
        if path.relative_to(repo).parts[2].removesuffix(".py") not in BELOW_RUNS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        elsewhere = {
            id(node)
            for function in functions
            if function.name in NOT_BELOW_RUNS
            for node in ast.walk(function)
        }
        calls = [
            node for node in ast.walk(tree) if writes_itself(node) and id(node) not in elsewhere
        ]
        found += [f"{path.name}:{call.lineno}" for call in calls]
    return found


VERBS = cli.list_commands(click.Context(cli))


def pasting_breaches(repo: Path) -> list[str]:
    """A command with a value in it is made by `to_paste`, which quotes as a shell reads it."""
    starts = re.compile(rf"\bsubquad (?:(?:{'|'.join(VERBS)})(?: [\w.-]+)* )?$")
    return [
        f"{path.name}:{text.lineno}"
        for root in ("pipeline", "plugins", "datasets")
        for path in sources(repo, root)
        for text in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(text, ast.JoinedStr)
        for before, value in pairwise(text.values)
        if isinstance(value, ast.FormattedValue)
        and isinstance(before, ast.Constant)
        and starts.search(str(before.value))
    ]


def at_import(node: ast.AST) -> list[ast.AST]:
    """What runs when a module is imported: all but the bodies of functions."""
    later: list[ast.AST] = []
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        later = [*node.body]
    elif isinstance(node, ast.Lambda):
        later = [node.body]
    now = [child for child in ast.iter_child_nodes(node) if child not in later]
    return [*now, *(inner for child in now for inner in at_import(child))]


ENVIRONMENT = ("environ", "getenv")


def environment_breaches(repo: Path) -> list[str]:
    """No module reads the environment when it is imported: a forked process has another one.
    Defaults for a library may be put there. Under a name of its own nobody would see it.
    """
    found = []
    for root in ROOTS:
        for path in sources(repo, root):
            nodes = at_import(ast.parse(path.read_text(encoding="utf-8")))
            attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
            defaults = [node.value for node in attributes if node.attr == "setdefault"]
            read = [node for node in attributes if node not in defaults]
            names = [node for node in nodes if isinstance(node, ast.alias)]
            found += [f"{path.name}:{node.lineno}" for node in read if node.attr in ENVIRONMENT]
            found += [f"{path.name}:{node.lineno}" for node in names if node.name in ENVIRONMENT]
    return found


RULES = (
    environment_breaches,
    pasting_breaches,
    writing_breaches,
    core_breaches,
    check_breaches,
    plugin_breaches,
    tool_breaches,
    home_breaches,
    root_breaches,
    length_breaches,
    naming_breaches,
    arrow_breaches,
    name_breaches,
)


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_keeps_the_rule(rule):
    assert rule(REPO) == []


@pytest.mark.parametrize("root", ROOTS)
def test_every_root_has_its_packages(root):
    assert all((REPO / root / package / "__init__.py").is_file() for package in ROOTS[root])


@pytest.mark.parametrize(
    ("rule", "file", "code"),
    [
        (
            writing_breaches,
            "pipeline/subquad/engine/a.py",
            "def f(run):\n    (run / 'x').write_text('')",
        ),
        (writing_breaches, "pipeline/subquad/search/a.py", "open(path, 'ab')"),
        (writing_breaches, "pipeline/subquad/record/storage.py", "path.open(mode='w')"),
        (
            writing_breaches,
            "pipeline/subquad/execution/a.py",
            "import shutil\nshutil.rmtree(folder)",
        ),
        (environment_breaches, "pipeline/subquad/a.py", "import os\nX = os.environ.get('X')"),
        (environment_breaches, "pipeline/subquad/a.py", "from os import environ"),
        (
            environment_breaches,
            "plugins/subquad_plugins/a.py",
            "import os\nclass A:\n    def f(x=os.getenv('X')): ...",
        ),
        (core_breaches, "pipeline/subquad/a.py", "import subquad_plugins"),
        (
            core_breaches,
            "pipeline/subquad/a.py",
            "def f():\n    from subquad_datasets.uea import PLUGIN",
        ),
        (
            core_breaches,
            "pipeline/subquad/deep/a.py",
            "import importlib\nimportlib.import_module('subquad_spaces.load')",
        ),
        (core_breaches, "pipeline/subquad/a.py", "X = 'subquad_plugins.agf:PLUGIN'"),
        (
            plugin_breaches,
            "plugins/subquad_plugins/a.py",
            "from subquad.registry import find_plugins",
        ),
        (plugin_breaches, "datasets/subquad_datasets/a.py", "import subquad.engine.loop"),
        (plugin_breaches, "tune_spaces/subquad_spaces/a.py", "from subquad import registry"),
        (home_breaches, "pipeline/subquad/engine/a.py", "import ray"),
        (
            home_breaches,
            "pipeline/subquad/tracking/a.py",
            "def f():\n    from mlflow.entities import Metric",
        ),
        (home_breaches, "plugins/subquad_plugins/a.py", "import ray.train"),
        (home_breaches, "pipeline/subquad/execution/drive.py", "def f():\n    import optuna"),
        (home_breaches, "pipeline/subquad_tools/a.py", "from optuna.trial import TrialState"),
        (core_breaches, "pipeline/subquad/a.py", "def f():\n    import subquad_check"),
        (plugin_breaches, "plugins/subquad_plugins/a.py", "import subquad_check.cases"),
        (tool_breaches, "pipeline/subquad_tools/a.py", "from subquad_check import certify"),
        (check_breaches, "pipeline/subquad_check/a.py", "from subquad_tools.bench import clock"),
        (check_breaches, "pipeline/subquad_check/a.py", "from subquad.cli.main import main"),
        (check_breaches, "pipeline/subquad_check/a.py", "def f():\n    import subquad.engine.loop"),
        (
            check_breaches,
            "pipeline/subquad_check/a.py",
            "from subquad.record.files import JsonFile",
        ),
        (core_breaches, "pipeline/subquad/a.py", "X = 'subquad_tools.bench'"),
        (tool_breaches, "pipeline/subquad_tools/a.py", "from subquad.cli.main import main"),
        (tool_breaches, "pipeline/subquad_tools/a.py", "from subquad.search import folder"),
        (tool_breaches, "pipeline/subquad_tools/a.py", "import subquad_plugins.agf"),
        (writing_breaches, "pipeline/subquad_tools/swap/a.py", "path.open(mode='w')"),
        (
            home_breaches,
            "pipeline/subquad/tracking/search.py",
            "from matplotlib.figure import Figure",
        ),
        (home_breaches, "pipeline/subquad/reports/a.py", "import matplotlib.pyplot as plt"),
        (
            arrow_breaches,
            "pipeline/subquad/tracking/a.py",
            "def f():\n    from subquad.search.folder import read_trial",
        ),
        (arrow_breaches, "pipeline/subquad/execution/a.py", "import subquad.ray.train"),
        (arrow_breaches, "pipeline/subquad/engine/a.py", "from subquad.execution import local"),
        (arrow_breaches, "pipeline/subquad/record/files.py", "from subquad.experiment import Run"),
        (arrow_breaches, "pipeline/subquad/reports/a.py", "from subquad.cli.main import main"),
        (length_breaches, "pipeline/subquad/a.py", "def f():\n    'What.'\n" + "    f()\n" * 40),
        (pasting_breaches, "pipeline/subquad/a.py", "X = f'with: subquad resume {folder}'"),
        (pasting_breaches, "datasets/subquad_datasets/a.py", "f'`subquad data index {shard}`'"),
        (pasting_breaches, "pipeline/subquad/a.py", "f'{1} subquad ' f'{verb} --help'"),
        (naming_breaches, "pipeline/subquad/a.py", "X = 'agf'"),
        (naming_breaches, "pipeline/subquad/a.py", "X = f'{1}: write it as in: show mixer agf'"),
        (naming_breaches, "pipeline/subquad/a.py", "X = 'identity'"),
        (root_breaches, "datasets/__init__.py", ""),
        (root_breaches, "plugins/loose.py", ""),
        (root_breaches, "pipeline/second/__init__.py", ""),
        (root_breaches, "subquad.egg-info/PKG-INFO", ""),
        (root_breaches, "pipeline/subquad.egg-info/PKG-INFO", ""),
    ],
)
def test_a_breach_is_seen(tmp_path, rule, file, code):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert len(rule(tmp_path)) == 1


def test_the_arrows_have_no_circle():
    assert list(TopologicalSorter(ARROWS).static_order())


def test_a_name_that_is_there_twice_is_seen(tmp_path):
    for file in ("a.py", "b/c.py"):
        (tmp_path / "pipeline" / "subquad" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pipeline" / "subquad" / file).write_text(
            "def public(): ...\ndef _private(): ...\n"
        )
    assert name_breaches(tmp_path) == ["public: subquad/a.py, subquad/b/c.py"]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("pipeline/subquad/ray/a.py", "import ray.train"),
        ("pipeline/subquad/tracking/mlflow.py", "import mlflow"),
        ("pipeline/subquad/search/searchers/a.py", "def f():\n    import optuna"),
        (
            "pipeline/subquad/search/plots.py",
            "import matplotlib\nimport optuna.visualization.matplotlib",
        ),
        (
            "pipeline/subquad/a.py",
            "def f():\n    'subquad show mixer agf'\nX = 'far from the identity'",
        ),
        ("pipeline/subquad/a.py", "def f():\n    'What.'\n" + "    f()\n" * 38),
        ("pipeline/subquad/a.py", "def f():\n    return os.environ"),
        ("pipeline/subquad/a.py", "import os\nos.environ.setdefault('X', '1')"),
        ("pipeline/subquad/a.py", "X = f'this subquad reads format {format}'"),
        (
            "pipeline/subquad/cli/a.py",
            "'''subquad_plugins is reached through entry points.'''\nfrom "
            "subquad.ray import driver",
        ),
        (
            "plugins/subquad_plugins/a.py",
            "from subquad.nn import TokenMixer\nfrom subquad import plugin\nimport subquad",
        ),
        ("datasets/subquad_datasets/a.py", "from . import ray\nimport rayleigh"),
    ],
)
def test_what_is_allowed_is_no_breach(tmp_path, file, code):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(code)
    assert [breach for rule in RULES for breach in rule(tmp_path)] == []


def heavy_after(code: str, heavy: tuple[str, ...] = HEAVY) -> list[str]:
    """Heavy libraries that a fresh process has loaded after running `code`."""
    tail = (
        f"\nimport sys\nprint(*[name for name in {heavy!r} if name in sys.modules], "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code + tail], capture_output=True, text=True, check=True
    )
    return done.stderr.split()


@pytest.mark.parametrize(
    "code",
    [
        "import subquad.plugin, subquad.plan, subquad.data, subquad.errors, subquad.record.files",
        "import subquad.registry, subquad.experiment.schema, subquad.registry.contract",
        "import subquad_check.command, subquad_check.new",
        "from subquad.cli.main import main\nassert main(['--help']) == 0",
        "from subquad.cli.main import main\nassert main(['list']) == 0",
        "from subquad.registry import find_plugins, recipes\nassert "
        "find_plugins('mixer')\nrecipes()",
    ],
)
def test_light_things_load_nothing_heavy(code):
    assert heavy_after(code) == []


def test_the_certificate_loads_little_beside_torch():
    others = [name for name in HEAVY if name != "torch"]
    slow = ("triton", "upath", "subquad.cost", "subquad.engine", "subquad.experiment")
    assert heavy_after("from subquad_check import certify, check_mixer", (*others, *slow)) == []


MISTAKES = [
    ["train", "nosuch"],
    ["train", "quickstart", "train.lrr=1"],
    ["train", "quickstart", "train.lr=fast"],
    ["train", "quickstart", "mixer.params.ordr=3"],
    ["train", "quickstart", "matrix.mixer=[agff]", "--dry-run"],
    ["resume", "nosuch"],
    ["tune", "nosuch", "--space", "auto"],
    ["tune", "quickstart", "--space", "nosuch"],
    ["tune", "quickstart", "--space", "auto", "sampler.sed=1"],
    ["submit", "train", "nosuch"],
    ["bench", "step", "nosuch"],
    ["check", "nosuch"],
    ["check", "agf", "ordr=3"],
]


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_told_before_anything_heavy_is_imported(words):
    code = (
        "import contextlib, io\nfrom subquad.cli.main import main\n"
        f"with contextlib.redirect_stderr(io.StringIO()): assert main({words!r}) == 2"
    )
    assert heavy_after(code, ("torch", "ray", "mlflow")) == []


@pytest.mark.ci
def test_training_imports_nothing_of_search(tmp_path):
    overrides = ["train.epochs=null", "train.steps=1", "train.eval_every_epochs=null"]
    words = ["train", "quickstart", "--local", "matrix.mixer=[softmax]", "matrix.seed=[0]"]
    words += [*overrides, "tracking.uri=off", f"--root={tmp_path}"]
    code = f"from subquad.cli.main import main\nassert main({words!r}) == 0"
    assert heavy_after(code, ("subquad.search", "subquad.space", "optuna")) == []


def test_help_needs_neither_schemas_nor_tables():
    """With both it took twice the time."""
    code = "from subquad.cli.main import main\nassert main(['--help']) == 0"
    assert heavy_after(code, ("pydantic", "rich")) == []


def test_a_heavy_import_is_seen():
    assert heavy_after("import sys, types\nsys.modules['ray'] = types.ModuleType('ray')") == ["ray"]
