"""`subquad paper`: cells from real small runs, each experiment once, and tables that verify makes
again.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pytest
from result_file import read_result
from scipy.stats import wilcoxon

from subquad.cli.main import main
from subquad.experiment import load_study
from subquad.reports.text import Spread
from subquad_tools.paper import making
from subquad_tools.paper.file import open_paper
from subquad_tools.paper.grid import Entry, Grid
from subquad_tools.paper.runs import Wanted, missing_runs
from subquad_tools.paper.sheet import section_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "paper.md"
MINE = """\
format: 1
title: Mine
studies:
  a: {full: {extends: quickstart, train: {epochs: 1}, matrix: {dataset: [JapaneseVowels]}}}
  b:
    full:
      extends: quickstart
      train: {epochs: 1}
      matrix: {dataset: [JapaneseVowels], mixer: [softmax, identity]}
tables:
  "1":
    title: T
    study: a
    rows: {Attention: softmax, None: identity}
    columns: {JV: JapaneseVowels}
    derived: {Avg: mean, Rank: rank}
    digits: 1
  "2":
    title: Again
    study: b
    rows: {Attention: softmax, None: identity}
    columns:
      JV s: {runs: {dataset: JapaneseVowels}, metric: seconds_per_step, digits: 4}
      JV: JapaneseVowels
    derived: {Ratio: {kind: ratio, of: [JV], to: None}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(MINE)
    return tmp_path


def cells(folder: Path, table: str) -> dict[tuple[str, str], dict[str, str]]:
    with open(folder / f"table-{table}.csv", encoding="utf-8", newline="") as stream:
        return {(cell["row"], cell["column"]): cell for cell in csv.DictReader(stream)}


def test_equal_cells_are_trained_once_and_the_tables_are_made_again(place: Path, capsys):
    assert main(["paper", "./mine.yaml", "--table", "all", "--local"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^4 runs to train: [\d.e+]+ FLOPs; hours are told", said)
    results = {
        path.parent: read_result(path.parent) for path in place.glob("runs/*/*/*/*/result.json")
    }
    assert len(results) == 4
    scores: Any = pd.DataFrame(
        [(run["mixer"], 100 * run["test"]["metrics"]["accuracy"]) for run in results.values()]
    ).groupby(0)[1]
    folder = place / "papers" / "mine-full"
    first = cells(folder, "1")
    second = cells(folder, "2")
    for row, mixer in {"Attention": "softmax", "None": "identity"}.items():
        mean, std = scores.mean()[mixer], scores.std()[mixer]
        assert first[row, "JV"]["text"] == first[row, "Avg"]["text"] == f"{mean:.1f} ± {std:.1f}"
        assert first[row, "JV"]["state"] == "ours"
        assert second[row, "JV"]["text"] == f"{mean:.2f} ± {std:.2f}"
        ratio = mean / scores.mean()["identity"]
        assert float(second[row, "Ratio"]["value"]) == pytest.approx(ratio)
    about = json.loads((folder / "provenance.json").read_text())
    runs = about["tables"]["1"]["1/Attention/JV"]["runs"]
    assert {place / run["folder"] for run in runs} <= results.keys()
    before = {path: path.read_bytes() for path in folder.iterdir()}

    assert main(["paper", "./mine.yaml", "--table", "2", "--local"]) == 0
    assert "no run is missing" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert main(["verify", str(folder)]) == 0
    (folder / "table-1.tex").write_bytes(before[folder / "table-1.tex"].replace(b"T", b"U", 1))
    assert main(["verify", str(folder)]) == 1
    assert "table-1.tex: WRONG: not what its runs" in capsys.readouterr().out

    damaged = next(iter(results)) / "result.json"
    damaged.write_text(damaged.read_text().replace("accuracy", "accuracz", 1))
    assert main(["paper", "./mine.yaml", "--only-print"]) == 2
    assert str(damaged.parent) in capsys.readouterr().err


def test_the_same_command_goes_on_after_a_stop(place: Path, capsys, monkeypatch):
    whole = making.drive

    def stopped(study, *more):
        """As if the process had died after the first run."""
        first = study.pending[:1]
        whole(study.__class__(**{**vars(study), "runs": tuple(first)}), *more)
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(making, "drive", stopped)
        assert main(["paper", "./mine.yaml", "--table", "1", "--local"]) == 130
    assert len([*place.glob("runs/*/*/cells/*/result.json")]) == 1
    assert main(["paper", "./mine.yaml", "--only-print", "--table", "1"]) == 0
    shown = cells(place / "papers" / "mine-full", "1")
    assert sorted(shown[row, "JV"]["state"] for row in ("Attention", "None")) == [
        "missing",
        "unfinished",
    ]
    missing = [row for row in ("Attention", "None") if shown[row, "JV"]["state"] == "missing"]
    assert shown[missing[0], "Avg"]["state"] == "missing"
    capsys.readouterr()
    assert main(["paper", "./mine.yaml", "--table", "1", "--local"]) == 0
    assert "3 runs to train" in capsys.readouterr().out
    assert len([*place.glob("runs/*/*")]) == 1
    assert len([*place.glob("runs/*/*/cells/*/result.json")]) == 4
    shown = cells(place / "papers" / "mine-full", "1")
    assert {cell["state"] for cell in shown.values()} == {"ours"}


MOVED = """\
format: 1
title: Moved
studies:
  a:
    full:
      extends: quickstart
      train: {epochs: 1}
      matrix:
        dataset: [JapaneseVowels]
        mixer:
          - softmax
          - {name: cur, params: {num_indices: 4}, label: cur4}
          - {name: cur, params: {num_indices: 9}, label: cur9}
        seed: [0]
tables:
  moved:
    title: The weights of softmax
    study: a
    rows:
      Softmax: {runs: {mixer: softmax}, transfer: {mixer: softmax}}
      "4": {runs: {mixer: cur4}, transfer: {mixer: softmax}}
      "9": {runs: {mixer: cur9}, transfer: {mixer: softmax}}
      New: {runs: {mixer: cur9}, transfer: {mixer: softmax}, untrained: true}
    columns:
      Error: {runs: {dataset: JapaneseVowels}, metric: output_error, digits: 4}
      JV: JapaneseVowels
    chart: points
    axes: [error, accuracy]
  layers:
    title: Layers
    study: a
    where: {mixer: softmax, dataset: JapaneseVowels}
    rows: {Softmax: {}}
    columns:
      "1": {metric: token_similarity, layer: 1}
      "2": {metric: token_similarity, layer: 2}
      "9": {metric: gain_ratio, layer: 9}
    chart: lines
"""


def test_what_is_measured_of_a_trained_model_stands_in_a_table(place: Path, capsys):
    """As `swap` and `diagnose` say it, once, and again when the weights are other ones."""
    (place / "mine.yaml").write_text(MOVED)
    order = ["paper", "./mine.yaml", "--table", "all", "--local"]
    assert main(order) == 0
    said = capsys.readouterr().out
    assert "1 run to train" in said
    assert said.count("measured ") == 5
    folder = place / "papers" / "mine-full"
    shown = cells(folder, "moved")
    (run,) = {path.parent for path in place.glob("runs/*/*/cells/*/result.json")}
    trained = 100 * read_result(run)["test"]["metrics"]["accuracy"]
    assert float(shown["Softmax", "JV"]["value"]) == pytest.approx(trained)
    assert float(shown["Softmax", "Error"]["value"]) == 0
    told = ["swap", str(run), "cur", "num_indices=[4,9]", "--split", "test", "--json"]
    assert main(told) == 0
    for swap in json.loads(capsys.readouterr().out)["swaps"]:
        row = str(swap["params"]["num_indices"])
        errors = [error["absolute"] for error in swap["errors"]]
        accuracy = 100 * swap["metrics"]["accuracy"]
        assert float(shown[row, "JV"]["value"]) == pytest.approx(accuracy)
        assert float(shown[row, "Error"]["value"]) == pytest.approx(fmean(errors), rel=1e-6)
    assert shown["New", "Error"]["value"] not in ("", shown["9", "Error"]["value"])
    assert main(["diagnose", str(run), "--json", "--out", str(place / "passport")]) == 0
    found = json.loads(capsys.readouterr().out)
    layers = cells(folder, "layers")
    similarity = found[run.name]["similarity"]
    for layer in (1, 2):
        assert float(layers["Softmax", str(layer)]["value"]) == pytest.approx(similarity[layer])
    assert layers["Softmax", "9"]["state"] == "missing"
    assert (folder / "chart-moved.svg").read_text().count("<use ") >= 4
    assert (folder / "chart-layers.pdf").read_bytes().startswith(b"%PDF")
    assert main(["verify", str(folder)]) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(order) == 0
    assert "measured " not in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    kept = next((folder / "measured").glob("trained-*-*.json"))
    kept.write_text(kept.read_text().replace("0.", "0.1", 1))
    assert main(["verify", str(folder)]) == 1
    capsys.readouterr()
    assert main(order) == 0
    assert capsys.readouterr().out.count("measured ") == 1
    after = {path: path.read_bytes() for path in before}
    changed = {path.name for path in before if before[path] != after[path]}
    assert changed == {"test-openings.jsonl"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("transfer: {mixer: softmax}}", "transfer: {mixer: sofmax}}", "label 'sofmax'"),
        ("token_similarity, layer: 1", "token_similarity", "layer: "),
        ("metric: gain_ratio", "untrained: true, metric: gain_ratio", "untrained: has no effect"),
        ("output_error, digits: 4}", "token_similarity, layer: 1}", "no metric 'token_similarity'"),
        ("metric: gain_ratio", "metric: output_error", "no metric 'output_error'"),
        ('"2": {', "second: {", "tables.layers.chart: "),
        ("      JV: JapaneseVowels\n", "", "tables.moved.chart: "),
        (
            "          - softmax\n",
            "          - {name: softmax, set: {backbone.params.dim: 32}}\n",
            "transfer: names no run that differs in its mixers alone",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(place: Path, capsys, old: str, new: str, words: str):
    assert old in MOVED
    (place / "mine.yaml").write_text(MOVED.replace(old, new, 1))
    assert main(["paper", "./mine.yaml", "--table", "all", "--local"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not [*place.glob("runs/*"), *place.glob("papers/*")]


def test_the_page_s_example_is_a_paper(place: Path, capsys):
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(text.splitlines()) <= 30
    (place / "page.yaml").write_text(text)
    assert main(["paper", "./page.yaml"]) == 0
    assert "12 runs to train" in capsys.readouterr().out


def test_printed_numbers_are_tested_alone(place: Path, capsys):
    """Averages and Wilcoxon's test, computed here from the ledger's own file."""
    assert main(["paper", "agf", "--from-published", "--table", "1,13"]) == 0
    said = capsys.readouterr().out
    assert "Primalformer p: printed 0.008, its cells give 0.004." in said
    path = Path(__file__).resolve().parents[2] / "plugins/subquad_plugins/published/papers.csv"
    ledger = pd.read_csv(path).query("source == 'wi2025agf' and table == 'Table 1'")
    table = ledger.pivot(index="model", columns="benchmark", values="value")
    printed = table.pop("average")
    shown = cells(place / "papers" / "agf-published", "1")
    tests = cells(place / "papers" / "agf-published", "13")
    wrong = []
    for model in table.index:
        mean = table.loc[model].mean()
        assert float(shown[model, "Avg"]["value"]) == pytest.approx(mean)
        if abs(mean - printed[model]) > 0.0500001:
            wrong.append(model)
        if model != "AGF":
            found: Any = wilcoxon((table.loc["AGF"] - table.loc[model]).round(9))
            assert float(tests[model, "p"]["value"]) == pytest.approx(found.pvalue)
    assert wrong == ["Longformer", "Performer"]
    for model in wrong:
        assert f"{model} Avg: printed {printed[model]}" in said
    assert "<u>92.5</u>" in (place / "papers/agf-published/table-1.md").read_text()
    text = (place / "papers/agf-published/table-1.tex").read_text()
    for column, benchmark in {"EC": "EthanolConcentration", "HW": "Handwriting"}.items():
        best = str(table[benchmark].idxmax())
        line = next(line for line in text.split("\\\\\n") if f"\\textit{{{best} " in line)
        assert f"\\textbf{{{shown[best, column]['text']}}}" in line
    assert not list(place.glob("runs/*"))


@pytest.mark.parametrize("name", ["agf", "cur", "mdfwa", "sfpc"])
def test_a_paper_s_tables_are_all_runs_or_say_why_not(name: str):
    paper = open_paper(name)
    for size in ("smoke", "full"):
        wanted = Wanted(paper, size, paper.tables, load_study)
        missing = missing_runs(wanted, {})
        digests = [run.digest for runs in missing.values() for run in runs]
        assert len(digests) == len(set(digests)) > 0
        assert all(cell.runs or cell.reason for cell in wanted.cells.values())
    for table, kept in paper.tables.items():
        assert kept.command or kept.study, table


BAD = {
    "rows: {Attention: softmax, None": (
        "rwos: {Attention: softmax, None",
        "./mine.yaml:14: tables.1.rwos: unknown key; did you mean 'rows'?",
    ),
    "Attention: softmax": (
        "Attention: softmix",
        "rows.Attention: no value has the label 'softmix'",
    ),
    "study: a": ("study: c", "tables.1.study: no study 'c'; did you mean 'a'?"),
    "digits: 1": ("metric: accurcy", "no metric 'accurcy'; did you mean 'accuracy'?"),
    '  "2":': ('  "1":', "key 1 is given twice"),
    "Avg: mean": ("Avg: meen", "tables.1.derived.Avg.kind: got"),
    "to: None": ("to: Nine", "tables.2.derived.Ratio: no row 'Nine'; did you mean 'None'?"),
    "title: Mine": ("title: Mine\nsource: wi2025ag", "did you mean 'wi2025agf'?"),
    "Attention: softmax, None: identity}\n    columns: {JV": (
        "All: {runs: {}}}\n    columns: {JV",
        "rows.All: means several runs",
    ),
    "matrix: {dataset: [JapaneseVowels]}": (
        "matrix: {dataset: [JapaneseVowels], pro: [{label: p, set: {protocol: paper}}, "
        "{label: h, set: {protocol: honest}}]}",
        "means several runs",
    ),
    "extends: quickstart, train": ("extends: quickstrt, train", "studies.a: "),
}


@pytest.mark.parametrize("old", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(place: Path, capsys, old: str):
    new, words = BAD[old]
    assert old in MINE
    (place / "mine.yaml").write_text(MINE.replace(old, new, 1))
    for more in (["--table", "all", "--local"], ["--only-print"], []):
        assert main(["paper", "./mine.yaml", *more]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    assert not (place / "papers").exists()
    assert not [*place.glob("runs/*")]


def test_a_table_that_the_paper_has_no_more_is_left_out(place: Path, capsys):
    assert main(["paper", "./mine.yaml", "--only-print"]) == 0
    (place / "mine.yaml").write_text(MINE.replace('  "2":', '  "3":'))
    assert main(["verify", str(place / "papers" / "mine-full")]) == 1
    assert main(["paper", "./mine.yaml", "--only-print", "--table", "3"]) == 0
    kept = json.loads((place / "papers/mine-full/provenance.json").read_text())
    assert [*kept["tables"]] == ["1", "3"]
    assert main(["verify", str(place / "papers" / "mine-full")]) == 0


def test_several_protocols_in_one_table_are_refused(place: Path, capsys):
    text = MINE.replace(
        "mixer: [softmax, identity]}",
        "change: [{label: h, set: {protocol: honest}}, {label: p, set: {protocol: paper}}]}",
    )
    text = text.replace(
        "study: b\n    rows: {Attention: softmax, None: identity}",
        "study: b\n    where: {mixer: softmax}\n"
        "    rows: {H: {runs: {change: h}}, None: {runs: {change: p}}}",
    )
    (place / "mine.yaml").write_text(text)
    assert main(["paper", "./mine.yaml", "--table", "2", "--local"]) == 2
    assert "tables.2: has runs of several protocols: honest, paper" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["agg"], "no paper 'agg'; did you mean 'agf'?"),
        (["agf", "--table", "1,99"], "no table '99'"),
        (["agf", "--table", "1,1"], "--table: 1 is named twice; name it once"),
        (["./nothing.yaml"], "./nothing.yaml: no such file"),
    ],
)
def test_bad_words_are_refused(place: Path, capsys, words: list[str], error: str):
    assert main(["paper", *words]) == 2
    assert error in capsys.readouterr().err


def grid_of(entries: dict[tuple[str, str], Entry]) -> Grid:
    rows = dict.fromkeys(row for row, _ in entries)
    columns = dict.fromkeys(column for _, column in entries)
    paper = open_paper("agf").tables["1"]
    lines = dict.fromkeys(rows, paper.rows["AGF"])
    table = paper.model_copy(update={"rows": lines, "derived": {}})
    return Grid("agf", "1", table, "Table 1", tuple(columns), entries)


def test_marks_are_of_whole_real_runs_alone():
    """Stand-in and unfinished numbers are never the best; equal ones in print are both."""

    def entry(value: float, **more: object) -> Entry:
        return Entry(spread=Spread(value, None, 1), digits=1, **more)  # type: ignore[arg-type]

    values = {
        "a": entry(99.0, is_stand_in=True),
        "b": entry(98.0, unfinished="1 of 2 seeds"),
        "c": entry(90.04),
        "d": entry(90.0),
        "e": entry(80.0),
        "f": Entry(digits=1, missing="not run"),
    }
    section = section_of(grid_of({(row, "x"): value for row, value in values.items()}))
    assert section.table
    signs = {section.table.lines[line][0]: sign for (line, _), sign in section.table.signs.items()}
    assert signs == {"c": "*", "d": "*", "e": "_"}
    assert section.table.letters == {
        "stand-in data": "a",
        "unfinished: 1 of 2 seeds": "b",
        "missing: not run": "c",
    }
    assert section.lines[0] == "6 cells: 3 ours, 1 stand-in, 1 unfinished, 1 missing."


def test_the_verdict_counts_comparable_cells():
    paper = open_paper("agf")
    from subquad_tools.paper.grid import fill

    printed = fill(paper, ["1"])["1"].entries["AGF", "EC"].printed
    assert printed
    assert printed.value == 36.1
    gaps = (0.0, 1.0, -1.0, 1.1, -1.2, -5.0)
    entries = {
        (str(number), "x"): Entry(spread=Spread(36.1 + gap, 0.1, 3), digits=1, printed=printed)
        for number, gap in enumerate(gaps)
    }
    entries["other", "x"] = Entry(
        spread=Spread(1.0, None, 1), digits=1, printed=printed, differs="epochs 2, published 100"
    )
    section = section_of(grid_of(entries))
    assert section.table
    assert "6 comparable cells: 3 within 1.0 points, 2 below, 1 above." in section.lines
    assert "not comparable: epochs 2, published 100" in section.table.letters


HOSTILE = (
    "a_b",
    "50%",
    "$x$",
    "#1",
    "a&b",
    "{",
    "\\",
    "~",
    "^",
    "[4cm]",
    "*",
    "\\input{x}",
    "é",
    "日",
)


@pytest.mark.extended
def test_latex_compiles_without_an_overfull_box(place: Path):
    tex = shutil.which("pdflatex")
    if tex is None:
        pytest.skip("TeX is not installed")
    rows = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: softmax" for name in HOSTILE)
    (place / "mine.yaml").write_text(MINE.replace("Attention: softmax, None", f"{rows}, None"))
    assert main(["paper", "./mine.yaml", "--only-print"]) == 0
    for name in ("agf", "cur", "mdfwa"):
        assert main(["paper", name, "--from-published"]) == 0
    for folder, options in product(place.glob("papers/*"), ("", "twocolumn", "landscape")):
        text = (folder / "article.tex").read_text()
        (folder / "a.tex").write_text(text.replace("documentclass", f"documentclass[{options}]", 1))
        command = [tex, "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="ignore")
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout
