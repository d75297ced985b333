"""The manifest for KubeRay: each object against a schema of its fields, and what it says."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from kuberay import KINDS

from subquad.cli.main import main
from subquad.experiment import load_study

REPO = Path(__file__).resolve().parents[3]
STORE = "resources.storage=s3://bucket/runs"
jsonschema = pytest.importorskip("jsonschema")


def rendered(capsys, *arguments: str) -> dict[str, dict]:
    """The objects by kind, all valid."""
    assert main(["cluster", "render", "kuberay", *arguments, STORE]) == 0
    found = {document["kind"]: document for document in yaml.safe_load_all(capsys.readouterr().out)}
    for kind, document in found.items():
        jsonschema.validate(document, KINDS[kind])
    return found


def pods(spec: dict) -> list[dict]:
    return [
        spec["headGroupSpec"]["template"],
        *(group["template"] for group in spec["workerGroupSpecs"]),
    ]


def test_a_job_with_gpus(capsys):
    overrides = (
        "resources.workers=4",
        "resources.gpus_per_worker=1",
        "resources.cpus_per_worker=6",
        "train.batch_size=32",
    )
    found = rendered(
        capsys,
        "quickstart",
        *overrides,
        "--workers-per-node",
        "2",
        "--memory",
        "64Gi",
        "--image",
        "r.io/a/b:1",
    )
    assert set(found) == {"RayJob", "ConfigMap", "NetworkPolicy"}
    job = found["RayJob"]["spec"]
    (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["minReplicas"], group["replicas"], group["maxReplicas"]) == (2, 2, 2)
    (worker,) = group["template"]["spec"]["containers"]
    assert worker["resources"]["limits"] == {"cpu": "12", "memory": "64Gi", "nvidia.com/gpu": "2"}
    assert worker["resources"]["requests"] == worker["resources"]["limits"]
    assert group["template"]["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    templates = [*pods(job["rayClusterSpec"]), job["submitterPodTemplate"]]
    assert {template["spec"]["containers"][0]["image"] for template in templates} == {"r.io/a/b:1"}
    assert job["rayClusterSpec"]["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert job["shutdownAfterJobFinishes"] is True


def test_a_cluster_that_stays_starts_empty(capsys):
    found = rendered(
        capsys,
        "quickstart",
        "resources.workers=4",
        "train.batch_size=32",
        "--cluster",
        "--name",
        "ours",
    )
    assert set(found) == {"RayCluster", "NetworkPolicy"}
    assert {document["metadata"]["name"] for document in found.values()} == {"ours"}
    (group,) = found["RayCluster"]["spec"]["workerGroupSpecs"]
    assert (group["minReplicas"], group["replicas"], group["maxReplicas"]) == (0, 0, 4)
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "1", "memory": "16Gi"}
    assert "tolerations" not in group["template"]["spec"]


@pytest.mark.parametrize("more", [(), ("--cluster",)])
def test_the_network_policy_is_about_every_pod(capsys, more):
    found = rendered(capsys, "quickstart", *more)
    policy = found["NetworkPolicy"]["spec"]
    own = policy["podSelector"]["matchLabels"]
    spec = found["RayCluster"]["spec"] if more else found["RayJob"]["spec"]["rayClusterSpec"]
    templates = (
        pods(spec) if more else [*pods(spec), found["RayJob"]["spec"]["submitterPodTemplate"]]
    )
    assert [template["metadata"]["labels"] for template in templates] == [own] * len(templates)
    head, *others = (template["spec"] for template in templates)
    # the autoscaler beside it asks Kubernetes for pods
    assert "automountServiceAccountToken" not in head
    assert [spec["automountServiceAccountToken"] for spec in others] == [False] * len(others)
    own_pods, operator = policy["ingress"]
    assert own_pods == {"from": [{"podSelector": {"matchLabels": own}}]}
    assert [port["port"] for port in operator["ports"]] == [8265]


def test_the_experiment_travels_whole_and_is_no_part_of_a_command(capsys, tmp_path):
    mean = tmp_path / "it's $(mean) `x` {{ name }}.yaml"
    mean.write_text(
        'extends: quickstart\ntracking: {experiment: "a: \'b\' $(c) {{ d }} # \\" é"}\n',
        encoding="utf-8",
    )
    found = rendered(capsys, str(mean), "train.lr=3e-4")
    study = load_study(str(mean), ["train.lr=3e-4", STORE])
    assert found["ConfigMap"]["data"]["experiment.yaml"].rstrip("\n") == study.text.rstrip("\n")
    head = found["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (volume,), (mount,) = head["volumes"], head["containers"][0]["volumeMounts"]
    assert volume["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    words = found["RayJob"]["spec"]["entrypoint"].split()
    assert words[:3] == ["subquad", "train", f"{mount['mountPath']}/experiment.yaml"]
    assert words[3:5] == ["--address", "auto"]
    assert found["RayJob"]["metadata"]["name"] == "it-s-mean-x-name"


def test_ray_is_the_tested_one_and_the_user_that_of_the_image(capsys):
    pins = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"][
        "constraint-dependencies"
    ]
    spec = rendered(capsys, "quickstart")["RayJob"]["spec"]["rayClusterSpec"]
    assert f"ray=={spec['rayVersion']}" in pins
    (user,) = re.findall(
        r"^USER (\d+)$", (REPO / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {pod["spec"]["securityContext"]["runAsUser"] for pod in pods(spec)} == {int(user)}
    version = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    assert (
        spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] == f"subquad:{version}"
    )


def test_the_file_is_what_the_terminal_would_show(capsys, tmp_path):
    assert main(["cluster", "render", "kuberay", "quickstart", STORE]) == 0
    shown = capsys.readouterr().out
    assert (
        main(
            [
                "cluster",
                "render",
                "kuberay",
                "quickstart",
                STORE,
                "--output",
                str(tmp_path / "job.yaml"),
            ]
        )
        == 0
    )
    assert (tmp_path / "job.yaml").read_text(encoding="utf-8") == shown
    assert capsys.readouterr().out == ""


def test_the_schema_sees_a_wrong_field(capsys):
    job = rendered(capsys, "quickstart")["RayJob"]
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["minReplica"] = 1
    with pytest.raises(jsonschema.ValidationError, match="minReplica"):
        jsonschema.validate(job, KINDS["RayJob"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.yaml"], "none.yaml"),
        (["quickstrat"], "quickstart"),
        (["quickstart", "resources.workers=0"], "resources.workers"),
        (["quickstart"], "resources.storage=s3://BUCKET/PREFIX"),
        (["quickstart", "resources.storage=/mnt/runs"], "resources.storage=s3://BUCKET/PREFIX"),
        (["quickstart", "--name", "9"], "--name"),
        (["quickstart", "--name", "a.b"], "--name"),
        (["quickstart", "--memory", "lots"], "--memory"),
        (["quickstart", "--image", "a b"], "--image"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(capsys, arguments, said):
    assert main(["cluster", "render", "kuberay", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_secret_is_refused(capsys):
    secret = "dataset.params.path=https://me:hunter2@example.org/data"
    data = "matrix.dataset=[JapaneseVowels]"
    assert main(["cluster", "render", "kuberay", "quickstart", STORE, data, secret]) == 2
    printed = capsys.readouterr()
    assert "holds a secret" in printed.err
    assert "hunter2" not in printed.out + printed.err


@pytest.mark.ci
def test_a_plugin_in_a_file_is_refused(capsys):
    mixer = REPO / "examples" / "own_mixer.py"
    assert (
        main(
            [
                "cluster",
                "render",
                "kuberay",
                "quickstart",
                f"matrix.mixer=[{mixer}:GatedMean, identity]",
            ]
        )
        == 2
    )
    assert f"{mixer} is on this machine: make a package of it" in capsys.readouterr().err
