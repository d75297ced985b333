"""The HTML page: inert whatever names hold, self-contained, and with its charts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from subquad.report import build, page, svg
from subquad.report.curves import Chart, Line, panels, thin

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
ALLOWED = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "ul", "li", "strong", "div"}
ALLOWED |= {"table", "thead", "tbody", "tr", "th", "td", "details", "summary", "span", "dl", "dt", "dd"}
ALLOWED |= {"figure", "figcaption", "svg", "desc", "line", "text", "circle", "polyline"}


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


def render(factory, **facts) -> str:
    return page.render(build([factory.run("one", **facts)]))


def everywhere(factory, name: str, folder: str) -> str:
    """The page of a study in which `name` stands wherever a run can put text of its own."""
    study = factory.study(folder)
    for label in (name, f"{name}2", "identity"):
        factory.cell(study, label=label, notes=[name], metric=name, variant=label.replace("\0", ""))
    factory.cell(study, label=name, status="failed", reason=name, seed=7)
    for run in (study / "cells").iterdir():
        data = json.loads((run / "result.json").read_text())
        data.update(dataset=name, protocol=name, protocol_label=name, experiment=name)
        (run / "result.json").write_text(json.dumps(data))
        machine = {"python": name, "git": {"commit": name}, "packages": {name: name}}
        (run / "environment.json").write_text(json.dumps(machine))
    return page.render(build([study]))


@pytest.mark.parametrize("name", NASTY)
def test_no_name_becomes_an_element_or_an_attribute(factory, name: str):
    source = everywhere(factory, name, "nasty")
    found = Reader(source)
    assert {tag for tag, _ in found.tags} <= ALLOWED
    attributes = [key for _, attrs in found.tags for key in attrs]
    assert not [
        key for key in attributes if key.startswith("on") or key in ("href", "src", "style", "action", "srcdoc")
    ]
    plain = Reader(everywhere(factory, "plain", "plain"))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]


def test_a_name_is_shown_as_it_is(factory):
    assert "<script>alert(1)</script>" in Reader(render(factory, label="<script>alert(1)</script>")).shown


def test_the_policy_allows_the_page_s_own_style_only(factory):
    source = render(factory)
    (policy,) = [attrs["content"] for tag, attrs in Reader(source).tags if attrs.get("http-equiv")]
    css = source.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in css
    assert "@import" not in css


def test_nothing_on_the_page_points_elsewhere(factory):
    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bhref=", render(factory))


def test_tables_name_their_cells_for_narrow_screens(factory):
    cells = [attrs for tag, attrs in Reader(render(factory)).tags if tag == "td"]
    assert cells
    assert all(attrs["data-label"] for attrs in cells)


def test_every_run_has_its_origin(factory):
    source = render(factory)
    shown = Reader(source).shown
    assert "one" in [line.strip() for line in shown]
    assert "1234567890abcdef with uncommitted changes" in shown
    assert "mixer agf from acme-mixers 1.2 (sha256 0f3c0f3c0f3c)" in shown
    assert "subquad 0.1.0, torch 2.13.0" in shown


def test_a_run_without_records_or_environment_still_has_a_page(factory):
    run = factory.run("one", status=None)
    (run / "metrics.jsonl").unlink()
    (run / "environment.json").unlink()
    source = page.render(build([run]))
    assert "While training" not in source
    assert "running/unfinished" in source


def test_charts_have_titles_descriptions_and_a_line_per_run(factory):
    study = factory.study()
    for seed in range(3):
        factory.cell(study, seed=seed, accuracy=0.9)
    factory.cell(study, mixer="identity", accuracy=0.3)
    source = page.render(build([study]))
    tags = [tag for tag, _ in Reader(source).tags]
    assert tags.count("polyline") == 8
    assert tags.count("desc") == 2
    assert "4 lines, accuracy (%) over epoch. Last values: agf 84.38; identity 28.12." in source
    images = [attrs for tag, attrs in Reader(source).tags if attrs.get("role") == "img"]
    assert [attrs["aria-labelledby"] for attrs in images] == [
        "chart-0-0-title chart-0-0-desc",
        "chart-0-1-title chart-0-1-desc",
    ]


def test_the_control_has_a_colour_of_its_own(factory):
    study = factory.study()
    for mixer in ("a", "b", "identity"):
        factory.cell(study, mixer=mixer)
    (panel,) = panels(build([study]))
    assert panel.legend == (("a", 0), ("b", 1), ("identity", 7))


def test_values_that_are_no_numbers_are_not_drawn(factory):
    run = factory.run("one")
    lines = (run / "metrics.jsonl").read_text().replace('"loss": 2.2', '"loss": "NaN", "x": 2.2').splitlines(True)
    (run / "metrics.jsonl").write_text("".join(lines).replace('{"loss": 1.4666666666666668}', '{"loss": "Infinity"}'))
    (panel,) = panels(build([run]))
    loss = panel.charts[1].lines[0]
    assert [x for x, _ in loss.points] == [20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]
    assert "nan" not in svg.draw(panel.charts[1], "c").lower()


def test_scores_on_the_test_split_are_dashed(factory):
    (panel,) = panels(build([factory.run("one", protocol="paper")]))
    assert panel.charts[0].tested
    assert 'class="line s0 test"' in svg.draw(panel.charts[0], "c")


def test_long_curves_are_thinned_by_means():
    points = [(float(x), float(x % 2)) for x in range(10_000)]
    found = thin(points, 100)
    assert len(found) == 100
    assert found[0] == (49.5, 0.5)
    assert thin(points[:5], 100) == points[:5]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 20.0], [0, 5, 10, 15, 20]),
        ([3.0, 3.0], [2.4, 2.6, 2.8, 3.0, 3.2, 3.4, 3.6]),
        ([0.012, 0.019], [0.012, 0.014, 0.016, 0.018, 0.02]),
        ([-1.0, 1.0], [-1.0, -0.5, 0.0, 0.5, 1.0]),
    ],
)
def test_ticks_are_round_and_span_the_values(values, expected):
    assert svg.ticks(values) == pytest.approx(expected)


def test_a_single_evaluation_is_a_dot():
    drawn = svg.draw(Chart("t", "epoch", "accuracy", (Line("a", 0, "validation", ((1.0, 0.5),)),)), "c")
    assert '<circle class="dot s0"' in drawn
    assert "polyline" not in drawn


def test_points_lie_inside_the_drawing():
    line = Line("a", 0, "train", tuple((float(x), 1e6 / (x + 1)) for x in range(50)))
    drawn = svg.draw(Chart("t", "step", "loss", (line,)), "c")
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    places = [tuple(map(float, point.split(","))) for point in points.split()]
    assert all(svg.LEFT <= x <= svg.WIDTH - svg.RIGHT and svg.TOP <= y <= svg.HEIGHT - svg.BOTTOM for x, y in places)
