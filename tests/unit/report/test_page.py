"""The HTML page: inert whatever names hold, self-contained, and with its charts."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from subquad.record.metrics import read_records
from subquad.reports import FORMATS, document_of, read_report
from subquad.reports.drawing import Line, LineChart, _thin, training_charts

NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</title><script>x</script>",
    "</style><script>x</script>",
    "<!--",
    "-->",
    "<![CDATA[x]]>",
    "{{ 7*7 }}",
    "{% raw %}",
    "{% include 'x' %}",
    "${7*7}",
    "javascript:alert(1)",
    "<a href=javascript:x>y</a>",
    '" onmouseover="x',
    "' onfocus='x' autofocus='",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "<iframe src=//e></iframe>",
    "<object data=x>",
    "<embed src=x>",
    "<base href=//e/>",
    '<meta http-equiv="refresh" content="0">',
    "<link rel=stylesheet href=//e>",
    "<form action=//e><input>",
    "</desc></svg><script>x</script>",
    "</details><script>",
    "`onerror=x`",
    "\x00<script>\x1b[31m",
    "\u202e<b onclick=x>",
)
ALLOWED = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "h2",
    "h3",
    "p",
    "ul",
    "li",
    "strong",
    "div",
}
ALLOWED |= {
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "details",
    "summary",
    "span",
    "dl",
    "dt",
    "dd",
}
ALLOWED |= {"figure", "img"}


class Reader(HTMLParser):
    """Elements, attributes and shown text of a page."""

    def __init__(self, source: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.shown: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.shown.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data):
        raise AssertionError(f"a declaration: {data}")


def as_page(folder) -> str:
    return FORMATS["html"](document_of(read_report([folder], baseline="identity")))


def render(factory, **facts) -> str:
    return as_page(factory.run("one", **facts))


def everywhere(factory, name: str, folder: str) -> str:
    """The page of a study in which `name` stands wherever a run can put text of its own."""
    study = factory.study(folder)
    for label in (name, f"{name}2", "identity"):
        factory.cell(study, label=label, notes=[name], metric=name, variant=label.replace("\0", ""))
    factory.cell(study, label=name, status="failed", reason=name, seed=7)
    for number, run in enumerate(sorted((study / "cells").iterdir())):
        if number:  # one run's curves are enough to draw
            (run / "metrics.jsonl").unlink()
        data = json.loads((run / "result.json").read_text())
        data.update(dataset=name, protocol=name, protocol_label=name, experiment=name)
        (run / "result.json").write_text(json.dumps(data))
        machine = {"python": name, "git": {"commit": name}, "packages": {name: name}}
        (run / "environment.json").write_text(json.dumps(machine))
    return as_page(study)


@pytest.fixture(scope="module")
def plain_tags(shared_factory) -> list[str]:
    """The elements of a page whose names are harmless."""
    return [tag for tag, _ in Reader(everywhere(shared_factory, "plain", "plain")).tags]


@pytest.mark.parametrize("name", NASTY)
def test_no_name_becomes_an_element_or_an_attribute(factory, plain_tags: list[str], name: str):
    source = everywhere(factory, name, "nasty")
    found = Reader(source)
    assert {tag for tag, _ in found.tags} <= ALLOWED
    attributes = [key for _, attrs in found.tags for key in attrs]
    assert not [
        key
        for key in attributes
        if key.startswith("on") or key in ("href", "style", "action", "srcdoc")
    ]
    sources = [attrs["src"] for _, attrs in found.tags if "src" in attrs]
    assert all(
        re.fullmatch(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+", source or "")
        for source in sources
    )
    for source in sources:
        drawing = Reader(base64.b64decode((source or "").partition(",")[2]).decode())
        assert not {"script", "foreignobject", "iframe", "image", "a"} & {
            tag for tag, _ in drawing.tags
        }
        assert not [key for _, attrs in drawing.tags for key in attrs if key.startswith("on")]
    assert [tag for tag, _ in found.tags] == plain_tags


def test_a_name_is_shown_as_it_is(factory):
    assert (
        "<script>alert(1)</script>"
        in Reader(render(factory, label="<script>alert(1)</script>")).shown
    )


def test_the_policy_allows_the_page_s_own_style_only(factory):
    source = render(factory)
    (policy,) = [attrs["content"] for tag, attrs in Reader(source).tags if attrs.get("http-equiv")]
    css = source.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri "
        "'none'; form-action 'none'"
    )
    assert "url(" not in css
    assert "@import" not in css


def test_nothing_on_the_page_points_elsewhere(factory):
    outside = re.sub(r'src="data:image/svg\+xml;base64,[^"]*"', "", render(factory))
    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bhref=", outside)


def test_tables_name_their_cells_for_narrow_screens(factory):
    cells = [attrs for tag, attrs in Reader(render(factory)).tags if tag == "td"]
    assert cells
    assert all(attrs["data-label"] for attrs in cells)


def test_every_run_has_its_origin(factory):
    source = render(factory)
    shown = Reader(source).shown
    assert "one" in [line.strip() for line in shown]
    for name, value in {
        "git.commit": "1234567890abcdef",
        "git.dirty": "True",
        "plugins": "distribution acme-mixers, kind mixer, name agf, "
        f"sha256 {'0f3c' * 16}, version 1.2",
        "packages.torch": "2.13.0",
    }.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in source


def test_a_run_without_records_or_environment_still_has_a_page(factory):
    run = factory.run("one", status=None)
    (run / "metrics.jsonl").unlink()
    (run / "environment.json").unlink()
    source = as_page(run)
    assert "While training" not in source
    assert "unfinished" in source


def drawn(source: str) -> list[str]:
    """The charts of a page."""
    found = [attrs["src"] or "" for tag, attrs in Reader(source).tags if tag == "img"]
    return [base64.b64decode(picture.partition(",")[2]).decode() for picture in found]


def test_charts_have_descriptions_and_a_line_per_run(factory):
    study = factory.study()
    for seed in range(3):
        factory.cell(study, seed=seed, accuracy=0.9)
    factory.cell(study, mixer="identity", accuracy=0.3)
    source = as_page(study)
    words = [attrs["alt"] for tag, attrs in Reader(source).tags if tag == "img"]
    assert words[0] == "4 lines, accuracy (%) over epoch. Last values: agf 84.38; identity 28.12."
    assert len(words) == len(drawn(source)) == 2
    # the first table, scores and costs, published rows
    assert source.count("±: standard deviation over the seeds") == 3
    assert [len(chart.lines) for chart in training_charts(read_report([study]))] == [4, 4]


def test_the_table_comes_first(factory):
    study = factory.study()
    for mixer in ("agf", "identity"):
        factory.cell(study, mixer=mixer)
    body = as_page(study).partition("<body>")[2]
    assert body.index("<table") < body.index('class="headlines"')
    assert "<li" not in body[: body.index("<table")]


def test_the_baseline_has_a_colour_of_its_own(factory):
    study = factory.study()
    for mixer in ("a", "b", "identity"):
        factory.cell(study, mixer=mixer)
    (scores, _) = training_charts(read_report([study], baseline="identity"))
    assert [(line.name, line.colour) for line in scores.lines] == [
        ("a", "#0b5cad"), ("b", "#c2410c"), ("identity", "#5f6873")
    ]  # fmt: skip


def test_values_that_are_no_numbers_are_not_drawn(factory):
    run = factory.run("one")
    first, second, *others = read_records(run)
    odd = [replace(first, metrics={"loss": math.nan}), replace(second, metrics={"loss": math.inf})]
    (run / "metrics.jsonl").write_text("".join(record.line() for record in (*odd, *others)))
    (_, losses) = training_charts(read_report([run]))
    assert [x for x, _ in losses.lines[0].points] == [30.0, 40.0, 50.0, 60.0, 70.0, 80.0]
    assert "nan" not in losses.drawn().lower()


def test_scores_on_the_test_split_are_dashed(factory):
    (scores, _) = training_charts(read_report([factory.run("one", protocol="paper")]))
    assert scores.title.endswith("(dashed: on the test split)")
    assert "stroke-dasharray" in scores.drawn()


def test_long_curves_are_thinned_by_means():
    points = [(float(x), float(x % 2)) for x in range(10_000)]
    found = _thin(points, 100)
    assert len(found) == 100
    assert found[0] == (49.5, 0.5)
    assert _thin(points[:5], 100) == tuple(points[:5])


def test_a_single_evaluation_is_a_dot():
    single = LineChart("t", "epoch", "accuracy", (Line("a", "#000000", ((1.0, 0.5),)),)).drawn()
    assert "<use" in single


@pytest.mark.parametrize("name", ["$x", "$a^$", "_hidden", "\\frac", "日本語", "&<b>"])
def test_names_are_drawn_as_they_are(name: str):
    chart = LineChart(name, "epoch", name, (Line(name, "#000000", ((1.0, 0.5), (2.0, 0.6))),))
    first = chart.drawn()
    assert first.count(f">{html.escape(name, quote=False)}</text>") == 3
    assert chart.drawn() == first
