"""The notebook in examples/ runs from top to bottom, and shows what it promises."""

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="runs beside the sources only")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_is_kept_without_output(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r'"outputs": \[[^\]]', text)


@pytest.mark.extended
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "data"))
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pages = [
        output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})
    ]
    assert any("softmax" in page and "<table" in page for page in pages)
    assert any("image/svg+xml" in page for page in pages)
    assert any(
        "# Certificate" in output.get("data", {}).get("text/markdown", "") for output in outputs
    )
