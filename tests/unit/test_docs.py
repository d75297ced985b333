"""Documentation names only what exists: pages in sources, links between pages, pages in the
site's navigation, files and modules in decisions, settings of tools and comments.
"""

import ast
import io
import re
import tokenize
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from site_pages import whole

from subquad_check.new import package_files

REPO = Path(__file__).resolve().parents[2]
DOCS = REPO / "docs"
TEXTS = ["README.md", "CONTRIBUTING.md", "docs/**/*.md"]
SOURCES = [
    "pipeline/**/*.py",
    "plugins/**/*.py",
    "plugins/**/*.yaml",
    "datasets/**/*.py",
    "tune_spaces/**/*.yaml",
]

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="runs beside the sources only")


def files(patterns: list[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(REPO.glob(pattern))]


def test_named_pages_exist():
    found = {
        (path.name, page)
        for path in files(TEXTS + SOURCES)
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert found
    assert [(name, page) for name, page in sorted(found) if not (REPO / page).is_file()] == []


def test_links_between_pages_lead_somewhere():
    links = [
        (path, target)
        for path in files(TEXTS)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert links
    assert [
        (path.name, target) for path, target in links if not (path.parent / target).exists()
    ] == []


def test_the_site_has_every_page_once():
    text = (REPO / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = pages(whole(yaml.safe_load(text)))
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def pages(entries: list) -> list[str]:
    """Paths in a navigation, a list of paths, `{title: path}` and `{title: entries}`."""
    found: list[str] = []
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        found += pages(value) if isinstance(value, list) else [value]
    return found


def test_named_tests_exist():
    """Pages say which test shows what: a file of tests, with or without the tests folder's path
    in full.
    """
    named = {
        (page.name, name)
        for page in files(["docs/**/*.md"])
        for name in re.findall(r"\btests/\w+/[\w/]+\.py\b", page.read_text(encoding="utf-8"))
    }
    assert named
    assert [(page, name) for page, name in sorted(named) if not (REPO / name).is_file()] == []


NAMING = [
    "pyproject.toml",
    "mkdocs.yml",
    "ray_cluster.yaml",
    "Dockerfile",
    ".dockerignore",
    ".ci/*",
    ".github/**/*.yml",
    "CONTRIBUTING.md",
    "docs/architecture.md",
    "docs/explanation/**/*.md",
]
"""What names files and modules of the repository, besides comments."""

PARTS = ["pipeline", "plugins", "datasets", "tune_spaces", "tests", "benchmarks", "examples", ".ci"]
PYTHON = [f"{part}/**/*.py" for part in PARTS]


@cache
def endings() -> set[str]:
    """Of every path in the repository all that it may be called by: `engine/loop.py`, `loop.py`."""
    found = set[str]()
    for part in PARTS:
        for path in [REPO / part, *(REPO / part).rglob("*")]:
            names = path.relative_to(REPO).parts
            found |= {"/".join(names[first:]) for first in range(len(names))}
    return found


def is_module(name: str) -> bool:
    """Whether `subquad.engine.loop` is a module or package, or a name that its module has."""
    path, _, last = name.rpartition(".")
    if {f"{name.replace('.', '/')}{end}" for end in ("", ".py")} & endings():
        return True
    owner = path.replace(".", "/")
    found = [*REPO.glob(f"*/{owner}.py"), *REPO.glob(f"*/{owner}/__init__.py")]
    return any(last in file.read_text(encoding="utf-8") for file in found)


def missing(text: str, groups: set[str]) -> set[str]:
    """Files below a folder, and modules, that a text names and that are not there."""
    paths = re.findall(r"(?<![\w/.*<>{}$~-])((?:\.?[\w-]+/)+[\w-]+\.(?:py|sh|yaml))\b", text)
    modules = re.findall(r"(?<![\w/.])(subquad(?:_\w+)?(?:\.[a-z_]\w*)+)\b", text)
    return {path for path in paths if path not in endings()} | {
        name for name in modules if name not in groups and not is_module(name)
    }


def remarks(source: str) -> str:
    """The comments and docstrings of Python code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts.append(str(node.value.value))
    return "\n".join(texts)


def groups_of_entry_points() -> set[str]:
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {*project["entry-points"], "subquad.mixers", "subquad.status"}


def test_files_and_modules_that_settings_and_decisions_name_exist():
    groups = groups_of_entry_points()
    found = {
        path.name: missing(path.read_text(encoding="utf-8"), groups)
        for path in files(NAMING)
        if path.is_file()
    }
    assert len(found) > 12
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_files_and_modules_that_comments_name_exist():
    groups = groups_of_entry_points()
    sources = {path: path.read_text(encoding="utf-8") for path in files(PYTHON)}
    found = {
        str(path.relative_to(REPO)): missing(remarks(source), groups)
        for path, source in sources.items()
        if "templates" not in path.parts and missing(source, groups)
    }
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_modules_in_brackets_of_decisions_exist():
    """A decision says in brackets where it is carried out: (`queue`, `dispatcher`)."""
    code = "".join(path.read_text(encoding="utf-8") for path in files(SOURCES[:1]))
    words = set(re.findall(r"\w+", code))
    settings = ("train.", "resources.", *groups_of_entry_points())
    for page in files(["docs/explanation/decisions/*.md"]):
        text = page.read_text(encoding="utf-8")
        for brackets in re.findall(r"\(((?:`[\w./]+`(?:, )?)+)\)", text):
            for name in re.findall(r"`([\w.]+)`", brackets):
                path = name.replace(".", "/")
                there = {path, f"{path}.py"} & endings() or name.rpartition(".")[2] in words
                assert there or name.startswith(settings), (page.name, name)


@pytest.mark.parametrize(
    "text", ["`subquad.nowhere.loop`", "# see engine/lop.py", '"tests/unit/test_gone.py" = []']
)
def test_a_name_of_nothing_is_found(text):
    assert missing(text, set())


def test_the_plugins_page_shows_what_is_written_and_tested():
    """Its code is that of packages that `subquad new` writes, or of the samples that the tests
    train.
    """
    samples = [
        path.read_text(encoding="utf-8")
        for path in (REPO / "tests/support/third_party").glob("*.py")
    ]
    page = (DOCS / "plugins.md").read_text(encoding="utf-8")
    new = re.findall(r"`subquad new (\w+) ([\w-]+)`", page)
    assert [kind for kind, _ in new] == ["mixer", "dataset", "task", "backbone", "space"]
    known = [text for kind, name in new for text in package_files(kind, name).values()] + samples
    blocks = re.findall(r"```(?:python|yaml|toml)\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 7
    assert [block for block in blocks if not any(block in text for text in known)] == []
