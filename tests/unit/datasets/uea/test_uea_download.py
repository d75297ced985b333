"""Downloads: real child processes stand in for sktime's; one test runs sktime's own against a
dead address.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from subquad.errors import DataError
from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.dataset import UeaDataset
from subquad_datasets.uea.download import download, verify

ROWS = "@classLabel true a b\n@data\n1,2:a\n3,4:b\n"
WRITE = (
    "import sys, pathlib; folder = pathlib.Path(sys.argv[1]); folder.mkdir()\n"
    "for name in sys.argv[2:]: (folder / name).write_text(" + repr(ROWS) + ")"
)


def writer(target: Path, *names: str) -> list[str]:
    place = target.with_name(target.name + ".part") / target.name
    return [sys.executable, "-c", WRITE, str(place), *names]


def fetch(target: Path, *names: str) -> None:
    files = names or ("Epilepsy_TRAIN.ts", "Epilepsy_TEST.ts")
    download("Epilepsy", target, command=writer(target, *files))


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path.suffix != ".lock")


def test_files_arrive_whole_and_once(tmp_path: Path) -> None:
    target = tmp_path / "uea" / "Epilepsy"
    fetch(target)
    assert sorted(path.name for path in target.iterdir()) == [
        "Epilepsy_TEST.ts",
        "Epilepsy_TRAIN.ts",
        "sha256.json",
    ]
    assert leftovers(target) == ["Epilepsy"]
    download("Epilepsy", target, command=[sys.executable, "-c", "raise SystemExit('called again')"])


def test_downloaded_problem_is_found_and_loads(tmp_path: Path) -> None:
    target = tmp_path / "uea" / "Epilepsy"
    fetch(target)
    dataset = UeaDataset(UeaConfig(problem="Epilepsy", download=True), tmp_path)
    dataset.prepare()
    assert dataset.describe().sizes == {"trainval": 2}
    (target / "Epilepsy_TEST.ts").write_text(ROWS.replace("3,4", "3,5"))
    with pytest.raises(DataError, match=r"Epilepsy_TEST\.ts: changed since it was downloaded"):
        dataset.load("test")


def test_file_that_changed_after_the_download_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "Epilepsy"
    fetch(target)
    path = target / "Epilepsy_TRAIN.ts"
    verify(path)
    path.write_text(ROWS[:-4])
    with pytest.raises(
        DataError,
        match=r"Epilepsy_TRAIN\.ts: changed since it was downloaded; remove .*/Epilepsy and",
    ):
        verify(path)


def test_what_was_left_by_a_killed_download_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "Epilepsy"
    (tmp_path / "Epilepsy.part" / "Epilepsy").mkdir(parents=True)
    (tmp_path / "Epilepsy.part" / "Epilepsy" / "Epilepsy_TRAIN.ts").write_text("half a fi")
    fetch(target)
    assert (target / "Epilepsy_TRAIN.ts").read_text() == ROWS


def test_failing_download_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "Epilepsy"
    command = [sys.executable, "-c", "import sys; sys.exit('first line\\nhost not found')"]
    with pytest.raises(
        DataError,
        match=r"^uea problem 'Epilepsy' could not be downloaded \(host not found\); "
        r"fetch the files by hand and give dataset\.params\.path=FOLDER$",
    ):
        download("Epilepsy", target, command=command)
    assert leftovers(target) == []


def test_download_without_a_test_file_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "Epilepsy"
    with pytest.raises(DataError, match="what arrived holds no TRAIN and TEST file"):
        fetch(target, "Epilepsy_TRAIN.ts")
    assert leftovers(target) == []


def test_hanging_download_is_given_up(tmp_path: Path) -> None:
    target = tmp_path / "Epilepsy"
    waits = [sys.executable, "-c", "import signal; signal.pause()"]
    with pytest.raises(DataError, match=r"could not be downloaded \(no progress for 0\.5 s\)"):
        download("Epilepsy", target, command=waits, stall_s=0.5)
    assert leftovers(target) == []


def test_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "uea").write_text("a file in the way")
    with pytest.raises(DataError, match=r"uea problem 'Epilepsy' cannot be kept in .*/uea: "):
        download("Epilepsy", tmp_path / "uea" / "Epilepsy")


@pytest.mark.ci
def test_two_processes_download_once(tmp_path: Path) -> None:
    target, log = tmp_path / "Epilepsy", tmp_path / "log.txt"
    child = f"open({str(log)!r}, 'a').write('x'); " + WRITE
    command = [sys.executable, "-c", child, str(tmp_path / "Epilepsy.part" / "Epilepsy")]
    command += ["Epilepsy_TRAIN.ts", "Epilepsy_TEST.ts"]
    code = (
        "from pathlib import Path; from subquad_datasets.uea.download import download\n"
        f"download('Epilepsy', Path({str(target)!r}), command={command!r})"
    )
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert log.read_text() == "x"


def test_unknown_problem_is_never_asked_of_the_network(tmp_path: Path) -> None:
    dataset = UeaDataset(UeaConfig(problem="Epilepsi", download=True), tmp_path)
    dataset.prepare()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(
        DataError, match=r"unknown uea problem 'Epilepsi'; did you mean 'Epilepsy'\?"
    ):
        dataset.describe()


def test_not_prepared_yet(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"uea problem 'Epilepsy' is not in .*/uea: prepare\(\) fetches it$"
    ):
        UeaDataset(UeaConfig(problem="Epilepsy", download=True), tmp_path).describe()


@pytest.mark.ci
def test_sktimes_downloader_without_a_network(tmp_path: Path, monkeypatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    dataset = UeaDataset(UeaConfig(problem="Epilepsy", download=True), tmp_path)
    with pytest.raises(
        DataError,
        match=r"^uea problem 'Epilepsy' could not be downloaded \(All download strategies",
    ):
        dataset.prepare()
    assert leftovers(tmp_path / "uea" / "Epilepsy") == []
