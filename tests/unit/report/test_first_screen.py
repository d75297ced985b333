"""What a reader sees first: mixers down, data sets across, signs, and at most five sentences."""

# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import io
import re
import shutil
import subprocess

import pytest
from rich.console import Console

from subquad.cli.main import main
from subquad.reports import document_of, print_document, read_report

ACCURACY = "Test accuracy (%), protocol honest"


def only(report):
    (section,) = document_of(report).overview
    return section.table


def cells(report) -> dict[tuple[str, str], str]:
    """Each cell with its sign, by mixer and data set."""
    table = only(report)
    found = {}
    for number, (mixer, *texts) in enumerate(table.lines):
        for place, (column, text) in enumerate(zip(table.columns[1:], texts, strict=True), 1):
            found[mixer, column] = f"{text} {table.signs.get((number, place), '')}".strip()
    return found


@pytest.fixture
def study(factory, answers):
    """Two data sets, on the first of which agf and softmax are not told apart."""
    folder = factory.study()
    wrong = {"A": {"agf": 20, "softmax": 21, "identity": 200}, "B": {"agf": 150, "softmax": 20}}
    for dataset, errors in wrong.items():
        for mixer, count in errors.items():
            for seed in range(2):
                factory.cell(
                    folder,
                    dataset=dataset,
                    mixer=mixer,
                    seed=seed,
                    correct=answers(400, count + seed, 3 * seed),
                    reference_scores={"majority": 0.2},
                )
    return folder


def test_a_cell_has_mean_spread_and_sign(study):
    assert cells(read_report([study], baseline="identity")) == {
        ("agf", "A"): "94.88 ± 0.18 *",
        ("agf", "B"): "62.38 ± 0.18",
        ("agf", "average"): "78.62 ± 0.18 ?",
        ("softmax", "A"): "94.62 ± 0.18 ≈",
        ("softmax", "B"): "94.88 ± 0.18 *",
        ("softmax", "average"): "94.75 ± 0.18 *",
        ("identity", "A"): "49.88 ± 0.18",
        ("identity", "B"): "–",
        ("identity", "average"): "–",  # a missing cell makes its average missing
        ("reference: majority", "A"): "20.00",
        ("reference: majority", "B"): "20.00",
        ("reference: majority", "average"): "20.00",
    }


def test_baseline_and_guesses_stand_apart(study):
    table = only(read_report([study], baseline="identity"))
    names = [line[0] for line in table.lines]
    assert [names[line] for line in table.apart] == ["identity", "reference: majority"]


def test_the_sentences(study):
    assert document_of(read_report([study], baseline="identity")).summary == (
        "3 mixers on 2 data sets, 2 seeds each, baseline identity; honest: checkpoint chosen on "
        "validation; test opened once.",
        "A: agf ≈ softmax.",
        "B: softmax best, 32.5 points from agf.",
    )


def test_one_seed_is_not_enough_to_tell(factory, answers):
    folder = factory.study()
    for mixer, wrong in {"agf": 20, "softmax": 90}.items():
        factory.cell(folder, mixer=mixer, correct=answers(400, wrong))
    report = read_report([folder])
    assert list(cells(report).values()) == ["95.00 *", "77.50 ?"]
    assert "JapaneseVowels: agf ahead, not enough to tell from softmax; train more seeds." in (
        document_of(report).summary
    )


def test_the_best_is_the_least_of_what_shall_be_small_and_equal_scores_share_it(factory):
    folder = factory.study()
    for mixer, loss in {"agf": 3.0, "cur": 3.0, "softmax": 9.0}.items():
        for seed in range(3):
            facts = {"metric": "perplexity", "mode": "min", "accuracy": loss + 0.01 * seed}
            factory.cell(folder, mixer=mixer, seed=seed, **facts)
    report = read_report([folder])
    assert [text[-1] for text in cells(report).values()] == ["*", "*", "1"]
    assert (
        "JapaneseVowels: agf, cur best, 6 perplexity from softmax." in document_of(report).summary
    )


def test_stand_in_data_are_never_the_best(factory, answers):
    folder = factory.study()
    for mixer, wrong in {"agf": 20, "softmax": 90}.items():
        for seed in range(2):
            factory.cell(
                folder,
                mixer=mixer,
                seed=seed,
                correct=answers(400, wrong, seed),
                notes=["stand-in data: generated"],
            )
    report = read_report([folder])
    assert only(report).signs == {}
    summary = document_of(report).summary
    assert "JapaneseVowels: one score or none on real data, so no verdict." in summary
    assert summary[-1].startswith("Beware: JapaneseVowels: stand-in data: generated")


def test_a_cell_without_a_score_says_what_became_of_its_runs(factory):
    folder = factory.study()
    factory.cell(folder, mixer="agf", accuracy=0.9)
    factory.cell(folder, mixer="cur", status="failed", reason="broke")
    factory.cell(folder, mixer="softmax", status=None)
    report = read_report([folder])
    assert list(cells(report).values()) == ["90.00", "1 failed", "1 unfinished"]
    assert (
        document_of(report)
        .summary[-1]
        .startswith(
            "Beware: cur on JapaneseVowels: 1 failed; softmax on JapaneseVowels: 1 unfinished"
        )
    )


