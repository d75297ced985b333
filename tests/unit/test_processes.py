"""What a process loads besides what is installed: nothing that others can put in its way."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from subquad.processes import keep_strange_code_out

NAME = "TORCHINDUCTOR_CACHE_DIR"


def test_the_folder_is_of_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_strange_code_out()
    folder = Path(os.environ[NAME])
    assert folder.is_relative_to(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_others_may_write_is_not_used(tmp_path, monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "subquad" / "compiled").mkdir(parents=True)
    (tmp_path / "subquad" / "compiled").chmod(0o777)
    keep_strange_code_out()
    folder = Path(os.environ[NAME])
    assert folder.name.startswith("subquad-compiled-")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv(NAME, "/own")
    keep_strange_code_out()
    assert os.environ[NAME] == "/own"


def test_a_folder_of_one_process_goes_with_it(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    environment = {key: value for key, value in os.environ.items() if key != NAME}
    environment |= {"XDG_CACHE_HOME": str(blocked), "TMPDIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-m", "subquad.cli.main", "--version"], env=environment, check=True
    )
    assert list(tmp_path.iterdir()) == [blocked]


def test_a_new_python_imports_nothing_of_the_working_directory(monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    keep_strange_code_out()
    assert os.environ["PYTHONSAFEPATH"] == "1"
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    keep_strange_code_out()
    assert os.environ["PYTHONSAFEPATH"] == ""


def test_settings_of_matplotlib_in_the_working_directory_are_not_read(tmp_path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfigure.facecolor: red\n")
    code = (
        "from subquad.processes import keep_strange_code_out\n"
        "import os; before = os.getcwd(); keep_strange_code_out(); assert os.getcwd() == before\n"
        "import matplotlib; assert not matplotlib.rcParams['text.usetex']\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
