"""ray_cluster.yaml against Ray's own schema and checks, offline, as it stands and with each
switch thrown.
"""

import json
import re
import subprocess
import tomllib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

REPO = Path(__file__).resolve().parents[3]
FILE = REPO / "ray_cluster.yaml"
SWITCHES = ("AWS", "GCP", "On-premise")

pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="runs beside the sources only")


def switched(to: str) -> dict:
    """The file with the part of another provider: AWS commented out, that one's lines without
    their `# `.
    """

    def part(found: re.Match[str]) -> str:
        lines = found[0].splitlines()
        if found[1] == "AWS":
            lines = [lines[0], *(f"# {line}" for line in lines[1:])]
        if found[1] == to:
            lines = [lines[0], *(line.removeprefix("# ") for line in lines[1:-1])]
        return "\n".join(lines)

    text = re.sub(
        r"(?ms)^# ---- ([\w-]+).*?^# ---- end of .*?$", part, FILE.read_text(encoding="utf-8")
    )
    return yaml.safe_load(text)


def schema() -> dict:
    ray = find_spec("ray")
    assert ray is not None
    assert ray.origin is not None
    return json.loads(
        (Path(ray.origin).parent / "autoscaler" / "ray-schema.json").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("provider", SWITCHES)
def test_rays_schema_takes_the_file(provider):
    jsonschema = pytest.importorskip("jsonschema")
    config = switched(provider)
    jsonschema.validate(config, schema())
    assert (
        config["provider"]["type"] == {"AWS": "aws", "GCP": "gcp", "On-premise": "local"}[provider]
    )
    assert ("available_node_types" in config) == (provider != "On-premise")
    with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
        jsonschema.validate(config | {"min_worker": 1}, schema())


@pytest.mark.parametrize("provider", SWITCHES)
def test_rays_launcher_takes_the_file(provider):
    util = pytest.importorskip("ray.autoscaler._private.util")
    prepared = util.prepare_config(switched(provider))
    util.validate_config(prepared)
    assert prepared["available_node_types"][prepared["head_node_type"]]
    with pytest.raises(ValueError, match="head_node_type"):
        util.validate_config(prepared | {"head_node_type": "none"})


def test_the_head_trains_nothing_and_gpu_nodes_come_when_asked():
    for provider in SWITCHES[:2]:
        types = switched(provider)["available_node_types"]
        assert types["head"]["resources"] == {"CPU": 0}
        assert types["gpu"]["min_workers"] == 0
    aws = switched("AWS")["available_node_types"]
    assert aws["gpu"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert (
        aws["gpu"]["node_config"]["SecurityGroupIds"]
        == aws["head"]["node_config"]["SecurityGroupIds"]
    )


@pytest.mark.parametrize("provider", SWITCHES[:2])
def test_nodes_with_eight_gpus_are_there_and_off(provider):
    jsonschema = pytest.importorskip("jsonschema")
    config = switched(provider)
    one_gpu, eight_gpus = (config["available_node_types"][name] for name in ("gpu", "gpu8"))
    assert (eight_gpus["min_workers"], eight_gpus["max_workers"]) == (0, 0)
    kind = {"AWS": "InstanceType", "GCP": "machineType"}[provider]
    assert {
        key
        for key in one_gpu["node_config"]
        if one_gpu["node_config"][key] != eight_gpus["node_config"][key]
    } == {kind}
    assert one_gpu["node_config"].keys() == eight_gpus["node_config"].keys()
    if provider == "GCP":
        assert eight_gpus["resources"]["GPU"] == 8
    eight_gpus["max_workers"] = 1
    jsonschema.validate(config, schema())


@pytest.mark.parametrize(
    ("allowed", "nodes", "left"),
    [
        ({}, {"gpu": 4}, 4),
        ({"gpu8": 1, "gpu": 0}, {"gpu8": 1}, 0),
    ],
)
def test_a_job_with_eight_gpus_gets_one_node_where_it_is_switched_on(allowed, nodes, left):
    """As Ray's autoscaler decides; four nodes with one GPU each do not hold it."""
    scheduler = pytest.importorskip("ray.autoscaler._private.resource_demand_scheduler")
    tracker = pytest.importorskip("ray.autoscaler._private.node_provider_availability_tracker")
    config = switched("GCP")
    types = config["available_node_types"]
    for name, workers in allowed.items():
        types[name]["max_workers"] = workers
    scored = partial(
        scheduler._default_utilization_scorer,
        node_availability_summary=tracker.NodeAvailabilitySummary({}),
    )
    demands = [{"CPU": 1, "GPU": 1}] * 8
    found, rest = scheduler.get_nodes_for(types, {}, "head", config["max_workers"], demands, scored)
    assert (dict(found), len(rest)) == (nodes, left)


def commands() -> dict[str, list[str]]:
    return {key: value for key, value in switched("AWS").items() if key.endswith("_commands")}


def test_ray_starts_with_a_token_and_its_dashboard_on_loopback():
    config = switched("AWS")
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/subquad.token"
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        stop, start = config[key]
        assert stop.startswith("RAY_AUTH_MODE=token")
        assert start.index("RAY_AUTH_MODE=token") < start.index("ray start")
        # 0700, and no name that can be guessed
        assert '--temp-dir="$(mktemp -d /tmp/ray-XXXXXXXXXX)/r"' in start
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][1]


def test_versions_are_those_that_were_tested():
    pins = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"][
        "constraint-dependencies"
    ]
    tested = dict(pin.split("==") for pin in pins)
    given = re.findall(r"\b(ray|torch)(?:\[\w+\])?==([\d.]+)", FILE.read_text(encoding="utf-8"))
    assert {name for name, _ in given} == {"ray", "torch"}
    assert [pair for pair in given if tested[pair[0]] != pair[1]] == []


def test_every_command_is_bash(tmp_path):
    lines = [line for group in commands().values() for line in group]
    assert len(lines) >= 8
    script = tmp_path / "all.sh"
    script.write_text("\n".join(lines))
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""


def test_the_setup_of_a_shell_is_written_once(tmp_path):
    (line,) = [command for command in commands()["setup_commands"] if ".bashrc" in command]
    for _ in range(2):
        subprocess.run(
            ["bash", "-c", line], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True
        )
    shell = subprocess.run(
        ["bash", "-c", ". ~/.bashrc; echo $PATH $RAY_AUTH_MODE"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert shell.stdout == f"{tmp_path}/subquad-env/bin:/usr/bin:/bin token\n"
