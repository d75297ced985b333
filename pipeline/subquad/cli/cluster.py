"""`subquad cluster render`: files that start a Ray cluster and train an experiment on it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Any

import click

from subquad.cli.job import refuse_secrets
from subquad.completion import settings, targets
from subquad.errors import ConfigError
from subquad.experiment import Study, load_given
from subquad.experiment.components import resolve_unrun
from subquad.output.markup import fill_template
from subquad.output.terminal import Matching, print_text
from subquad.record.files import write_output

_NAME = r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?"
"""What Kubernetes takes as a name, and KubeRay adds its own endings to."""


_NAMES = Matching(
    "name", _NAME, "lower-case letters, digits and '-', the first a letter, at most 47"
)


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every kind of cluster takes."""
    for part in reversed(
        [
            click.argument("target", metavar="EXPERIMENT", shell_complete=targets),
            click.argument(
                "overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=settings
            ),
            click.option("--name", type=_NAMES, help="Name of the job. Default: the experiment's."),
            click.option(
                "--workers-per-node",
                type=click.IntRange(min=1),
                default=1,
                show_default=True,
                help="Training processes on each node.",
            ),
            click.option(
                "--output",
                type=click.Path(dir_okay=False, path_type=Path),
                help="File. Default: the terminal.",
            ),
        ]
    ):
        command = part(command)
    return command


@click.group("cluster")
def cluster_command() -> None:
    """Make files that start a cluster for an experiment."""


@cluster_command.group("render")
def _render() -> None:
    """Write what starts a cluster, trains EXPERIMENT on it and ends it.

    The cluster has the size that `resources` of the experiment asks for. Nothing is started.

    \b
    subquad cluster render kuberay quickstart resources.workers=4 resources.storage=s3://bucket/runs
    subquad cluster render slurm experiment.yaml resources.workers=4 --time 12:00:00
    """


@_render.command("kuberay")
@_shared
@click.option(
    "--image",
    type=Matching("image", r"[\w./:@-]+", "letters, digits and ./:@-"),
    help="Default: subquad:VERSION.",
)
@click.option(
    "--memory",
    type=Matching("memory", r"[1-9]\d*[KMGT]i?", "a number and Ki, Mi, Gi or Ti"),
    default="16Gi",
    show_default=True,
    help="Of each node that trains.",
)
@click.option(
    "--cluster", is_flag=True, help="The cluster alone, which stays, for `subquad submit`."
)
def _kuberay(**given: Any) -> None:
    """Write a RayJob, or a RayCluster, with a NetworkPolicy for `kubectl apply`.

    The image must hold the plugins that the experiment uses, see the Dockerfile of subquad.

    \b
    subquad cluster render kuberay quickstart resources.storage=s3://bucket/runs --output job.yaml
    subquad cluster render kuberay quickstart resources.workers=4 --cluster
    """
    study = load_given(given["target"], given["overrides"], resolve=resolve_unrun)
    if source := next((source for run in study.runs for source in run.sources.values()), None):
        raise ConfigError(
            f"{source.path} is on this machine: make a package of it and install it in the image"
        )
    if not given["cluster"] and not all(
        "://" in (run.experiment.resources.storage or "") for run in study.runs
    ):
        raise ConfigError(
            "resources.storage: the pods of a RayJob end with it, and their files "
            "with them: give an address, as in "
            "resources.storage=s3://BUCKET/PREFIX"
        )
    _write(
        "kuberay.yaml.j2",
        study,
        given
        | {
            "image": given["image"] or f"subquad:{version('subquad')}",
            "text": study.text,
            "tracking": study.runs[0].experiment.tracking.address,
        },
    )


@_render.command("slurm")
@_shared
@click.option(
    "--time",
    type=Matching("time", r"(\d+-)?\d+(:\d\d){0,2}", "MINUTES, HH:MM:SS or DAYS-HH:MM:SS"),
    help="Limit, as Slurm writes it. Default: the partition's.",
)
@click.option(
    "--partition",
    type=Matching("partition", r"[\w.,-]+", "letters, digits and _.,-"),
    help="Slurm's.",
)
def _slurm(**given: Any) -> None:
    """Write a script for `sbatch`.

    It runs in the environment and folder of `sbatch`, which every node must see.

    \b
    subquad cluster render slurm quickstart resources.workers=4 --partition gpu --output job.sh
    """
    study = load_given(given["target"], given["overrides"], resolve=resolve_unrun)
    _write(
        "slurm.sh.j2",
        study,
        given
        | {
            "arguments": shlex.join([given["target"], *given["overrides"]]),
            "stored": study.runs[0].experiment.resources.storage,
        },
    )


def _write(template: str, study: Study, given: dict[str, Any]) -> None:
    refuse_secrets(study)
    plain = re.sub(r"[^a-z0-9]+", "-", study.name.lower()).strip("-")
    name = given["name"] or plain[:47].strip("-")
    if not re.fullmatch(_NAME, name):
        raise ConfigError(f"{study.name!r} gives no name for a cluster: choose one with --name")
    values = given | _sizes(study, given["workers_per_node"]) | {"name": name}
    text = fill_template("subquad", f"templates_cluster/{template}", str, **values)
    if given["output"]:
        write_output(given["output"], text)
    else:
        print_text(text)


def _sizes(study: Study, per_node: int) -> dict[str, int]:
    """How many nodes, and what of each; a study's runs use the cluster one after the other."""
    requested = [run.experiment.resources for run in study.runs]
    most = max(resources.most for resources in requested)
    each = min(per_node, most)
    return {
        "fewest": ceil(min(resources.fewest for resources in requested) / each),
        "most": ceil(most / each),
        "cpus": ceil(each * max(resources.cpus_per_worker for resources in requested)),
        "gpus": ceil(each * max(resources.gpus_per_worker for resources in requested)),
    }
