"""Documentation names only what exists: pages in sources, links between pages, pages in the
site's navigation.
"""

import re
from pathlib import Path

import pytest
import yaml

from subquad.cli.new import package_files

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
    listed = pages(yaml.safe_load(text))
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
