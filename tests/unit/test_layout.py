"""Where code may lie, and who may import what. Each rule is a function of a tree, so that it can be seen to fail."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
    "subquad.data",
    "subquad.errors",
    "subquad.runs",
    "subquad.suggest",
    "subquad.testing",
}
"""What plugins may import: the contract, its errors, whole-file writes, nearest names, the contract tests."""

HOMES = {
    "ray": ("pipeline/subquad/ray/",),
    "mlflow": ("pipeline/subquad/tracking/mlflow.py",),
    "optuna": ("pipeline/subquad/search/searchers/", "pipeline/subquad/search/pictures/"),
    "matplotlib": (
        "pipeline/subquad/report/charts.py",
        "pipeline/subquad/tracking/plots.py",
        "pipeline/subquad/search/pictures/",
    ),
    "scipy": ("pipeline/subquad/report/stats.py",),
}
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


RULES = (core_breaches, plugin_breaches, home_breaches, root_breaches)


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_keeps_the_rule(rule):
    assert rule(REPO) == []


@pytest.mark.parametrize(("root", "package"), ROOTS.items())
def test_every_root_has_its_package(root, package):
    assert (REPO / root / package / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("rule", "file", "code"),
    [
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
        (home_breaches, "pipeline/subquad/search/loop.py", "def f():\n    import optuna"),
        (home_breaches, "pipeline/subquad/bench/a.py", "from optuna.trial import TrialState"),
        (home_breaches, "pipeline/subquad/tracking/search.py", "from matplotlib.figure import Figure"),
        (home_breaches, "pipeline/subquad/report/a.py", "import matplotlib.pyplot as plt"),
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


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("pipeline/subquad/ray/a.py", "import ray.train"),
        ("pipeline/subquad/tracking/mlflow.py", "import mlflow"),
        ("pipeline/subquad/tracking/plots.py", "from matplotlib.figure import Figure"),
        ("pipeline/subquad/search/searchers/a.py", "def f():\n    import optuna"),
        ("pipeline/subquad/search/pictures/a.py", "import matplotlib\nimport optuna.visualization.matplotlib"),
        (
            "pipeline/subquad/a.py",
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
        "import subquad, subquad.plugin, subquad.data, subquad.errors, subquad.runs",
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
