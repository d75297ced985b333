"""A published table of somebody else's: one YAML file in a package, beside the tables that are
built in.
"""

from __future__ import annotations

import importlib
import json

import pytest

from subquad.cli.main import main
from subquad.reports import document_of, read_report
from subquad.reports.beside import published_beside
from subquad.reports.published import published_faults, published_tables, source_title

TABLE = """\
# Rows of a paper on running means.
format: 1
sources: {doe2026: "Doe: Running means, 2026"}
models: {running-mean: [RunningMean], agf: [Filters]}
tables: {doe2026: [Table 1]}
varied:
  running-mean:
    mixer.params.gate:
      - {source: doe2026, table: Table 2, model: "gate=",
         main: {table: Table 1, model: RunningMean}}
rows: |
  source,table,model,benchmark,metric,value,unit
  doe2026,Table 1,RunningMean,recall,accuracy,91.5,%
  doe2026,Table 1,Filters,JapaneseVowels,accuracy,97.0,%
  doe2026,Table 2,gate=2.0,recall,accuracy,90.1,%
conditions:
  - source: doe2026
    tables: [Table 1]
    protocol: [honest, checkpoint chosen on validation]
    expect: {train.epochs: [epochs, 4]}
    samples: {recall: 370, JapaneseVowels: 370}
    mixer: {running-mean: {recall: [{gate: 1.0}]}}
cautions:
  - {source: doe2026, model: Filters, text: a single run}
"""


@pytest.fixture
def install(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """`install(text)`: the distribution `doe-tables` with this table."""

    def make(text: str = TABLE) -> None:
        folder = tmp_path / "site"
        (info := folder / "doe_tables-1.0.dist-info").mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doe-tables\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[subquad.published]\nall = doe_tables\n")
        (folder / "doe_tables").mkdir()
        (folder / "doe_tables" / "__init__.py").write_text("raise SystemExit('imported')\n")
        (folder / "doe_tables" / "doe2026.yaml").write_text(text)
        monkeypatch.syspath_prepend(str(folder))
        importlib.invalidate_caches()

    return make


def test_the_sample_is_short():
    assert len(TABLE.splitlines()) <= 40


def test_it_stands_beside_the_built_in_table(install, factory):
    install()
    assert len(published_tables()) == 2
    assert source_title("doe2026") == "Doe: Running means, 2026"
    (row,) = read_report([factory.run("one")]).rows
    found = {beside.published.reference: beside for beside in published_beside(row)}
    assert sorted(found) == ["doe2026 Table 1", "wi2025agf Table 1"]
    assert found["doe2026 Table 1"].verdict == "comparable"
    assert found["doe2026 Table 1"].published.cautions == ("a single run",)


def test_its_own_mixer_and_the_setting_it_varies(install, factory):
    install()
    study = factory.study()
    for gate in (1.0, 2.0):
        known = {
            "dataset": "recall",
            "mixer": "running-mean",
            "params": {"gate": gate},
            "variant": str(gate),
        }
        factory.cell(study, **known)
    report = read_report([study])
    assert [
        [(beside.published.value, beside.verdict) for beside in report.beside[row]]
        for row in report.rows
    ] == [
        [(91.5, "comparable")],
        [(90.1, "comparable")],
    ]


def test_a_line_below_the_table_counts_the_comparable_scores(install, factory):
    install()
    study = factory.study()
    for gate, accuracy in ((1.0, 0.925), (2.0, 0.88)):
        facts = {"dataset": "recall", "mixer": "running-mean", "params": {"gate": gate}}
        factory.cell(study, **facts, variant=str(gate), accuracy=accuracy)
    factory.cell(study, accuracy=0.99)  # also beside a number that it is not comparable with
    (section,) = document_of(read_report([study])).overview
    assert section.lines == ("3 comparable cells: 1 within 1.0 points, 1 below, 1 above",)


def test_list_and_doctor_know_it(install, capsys: pytest.CaptureFixture[str]):
    install()
    assert main(["list", "published", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["plugins"]}
    assert (rows["doe2026"]["distribution"], rows["doe2026"]["summary"]) == (
        "doe-tables", "Rows of a paper on running means."
    )  # fmt: skip
    assert "papers" in rows
    assert main(["doctor", "published"]) == 0
    assert main(["show", "published", "doe2026"]) == 0
    assert "RunningMean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("format: 1", "format: 2", "format: input should be 1"),
        ("tables: {doe2026: [Table 1]}\n", "", "tables: field required"),
        ("epochs, 4", "epochs", "conditions.0.expect.train.epochs.1: field required"),
        ("91.5", "high", "rows.0.value: input should be a valid number"),
        (
            "{running-mean: [RunningMean]",
            "{running-mean: [RunningMean",
            "doe2026.yaml:4:52: a list that is not closed",
        ),
    ],
)
def test_a_broken_table_is_left_out_and_named(install, factory, capsys, good, bad, message):
    install(TABLE.replace(good, bad))
    (fault,) = published_faults()
    assert fault.startswith(f"published 'all' (doe-tables 1.0): doe2026.yaml: {message}")
    assert "\n" not in fault
    assert main(["doctor", "published"]) == 1
    assert message in " ".join(capsys.readouterr().out.split())
    assert f"left out: {fault}" in document_of(read_report([factory.run("one")])).sections[0].notes


def test_what_is_blocked_offers_no_rows(install, monkeypatch: pytest.MonkeyPatch):
    install()
    monkeypatch.setenv("SUBQUAD_DISABLE_PLUGINS", "1")
    assert source_title("doe2026") == "doe2026"