def test_each_protocol_and_metric_has_a_table(factory):
    folder = factory.study()
    factory.cell(folder, accuracy=0.9)
    factory.cell(folder, accuracy=0.9, protocol="paper")
    factory.cell(folder, dataset="text", metric="perplexity", mode="min", accuracy=12.0)
    assert [section.title for section in document_of(read_report([folder])).overview] == [
        ACCURACY,
        "Test accuracy (%), protocol paper, best on test",
        "Test perplexity, protocol honest",
    ]


def test_settings_with_one_last_word_are_lines_of_their_own(factory):
    folder = factory.study()
    for order, dim in ((1, 128), (2, 128), (1, 256)):
        facts = {"params": {"order": order}, "backbone": {"dim": dim}, "accuracy": 0.9}
        factory.cell(folder, variant=f"{order}-{dim}", **facts)
    assert len(only(read_report([folder])).lines) == 3


def test_many_verdicts_are_left_to_the_signs(factory, answers):
    folder = factory.study()
    for number, dataset in enumerate("ABCDE"):
        for mixer, wrong in {"agf": 20, "softmax": 100 + 20 * number}.items():
            for seed in range(2):
                correct = answers(400, wrong + seed)
                factory.cell(folder, dataset=dataset, mixer=mixer, seed=seed, correct=correct)
    summary = document_of(read_report([folder])).summary
    assert summary[1].startswith("A: agf best")
    assert summary[3] == "The other 3 data sets: see the signs in the table."
    assert len(summary) <= 5


@pytest.mark.parametrize("width", [40, 60, 100])
def test_data_sets_that_do_not_fit_stand_below(factory, width):
    folder = factory.study()
    names = [f"a-long-name-{number}" for number in range(9)]
    for dataset in names:
        factory.cell(folder, dataset=dataset, accuracy=0.9)
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    print_document(document_of(read_report([folder])), console)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert stream.getvalue().split().count("agf") == sum(
        line.startswith("mixer ") for line in lines
    )
    assert set(names) <= set(stream.getvalue().split())


def test_a_pipe_has_at_most_15_lines_of_100_columns(study, capsys):
    assert main(["report", str(study), "--baseline", "identity"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines[:-1])) <= 100, "the last line names the folder"


def test_no_difference_is_minus_nothing(factory, as_text):
    folder = factory.study()
    for mixer, shift in {"agf": 0.0, "identity": 1e-5}.items():
        for seed in range(2):
            factory.cell(folder, mixer=mixer, seed=seed, accuracy=0.5 + 0.1 * seed + shift)
    page = as_text(read_report([folder], baseline="identity"), "md")
    assert "| agf − identity | honest | 0.0 |" in page
    assert not re.search(r"-0\.0+(?![0-9])", page)


def words_before_a_fold(page: str) -> int:
    body = page.partition("<body>")[2]
    return len(re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<details>.*</details>", " ", body)).split())


def test_the_page_has_few_words_before_a_fold_is_opened(study, as_text):
    page = as_text(read_report([study], baseline="identity"), "html")
    assert page.index(ACCURACY) < page.index("<details>")
    assert 50 < words_before_a_fold(page) <= 500


def test_latex_marks_and_signs(factory, answers, as_text):
    folder = factory.study()
    for mixer, wrong in {"agf": 20, "cur": 21, "softmax": 90}.items():
        for seed in range(2):
            factory.cell(folder, mixer=mixer, seed=seed, correct=answers(400, wrong + seed))
    factory.cell(folder, dataset="B", mixer="a_b%", metric="score", accuracy=-0.5)
    text = as_text(read_report([folder], baseline="softmax"), "tex")
    assert r"\textbf{94.88 $\pm$ 0.18}" in text
    assert r"\underline{94.62 $\pm$ 0.18}" in text
    assert r"\textit{softmax}" in text
    assert r"agf $\approx$ cur" in text
    assert r"a\_b\% & $-$50.00 \\" in text


HOSTILE = ("a_b", "50%", "$x$", "#1", "a&b", "{", "}", "\\", "~", "^", "[4cm]", "*", '"', "<>|")
HOSTILE += ("\\input{x}", "--", "日本語", "é", "α", "≈", "\x1b[0m", "\u202e", "x" * 200, " ", "'")


@pytest.mark.extended
def test_latex_compiles_without_an_overfull_box(factory, as_text, tmp_path):
    """In an article of one and of two columns; narrow, wide and hostile tables."""
    tex = shutil.which("pdflatex")
    if tex is None:
        pytest.skip("TeX is not installed")
    inputs = []
    for datasets, mixers in {1: HOSTILE, 4: ("agf",), 12: ("agf", "cur")}.items():
        folder = factory.study(f"study{datasets}")
        for number in range(datasets):
            for place, mixer in enumerate(mixers):
                facts = {"label": mixer, "accuracy": 0.5, "variant": str(place)}
                factory.cell(folder, dataset=f"a data set {number}", **facts)
        (tmp_path / f"t{datasets}.tex").write_text(as_text(read_report([folder]), "tex"))
        inputs.append(f"\\input{{t{datasets}.tex}}")
    for options in ("", "twocolumn"):
        (tmp_path / "a.tex").write_text(
            f"\\documentclass[{options}]{{article}}\n"
            "\\usepackage{booktabs,graphicx,rotating}\n\\begin{document}\n"
            + "\n".join(inputs)
            + "\n\\end{document}\n"
        )
        command = [tex, "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, errors="ignore"
        )
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout
