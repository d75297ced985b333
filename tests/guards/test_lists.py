"""Guard: lists in the documentation have each plugin, setting and kernel, and no other."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import gpu_page
import papers_page
import pytest
import site_pages
import yaml
from built_in import abouts
from pages import REPO
from pydantic_core import PydanticUndefined
from writing import causal_subjects

from subquad.experiment.schema import decides_numbers
from subquad.nn.kernels import OPERATIONS
from subquad.registry import find_plugins, recipes, resolve
from subquad.reports.published import published_tables

pytestmark = pytest.mark.skipif(not (REPO / "docs").is_dir(), reason="runs beside the sources only")

KINDS = {"mixer": "mixers", "dataset": "datasets"}
"""Kinds of plugins with a folder of pages, and the folder."""


@cache
def text_of(page: str) -> str:
    return (REPO / page).read_text(encoding="utf-8")


def section(page: str, begin: str, end: str = "\n## ") -> str:
    """From some words to others."""
    return text_of(page).partition(begin)[2].partition(end)[0]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([\w-]+)`", text)


def built_in(kind: str) -> set[str]:
    return {row.name for row in find_plugins(kind) if row.distribution == "subquad"}


def first_cells(text: str) -> str:
    """The first column of a table."""
    return "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("|"))


def test_the_gpu_section_says_what_was_seen() -> None:
    """`python tests/support/gpu_page.py` writes it; README and the how-to say the same."""
    assert text_of("docs/performance.md") == gpu_page.page()
    seen = gpu_page.day()
    for page in ("README.md", "docs/how-to/gpu.md"):
        assert gpu_page.seen_on(seen) in text_of(page)
        assert gpu_page.verdict(seen) in text_of(page)


def rows_of_the_table() -> dict[str, list[str]]:
    """Cells of the table of mixers that the site makes, by name."""
    lines = site_pages.table().strip().splitlines()
    return {
        re.findall(r"\[`([\w-]+)`\]", line)[0]: [cell.strip() for cell in line.split("|")[2:-1]]
        for line in lines[2:]
    }


def test_the_table_of_mixers_has_each_once_behind_its_page() -> None:
    text = text_of("docs/reference/mixers/index.md")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/mixers/index.md"))
    assert site_pages.on_page_markdown(text, page) == text + site_pages.table()
    page.file.src_uri = "reference/mixers/agf.md"
    assert site_pages.on_page_markdown(text, page) == text
    assert set(rows_of_the_table()) == built_in("mixer")
    assert rows_of_the_table()["softmax"] == [
        "softmax attention, the quadratic baseline",
        "L^2",
        "can be",
        "yes",
        "–",
    ]


def test_the_pages_of_the_papers_say_what_recipes_and_table_say() -> None:
    """`python tests/support/papers_page.py` writes them."""
    assert text_of("docs/reference/papers/index.md") == papers_page.index()
    for name in papers_page.SOURCES:
        assert text_of(f"docs/reference/papers/{name}.md") == papers_page.page(name)


CHANGED = [
    ("lra-agf", "train.lr=0.5", "learning rate 0.5, published 0.0001", 15),
    ("lra-agf", "train.beta2=0.9", "beta2 0.9, published 0.999", 15),
    ("lra-agf", "train.ema_decay=0.9", "mean of weights 0.9, published none", 15),
    ("lra-agf", "backbone.params.norm=post", "layer norm post, published pre", 15),
    ("lra-agf", "task.params.label_smoothing=0.1", "label smoothing 0.1, published 0", 15),
    ("lra-agf", "mixers=[{name: gfnet, layers: 0}]", "gfnet 0, published none", 15),
    ("lra-agf", "matrix.mixer.softmax.params.rotary=true", "rotary on, published off", 5),
    ("lra-cur", "matrix.mixer.cur.params.num_indices=32", "num_indices 32, published 64", 5),
    ("lra-cur", "matrix.dataset.text.params.max_len=4096", "length 4096, published 2048", 1),
    ("uea-agf", "train.warmup_steps=9", "warm-up steps 9, published 0", 22),
    ("deit-small-agf", "train.epochs=3", "epochs 3, published 300", 4),
    (
        "deit-small-agf",
        "matrix.mixer=[softmax]",
        "network deit_small_patch16_224, published vit",
        1,
    ),
    ("vit-b16-cur-finetune", "matrix.mixer.cur-16.params.num_indices=8", "8, published 16", 1),
    ("vit-b16-cur-finetune", "train.steps=99", "steps 99, published 1532", 4),
    ("pubmed-mdfwa", "backbone.params.num_layers=2", "depth 2, published 12", 21),
    ("pubmed-mdfwa", "dataset.params.max_target=512", "summary 512, published 4096", 21),
    ("pubmed-mdfwa", "matrix.mixer.MDFWA.params.norm=ortho", "norm ortho, published paper", 3),
]
"""Recipe, a changed setting, a difference by name, and how many numbers have it."""


@pytest.mark.parametrize(("recipe", "setting", "difference", "count"), CHANGED)
def test_what_a_recipe_has_otherwise_stands_there_by_name(
    recipe: str, setting: str, difference: str, count: int
) -> None:
    cells = papers_page.cells(recipe, setting)
    named = [cell for cell in cells if difference in "; ".join(cell.beside.reasons)]
    assert len(named) == count


def test_every_setting_is_held_against_a_row_that_can_be_comparable() -> None:
    """What is not stands in `NOT_HELD`, with the reason, which the page has."""
    (papers,) = published_tables()
    unheld = [key for keys in papers_page.NOT_HELD.values() for key in keys]
    left = set[str]()
    for cell in (cell for name in recipes() for cell in papers_page.cells(name)):
        printed = cell.beside.published
        rule = papers.conditions_of(printed)
        if rule is None or rule.never:
            continue
        held = {*rule.expect, *rule.exceptions.get(printed.benchmark, {})}
        for variant in rule.mixer[cell.mixer][printed.benchmark]:
            held |= {f"mixer.params.{key}" for key in variant}
        left |= {key for key in cell.leaves if decides_numbers(key)} - held
    assert left == set(unheld)


def test_the_table_says_which_mixers_can_be_causal() -> None:
    said = {name for name, cells in rows_of_the_table().items() if cells[2] != "–"}
    assert said == {subject.resolved.found.name for subject in causal_subjects()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_plugin_has_its_page(kind: str) -> None:
    folder = REPO / "docs/reference" / KINDS[kind]
    assert {path.stem for path in folder.glob("*.md")} - {"index"} == built_in(kind)


def test_every_triton_kernel_is_on_the_page_of_a_mixer_that_has_it_first() -> None:
    """An operation is there when its module is imported."""
    for path in (REPO / "plugins").rglob("*.py"):
        if " = Operation(" in path.read_text(encoding="utf-8"):
            name = path.relative_to(REPO / "plugins").with_suffix("")
            importlib.import_module(".".join(name.parts))
    ours = {
        operation.name
        for operation in OPERATIONS.values()
        if "triton" in {made.name for made in operation.implementations}
    }
    said = set[str]()
    for name, about in abouts().items():
        first = {operation for operation, way in about.first.items() if way == "triton"}
        found = set(re.findall(r"`(\w+\.\w+)`", text_of(page_of("mixer", name)))) & ours
        assert first <= found
        said |= found if first else set()
    assert said == ours


def test_the_table_of_fla_has_who_uses_each_kernel() -> None:
    text = section("docs/reference/kernels.md", "## Kernels of flash-linear-attention")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    said = {
        (name, *quoted(operation)) for _, operation, names, *_ in rows for name in quoted(names)
    }
    used = {(name, operation) for name, about in abouts().items() for operation in about.fla}
    assert said == used


def page_of(kind: str, name: str) -> str:
    folder = f"{KINDS[kind]}/" if kind in KINDS else ""
    return f"docs/reference/{folder}{name}.md"


def rows_of(text: str) -> Iterator[tuple[str, str]]:
    """Parameter and default of the tables whose head is `parameter` or `key`, with `default`."""
    head = r"^\| (?:parameter|key) \| default \|.*?(?=\n\n|\Z)"
    for table in re.findall(head, text, re.DOTALL | re.MULTILINE):
        for line in table.splitlines()[2:]:
            names, default = (cell.strip() for cell in line.split("|")[1:3])
            found = quoted(names)
            defaults = default.split(", ") if len(found) > 1 else [default]
            yield from zip(
                found, defaults if len(defaults) > 1 else len(found) * defaults, strict=True
            )


def is_default(cell: str, default: Any) -> bool:
    """Whether a cell says a default; one in words stands for null, an empty one says nothing."""
    if default is PydanticUndefined or not cell:
        return cell in ("", "–", "required")
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", cell.strip("`"))
    if re.fullmatch(r"\d+/\d+", plain):
        return float(Fraction(plain)) == default
    value = yaml.safe_load(plain)
    value = tuple(value) if isinstance(value, list) else value
    return value == default or (default is None and isinstance(value, str))


PAGES = [
    *(("dataset", name) for name in sorted(built_in("dataset"))),
    *(("backbone", name) for name in ("decoder", "encoder", "encoder-decoder", "timm-vit")),
    *(("mixer", name) for name in sorted(built_in("mixer"))),
]


@pytest.mark.parametrize(("kind", "name"), PAGES)
def test_tables_of_parameters_have_those_that_there_are(kind: str, name: str) -> None:
    fields = resolve(kind, name).plugin.config.model_fields  # pyright: ignore
    rows = dict(rows_of(text_of(page_of(kind, name))))
    assert [key for key in rows if key not in fields] == []
    assert [key for key in rows if not is_default(rows[key], fields[key].default)] == []


def test_a_wrong_default_is_found() -> None:
    table = "| key | default | meaning |\n|---|---|---|\n| `order`, `bias` | 5, true | said |\n"
    rows = dict(rows_of(table))
    assert rows == {"order": "5", "bias": "true"}
    assert is_default(rows["order"], 5)
    assert not is_default(rows["order"], 4)
    assert not is_default(rows["bias"], False)


@pytest.mark.parametrize(("kind", "name"), PAGES)
def test_every_parameter_is_on_the_page_or_on_one_that_it_links_to(kind: str, name: str) -> None:
    page = REPO / page_of(kind, name)
    links = re.findall(r"\]\(([\w./-]+\.md)", page.read_text(encoding="utf-8"))
    there = [page, *(page.parent / link for link in links)]
    text = "".join(path.read_text(encoding="utf-8") for path in there)
    fields = resolve(kind, name).plugin.config.model_fields  # pyright: ignore
    named = {*quoted(text), *re.findall(r"[{ ](\w+):", text)}
    assert sorted(fields.keys() - named) == []
