"""Where code may lie, and who may import what. Each rule is a function of a tree, so that it can be seen to fail."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

import pytest

from subquad.plugin import Role

REPO = Path(__file__).resolve().parents[2]
ROOTS = {
    "pipeline": "subquad",
    "plugins": "subquad_plugins",
    "datasets": "subquad_datasets",
    "tune_spaces": "subquad_spaces",
}
PUBLIC = {
    "subquad",
    "subquad.plugin",
    "subquad.nn",
    "subquad.plan",
    "subquad.data",
    "subquad.errors",
    "subquad.limits",
    "subquad.reach",
    "subquad.runs",
    "subquad.storage",
    "subquad.suggest",
    "subquad.testing",
}
"""What plugins may import: contract and its tests, errors, a command's reach, whole files, names."""

HOMES = {
    "ray": ("pipeline/subquad/ray/",),
    "mlflow": ("pipeline/subquad/tracking/gate.py", "pipeline/subquad/tracking/mlflow.py"),
    "optuna": ("pipeline/subquad/search/", "pipeline/subquad/space/"),
    "matplotlib": (
        "datasets/subquad_datasets/shown.py",
        "pipeline/subquad/bench/draw.py",
        "pipeline/subquad/diagnose/draw.py",
        "pipeline/subquad/report/charts.py",
        "pipeline/subquad/tracking/plots.py",
        "pipeline/subquad/search/plots.py",
    ),
    "scipy": (
        "pipeline/subquad/report/",
        "pipeline/subquad/testing/checks/complexity.py",
        "datasets/subquad_datasets/pathfinder/discs.py",
    ),
}
CONTRACTS = {
    "addresses": set(),
    "errors": {"addresses", "suggest"},
    "suggest": set(),
    "limits": {"errors"},
    "processes": set(),
    "reach": set(),
    "disk": {"errors"},
    "manifest": {"disk"},
    "strict_json": {"errors"},
    "markup": {"errors"},
    "shapes": set(),
    "runs": {"disk", "errors", "manifest", "shapes", "strict_json"},
    "downloads": {"errors", "limits"},
    "storage": {"addresses", "disk", "downloads", "errors", "limits", "manifest", "runs"},
    "integrity": {"disk", "errors", "manifest", "runs", "storage", "strict_json"},
    "effect": set(),
    "metric": set(),
    "trust": {"addresses", "disk", "errors"},
    "plugin": {"effect", "errors", "metric", "suggest"},
    "plan": {"plugin", "errors"},
    "data": {"errors", "plan", "plugin"},
    "nn": {"data", "errors", "plugin", "suggest"},
    "cost": {"data", "errors", "nn", "plugin"},
    "registry": {"data", "effect", "errors", "nn", "plugin", "processes", "suggest"},
    "experiment": {"addresses", "disk", "errors", "plugin", "registry", "runs", "storage", "suggest", "trust"},
    "space": {"effect", "errors", "experiment", "plugin", "registry", "suggest"},
}
ARROWS = {
    **CONTRACTS,
    "engine": {*CONTRACTS} - {"space"},
    "tracking": {*CONTRACTS} - {"space", "nn", "cost", "data"},
    "report": {*CONTRACTS} - {"space", "nn", "cost", "data"},
    "testing": {*CONTRACTS} - {"space", "runs"},
    "bench": {*CONTRACTS, "engine", "testing"} - {"space"},
    "diagnose": {"disk", "errors", "metric", "nn"},
    "drivers": {*CONTRACTS, "engine", "tracking"} - {"space"},
    "search": {*CONTRACTS, "engine", "drivers", "tracking"},
    "ray": {*CONTRACTS, "engine", "drivers"} - {"space"},
    "api": {*CONTRACTS, "engine", "drivers", "tracking", "report", "search", "testing", "ray"},
    "cli": {
        *CONTRACTS,
        "api",
        "engine",
        "drivers",
        "tracking",
        "report",
        "search",
        "testing",
        "ray",
        "bench",
        "diagnose",
    },
    "__init__": {"api"},
}
"""What each package or module of the core may import of the others: docs/architecture.md draws it."""

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
    *("write_text", "write_bytes", "touch", "unlink", "rmdir", "rmtree", "mkdir", "makedirs", "rename", "renames"),
    *("symlink_to", "hardlink_to", "copy2", "copyfile", "copytree", "NamedTemporaryFile", "mkstemp"),
}
BELOW_RUNS = (
    "runs",
    "storage",
    "manifest",
    "integrity",
    "engine",
    "drivers",
    "search",
    "report",
    "tracking",
    "diagnose",
)
"""Modules and packages of the core that write and delete below the folders of runs."""
NOT_BELOW_RUNS = {"write_text": "another machine's file", "write_output": "the user names it", "fetched": "data"}
"""Functions of those that write elsewhere, and what."""

LONGEST_FUNCTION = 40
"""Lines, without the docstring."""

