"""The Dockerfile without Docker: what it copies, who it runs as, what stays out, and its steps
in a folder.
"""

import json
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
FILE, IGNORE = REPO / "Dockerfile", REPO / ".dockerignore"

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="runs beside the sources only")


def stages() -> list[list[tuple[str, str]]]:
    """Of each FROM: its instructions, as name and arguments."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace(
        "\\\n", ""
    )
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    found: list[list[tuple[str, str]]] = []
    for name, rest in lines:
        if name == "FROM":
            found.append([])
        found[-1].append((name, " ".join(rest.split()) if name != "RUN" else rest))
    return found


def of(name: str, stage: list[tuple[str, str]]) -> list[str]:
    return [rest for instruction, rest in stage if instruction == name]


def kept(path: str) -> bool:
    """Whether .dockerignore lets a path into the build: the last line that matches it or a
    folder above decides.
    """
    parts = path.split("/")
    kept = True
    for line in IGNORE.read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        glob = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
        if any(re.fullmatch(glob, "/".join(parts[:end])) for end in range(1, len(parts) + 1)):
            kept = line.startswith("!")
    return kept


def test_every_instruction_is_known_and_every_source_is_there():
    known = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "ENV", "CMD"}
    assert {name for stage in stages() for name, _ in stage} <= known
    sources = [
        word for stage in stages() for line in of("COPY", stage) for word in line.split()[:-1]
    ]
    assert sources
    assert [source for source in sources if not (REPO / source).exists() or not kept(source)] == []


def test_all_that_the_wheel_is_made_of_is_copied():
    built = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    roots = {
        path.split("/")[0]
        for path in built["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    copied = {word for line in of("COPY", stages()[1]) for word in line.split()[:-1]}
    assert copied == roots | {
        built["project"]["readme"],
        *built["project"]["license-files"],
        "pyproject.toml",
    }


def test_it_runs_as_a_numbered_user_who_owns_no_code():
    last = stages()[-1]
    (user,) = of("USER", last)
    assert user.isdigit()
    assert int(user) > 0
    names = [name for name, _ in last]
    assert "RUN" not in names[names.index("USER") :]
    assert any(f"--uid {user} " in line for line in of("RUN", last))
    assert "chown" not in FILE.read_text(encoding="utf-8")


def test_ray_starts_with_a_token_only_and_no_secret_is_in_it():
    (said,) = of("ENV", stages()[-1])
    assert "RAY_AUTH_MODE=token" in said.split()
    assert not re.search(r"(?i)(secret|password|_key|auth_token)", FILE.read_text(encoding="utf-8"))


def test_probes_of_kuberay_find_wget_and_the_base_has_cuda():
    assert " wget" in of("RUN", stages()[0])[0]
    (base,) = of("FROM", stages()[0])
    assert re.fullmatch(r"nvidia/cuda:[\d.]+-base-ubuntu24\.04 AS base", base)


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".git/config",
            "runs/a/experiment.yaml",
            "mlruns.db",
            "mlartifacts/0/a",
            "dist/a.whl",
            ".venv/bin/python",
        ),
        *(
            "subquad.token",
            "pipeline/subquad/x.token",
            "plugins/.env.local",
            "datasets/key.pem",
            ".env",
            "uv.lock",
        ),
        *("pipeline/subquad/__pycache__/a.pyc", "tests/conftest.py"),
    ],
)
def test_what_is_private_or_large_stays_out(path):
    assert not kept(path)


@pytest.mark.parametrize(
    "path", ["pyproject.toml", "pipeline/subquad/cli/main.py", "datasets/subquad_datasets/a.npz"]
)
def test_what_the_wheel_needs_gets_in(path):
    assert kept(path)


def test_version_in_the_comments_is_ours():
    version = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    assert set(re.findall(r"subquad:([\d.]+)", FILE.read_text(encoding="utf-8"))) == {version}


def run_step(command: str, folder: Path) -> None:
    """One RUN, its absolute paths below a folder."""
    command = re.sub(r"--mount=\S+", "", command)
    for place in ("/dist", "/venv", "/opt/subquad"):
        command = re.sub(rf"(?<![\w.]){place}", f"{folder}{place}", command)
    done = subprocess.run(
        ["bash", "-ec", command], cwd=folder / "src", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder in which the stage of the wheel has run."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "src").mkdir()
    (folder / "opt").mkdir()
    for line in of("COPY", stages()[1]):
        *sources, _ = line.split()
        subprocess.run(
            ["cp", "-r", *(REPO / source for source in sources), folder / "src"], check=True
        )
    (step,) = of("RUN", stages()[1])
    run_step(step, folder)
    return folder


@pytest.mark.ci
def test_the_wheel_is_built_with_the_tested_versions(built):
    (wheel,) = (built / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "subquad/cli/main.py",
        "subquad/templates_cluster/slurm.sh.j2",
        "subquad_plugins/agf/__init__.py",
    } <= set(names)
    assert "ray==" in (built / "dist" / "constraints.txt").read_text()


@pytest.mark.extended
def test_the_image_s_environment_trains(built):
    install = of("RUN", stages()[-1])[0]
    pip = "/opt/subquad/bin/pip install --no-cache-dir"
    assert pip in install
    run_step(install.replace(pip, "uv pip install --quiet --python /opt/subquad/bin/python"), built)
    python = built / "opt" / "subquad" / "bin" / "python"
    versions = (
        "import json, ray, torch; print(json.dumps([ray.__version__, "
        "torch.__version__.split('+')[0]]))"
    )
    output = subprocess.run(
        [python, "-c", versions], capture_output=True, text=True, check=True
    ).stdout
    pins = (built / "dist" / "constraints.txt").read_text().split()
    assert [
        f"{name}=={version}" in pins
        for name, version in zip(("ray", "torch"), json.loads(output), strict=True)
    ] == [True] * 2
    command = [
        python.with_name("subquad"),
        "train",
        "quickstart",
        "--local",
        "train.epochs=1",
        "--json",
    ]
    done = subprocess.run(command, cwd=built, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
