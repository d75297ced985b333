"""Nothing that is shipped shows how to listen on all interfaces, or how to do without the token."""

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
SHIPPED = (
    "*.md",
    "*.yaml",
    "*.yml",
    "Dockerfile",
    "docs/**/*.md",
    "examples/*",
    "pipeline/**/*",
    "plugins/**/*",
)
OPEN = re.compile(
    r"""(?<!\d)0\.0\.0\.0
    |(?<![\d:a-f])::/0
    |--host[= ]["']?(\*|::)
    |dashboard-host[=:]\s*["']?(?!127\.0\.0\.1)
    |RAY_AUTH_MODE["']?\s*[=:,]\s*["']?(?!token)\w
    |mode:\s*["']?disabled
    |--disable-security-middleware
    |--allowed-hosts(?!",\ f"\{_HOST\}:\{port\}")""",
    re.VERBOSE,
)

pytestmark = pytest.mark.skipif(
    not (REPO / "ray_cluster.yaml").is_file(), reason="runs beside the sources only"
)


def shipped() -> list[Path]:
    suffixes = {".md", ".yaml", ".yml", ".py", ".j2", ""}
    found = {
        path
        for pattern in SHIPPED
        for path in REPO.glob(pattern)
        if path.suffix in suffixes and path.is_file()
    }
    return sorted(found)


def test_no_example_is_open():
    paths = shipped()
    assert {"ray_cluster.yaml", "Dockerfile", "slurm.sh.j2", "kuberay.yaml.j2", "cluster.md"} <= {
        p.name for p in paths
    }
    found = [
        f"{path.relative_to(REPO)}: {match[0]}"
        for path in paths
        for match in OPEN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_what_starts_ray_sets_the_token_mode():
    starts = [
        path
        for path in shipped()
        if re.search(r"\bray start\b.*--head", path.read_text(encoding="utf-8"))
    ]
    assert len(starts) >= 3
    assert [
        path.name for path in starts if "RAY_AUTH_MODE" not in path.read_text(encoding="utf-8")
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "ray start --dashboard-host=0.0.0.0",
        "dashboard-host: '10.0.0.1'",
        "mlflow server --host *",
        "export RAY_AUTH_MODE=disabled",
        '"RAY_AUTH_MODE": "none"',
        "authOptions:\n  mode: disabled",
    ],
)
def test_an_open_example_is_seen(text):
    assert OPEN.search(text)