HEAVY = ("torch", "ray", "mlflow", "sktime", "matplotlib", "scipy", "optuna")
NAMES_A_PLUGIN_PACKAGE = re.compile(r"(subquad_plugins|subquad_datasets|subquad_spaces)([.:][\w.:]*)?")

pytestmark = pytest.mark.skipif(not (REPO / "pipeline").is_dir(), reason="runs beside the sources only")


def imports(path: Path) -> set[str]:
    """Every module a file imports, also inside a function, and every string that is a plugin package's name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            found.update({module} if module != "subquad" else {f"subquad.{alias.name}" for alias in node.names})
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and NAMES_A_PLUGIN_PACKAGE.fullmatch(node.value)
        ):
            found.add(node.value.replace(":", "."))
    return found


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def sources(repo: Path, root: str) -> list[Path]:
    return sorted((repo / root).rglob("*.py"))


def core_breaches(repo: Path) -> list[str]:
    """The core reaches plugins through entry points only."""
    others = [package for root, package in ROOTS.items() if root != "pipeline"]
    files = sources(repo, "pipeline")
    return [
        f"{path.name}: {name}" for path in files for name in imports(path) if any(is_in(name, one) for one in others)
    ]


def plugin_breaches(repo: Path) -> list[str]:
    """Built-in plugins use what a third party may use."""
    files = [path for root in ROOTS if root != "pipeline" for path in sources(repo, root)]
    return [
        f"{path.name}: {name}"
        for path in files
        for name in imports(path)
        if is_in(name, "subquad") and not any(is_in(name, one) for one in PUBLIC - {"subquad"}) and name != "subquad"
    ]


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
    """A source root holds one package and no file of Python, or `datasets/` would shadow the library of that name."""
    loose = [path for root in ROOTS for path in (repo / root).glob("*.py")]
    packages = [p for root, own in ROOTS.items() for p in (repo / root).glob("*/__init__.py") if p.parent.name != own]
    stale = [path for root in (".", *ROOTS) for path in (repo / root).glob("*.egg-info")]
    return [path.relative_to(repo).as_posix() for path in (*loose, *packages, *stale)]


def arrow_breaches(repo: Path) -> list[str]:
    """A package of the core imports what stands below it, and there is no circle."""
    core = repo / "pipeline" / "subquad"
    found = []
    for path in sources(repo, "pipeline"):
        own = path.relative_to(core).parts[0].removesuffix(".py")
        for name in imports(path):
            other = [*name.split("."), "__init__"][1]
            if is_in(name, "subquad") and other not in (own, "__init__") and other not in ARROWS.get(own, ()):
                found.append(f"{path.relative_to(core).as_posix()}: {name}")
    return sorted(found)


def name_breaches(repo: Path) -> list[str]:
    """A public function or class of the core has its name for itself."""
    places = defaultdict(list)
    for path in sources(repo, "pipeline"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(repo / "pipeline").as_posix())
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


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
    groups = tomllib.loads((repo / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    files = ("subquad.recipes", "subquad.spaces", "subquad.published", "subquad.commands")
    kinds = [group for group in groups if group.startswith("subquad.") and group not in files]
    return {name for group in kinds for name in groups[group]}


def naming_breaches(repo: Path) -> list[str]:
    """No code of the core knows a built-in plugin by name; docstrings and help texts may show one as an example.

    The backbone `decoder` shares its name with a role of mixers, the mixer `local` with an option and with Ray's word,
    `linear` with a schedule, the task `multilabel` with its target, and the data set `table` with those of reports.
    """
    names, found = plugin_names(REPO) - {*get_args(Role), "local", "linear", "multilabel", "table"}, []
    for path in sources(repo, "pipeline"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                said = {node.value} | (set(re.findall(r"[\w-]+", node.value)) - ORDINARY)
                found += [f"{path.name}:{node.lineno}: {name}" for name in sorted(said & names)]
    return found


def writes_itself(node: ast.AST) -> bool:
    """Whether a call writes or deletes a file by the standard library."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    of_os = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "os"
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    words = [value.value for value in given if isinstance(value, ast.Constant)]
    modes = [word for word in words if isinstance(word, str) and re.fullmatch("[rwxabt+]{1,3}", word)]
    is_bare = isinstance(node.func, ast.Name) and node.func.id in WRITING  # a function of ours, imported by its name
    if name == "open":
        return any(set(mode) & set("wxa+") for mode in modes)
    return (name in WRITING and not is_bare) or (of_os and name in ("remove", "replace"))


def writing_breaches(repo: Path) -> list[str]:
    """What lies below a run's folder is written and deleted by one module, `disk`, which follows no link."""
    core = repo / "pipeline" / "subquad"
    found = []
    for path in sources(repo, "pipeline"):
        if path.relative_to(core).parts[0].removesuffix(".py") not in BELOW_RUNS:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        elsewhere = {id(node) for one in functions if one.name in NOT_BELOW_RUNS for node in ast.walk(one)}
        calls = [node for node in ast.walk(tree) if writes_itself(node) and id(node) not in elsewhere]
        found += [f"{path.name}:{call.lineno}" for call in calls]
    return found


RULES = (
    writing_breaches,
    core_breaches,
    plugin_breaches,
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


@pytest.mark.parametrize(("root", "package"), ROOTS.items())
def test_every_root_has_its_package(root, package):
    assert (REPO / root / package / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("rule", "file", "code"),
    [
        (writing_breaches, "pipeline/subquad/engine/a.py", "def f(run):\n    (run / 'x').write_text('')"),
        (writing_breaches, "pipeline/subquad/search/a.py", "open(path, 'ab')"),
        (writing_breaches, "pipeline/subquad/storage.py", "path.open(mode='w')"),
        (writing_breaches, "pipeline/subquad/drivers/a.py", "import shutil\nshutil.rmtree(folder)"),
        (core_breaches, "pipeline/subquad/a.py", "import subquad_plugins"),
        (core_breaches, "pipeline/subquad/a.py", "def f():\n    from subquad_datasets.uea import PLUGIN"),
        (
            core_breaches,
            "pipeline/subquad/deep/a.py",
            "import importlib\nimportlib.import_module('subquad_spaces.load')",
        ),
        (core_breaches, "pipeline/subquad/a.py", "X = 'subquad_plugins.agf:PLUGIN'"),
        (plugin_breaches, "plugins/subquad_plugins/a.py", "from subquad.registry import find_plugins"),
        (plugin_breaches, "datasets/subquad_datasets/a.py", "import subquad.engine.loop"),
        (plugin_breaches, "tune_spaces/subquad_spaces/a.py", "from subquad import registry"),
        (home_breaches, "pipeline/subquad/engine/a.py", "import ray"),
        (home_breaches, "pipeline/subquad/tracking/a.py", "def f():\n    from mlflow.entities import Metric"),
        (home_breaches, "plugins/subquad_plugins/a.py", "import ray.train"),
        (home_breaches, "pipeline/subquad/drivers/drive.py", "def f():\n    import optuna"),
        (home_breaches, "pipeline/subquad/bench/a.py", "from optuna.trial import TrialState"),
        (home_breaches, "pipeline/subquad/tracking/search.py", "from matplotlib.figure import Figure"),
        (home_breaches, "pipeline/subquad/report/a.py", "import matplotlib.pyplot as plt"),
        (
            arrow_breaches,
            "pipeline/subquad/tracking/a.py",
            "def f():\n    from subquad.search.folder import read_trial",
        ),
        (arrow_breaches, "pipeline/subquad/drivers/a.py", "import subquad.ray.train"),
        (arrow_breaches, "pipeline/subquad/engine/a.py", "from subquad.drivers import local"),
        (arrow_breaches, "pipeline/subquad/runs.py", "from subquad.experiment import Run"),
        (arrow_breaches, "pipeline/subquad/report/a.py", "from subquad.cli.main import main"),
        (length_breaches, "pipeline/subquad/a.py", "def f():\n    'What.'\n" + "    f()\n" * 40),
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
        (tmp_path / "pipeline" / "subquad" / file).write_text("def public(): ...\ndef _private(): ...\n")
    assert name_breaches(tmp_path) == ["public: subquad/a.py, subquad/b/c.py"]


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("pipeline/subquad/ray/a.py", "import ray.train"),
        ("pipeline/subquad/tracking/mlflow.py", "import mlflow"),
        ("pipeline/subquad/tracking/plots.py", "from matplotlib.figure import Figure"),
        ("pipeline/subquad/search/searchers/a.py", "def f():\n    import optuna"),
        ("pipeline/subquad/search/plots.py", "import matplotlib\nimport optuna.visualization.matplotlib"),
        ("pipeline/subquad/a.py", "def f():\n    'subquad show mixer agf'\nX = 'far from the identity'"),
        ("pipeline/subquad/a.py", "def f():\n    'What.'\n" + "    f()\n" * 38),
        (
            "pipeline/subquad/cli/a.py",
            "'''subquad_plugins is reached through entry points.'''\nfrom subquad.ray import driver",
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


def heavy_after(code: str) -> list[str]:
    """Heavy libraries that a fresh process has loaded after running `code`."""
    tail = f"\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-P", "-c", code + tail], capture_output=True, text=True, check=True)
    return done.stderr.split()


@pytest.mark.parametrize(
    "code",
    [
        "import subquad, subquad.plugin, subquad.plan, subquad.data, subquad.errors, subquad.runs",
        "import subquad.registry, subquad.experiment.schema, subquad.registry.contract",
        "from subquad.cli.main import main\nassert main(['--help']) == 0",
        "from subquad.cli.main import main\nassert main(['list']) == 0",
        "from subquad.registry import find_plugins, recipes\nassert find_plugins('mixer')\nrecipes()",
    ],
)
def test_light_things_load_nothing_heavy(code):
    assert heavy_after(code) == []


def test_a_heavy_import_is_seen():
    assert heavy_after("import sys, types\nsys.modules['ray'] = types.ModuleType('ray')") == ["ray"]
