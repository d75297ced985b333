"""subquad from Python and in notebooks: `subquad.mixer`, `attention`, `train`, `tune`, `load` and `datasets`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subquad.data import Dataset
    from subquad.drivers.executor import Executor
    from subquad.nn import Backbone, MultiheadAttention, TokenMixer
    from subquad.plugin import Role


def mixer(
    name: str,
    *,
    dim: int,
    num_heads: int = 1,
    max_len: int = 0,
    causal: bool = False,
    role: Role = "self",
    context_len: int = 0,
    **params: Any,
) -> TokenMixer:
    """Build one token mixer, to call as `mixer(x, keep=keep)` with x (B, L, dim) and keep (B, L) bool.

    Called so, it returns a `subquad.nn.MixerOutput`, whatever the mixer: `out` (B, L, dim), `losses`, `carry`.

    Args:
        name: a plugin's name, or `./file.py:Class`.
        dim: model width; divisible by `num_heads`.
        num_heads: heads.
        max_len: longest sequence, for mixers bound to it.
        causal: position t sees positions <= t only.
        role: "cross" for one that lets x see another sequence: `mixer(x, context=..., context_keep=...)`.
        context_len: longest other sequence, for such mixers that are bound to it.
        params: the plugin's parameters.

    Raises:
        UserError: the plugin is unknown, or a parameter is wrong.
    """
    from subquad.experiment import parameters
    from subquad.nn import as_output
    from subquad.plugin import Site
    from subquad.registry import make_mixer, resolve

    found = resolve("mixer", name)
    site = Site(dim=dim, num_heads=num_heads, max_len=max_len, causal=causal, role=role, context_len=context_len)
    built = make_mixer(found, parameters(found, params), site)
    built.register_forward_hook(lambda module, given, result: as_output(result))  # type: ignore[arg-type]
    return built


def attention(
    name: str,
    embed_dim: int,
    num_heads: int,
    *,
    bias: bool = True,
    batch_first: bool = False,
    max_len: int = 0,
    causal: bool = False,
    **params: Any,
) -> MultiheadAttention:
    """`torch.nn.MultiheadAttention` with another attention core: its calls, its weights by name and shape.

    Args:
        name: an attention core's name, such as "cur", or `./file.py:Class`.
        embed_dim: model width.
        num_heads: heads.
        bias: whether the projections have biases.
        batch_first: inputs are (B, L, embed_dim), not (L, B, embed_dim).
        max_len: longest sequence, for cores bound to it.
        causal: position t sees positions <= t only.
        params: the core's parameters.

    Raises:
        UserError: the plugin is unknown or no attention core, or a parameter is wrong.
    """
    from subquad.errors import PluginError
    from subquad.nn import AttentionMixer, MultiheadAttention
    from subquad.plugin import AttentionConfig

    if around := sorted(params.keys() & AttentionConfig.model_fields.keys()):
        raise PluginError(f"{around[0]}: it belongs to projections that torch.nn.MultiheadAttention does not have")
    built = mixer(name, dim=embed_dim, num_heads=num_heads, max_len=max_len, causal=causal, **params)
    if not isinstance(built, AttentionMixer):
        raise PluginError(f"mixer {name!r} is no attention core: it has projections of its own, or none")
    return MultiheadAttention(built.core, embed_dim, num_heads, bias=bias, batch_first=batch_first)


def train(
    target: str | Path,
    overrides: Sequence[str] = (),
    *,
    root: str | Path = ".",
    local: bool = True,
    address: str | None = None,
) -> list[dict[str, Any]]:
    """Train an experiment or study; returns each run's result, with its `folder`.

    Args:
        target: an experiment file, or a recipe's name.
        overrides: `key=value`, as on the command line.
        root: folder for runs/ and the tracking database, or an address of storage.
        local: without Ray.
        address: of a Ray cluster that this machine is part of, such as "auto"; it then trains there.

    Raises:
        UserError: the experiment cannot be done as it is.
        Interrupted: Ctrl-C or SIGTERM arrived; the run can go on.
    """
    from subquad.drivers.drive import drive
    from subquad.drivers.folder import start
    from subquad.drivers.progress import Display
    from subquad.errors import Interrupted
    from subquad.experiment import load_study
    from subquad.runs import read_result
    from subquad.search.size import sized_there
    from subquad.storage import root_of
    from subquad.trust import take_words, training

    take_words(overrides)
    folder, storage = root_of(str(root))
    with training():
        study = load_study(str(target), (*overrides, *storage))
    executor = executor_of(local, address)
    executor.preflight(study)
    study = start(sized_there(study, executor), folder.resolve())
    signum = drive(study, Display(None), executor).signum
    if signum:
        raise Interrupted(signum, f"stopped; go on with: subquad resume {study.folder}")
    return [{"folder": str(one.folder), **(read_result(one.folder) or {})} for one in study.runs]


def tune(
    target: str | Path,
    overrides: Sequence[str] = (),
    *,
    space: str,
    root: str | Path = ".",
    local: bool = True,
    address: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Search settings of an experiment or study, then train the winners anew and test them.

    Args:
        target: an experiment file, or a recipe's name.
        overrides: `key=value`, as on the command line.
        space: names of search spaces or files, joined by `+`, such as "agf+optimizer".
        root: folder for runs/ and the tracking database.
        local: without Ray.
        address: of a Ray cluster that this machine is part of, such as "auto"; it then trains there.
        settings: others of `subquad.search.settings.Settings`, such as `sampler="tpe"`, `pruner="asha"`,
            `budget="20-trials"`, `points=[{"train.lr": 1e-3}]`, `pruner_settings={"reduction_factor": 4}`.

    Returns:
        what search.json holds: `folder`, and for each of `candidates` its `trials` by state and the `best` one.

    Raises:
        UserError: the search cannot be done as it is.
        Interrupted: Ctrl-C or SIGTERM arrived; the search can go on.
    """
    from subquad.errors import Interrupted
    from subquad.experiment import load_study
    from subquad.search.prepare import prepare
    from subquad.search.run import Watch, run
    from subquad.search.search import plan_search, write_search
    from subquad.search.settings import Settings
    from subquad.storage import root_of
    from subquad.trust import take_words, training

    where, storage = root_of(str(root))
    take_words(overrides)
    with training():
        study = load_study(str(target), (*overrides, *storage))
    search = plan_search(study, Settings(space, **settings))
    executor = executor_of(local, address)
    prepared = prepare(search, executor)
    folder = write_search(prepared.search, where.resolve())
    ended = run(prepared, folder, Watch(), executor)
    if ended.signum:
        raise Interrupted(ended.signum, f"stopped; go on with: subquad tune --resume {folder}")
    return ended.summary


def datasets(target: str | Path, overrides: Sequence[str] = ()) -> dict[str, Dataset]:
    """Data sets, prepared and looked at as before training, by what tables call them.

    Args:
        target: an experiment file, a recipe's name, or the name of a data set.
        overrides: `key=value`, as on the command line; with a data set's name `dataset.params.KEY=VALUE`.

    Raises:
        UserError: nothing has this name, the experiment or parameters cannot be used, or data are missing or malformed.
    """
    from subquad.data import check_copies
    from subquad.drivers.preflight import check_paths, checked_dataset, naming
    from subquad.engine.parts import open_dataset
    from subquad.errors import UserError
    from subquad.experiment import dataset_of, load_study
    from subquad.experiment.run import resolve_unrun
    from subquad.registry import find_plugins, recipes
    from subquad.suggest import did_you_mean
    from subquad.trust import take_words

    name, known = str(target), {one.name for one in find_plugins("dataset")}
    if name in recipes() or name not in known:
        if name not in recipes() and not Path(name).exists():
            raise UserError(f"{name!r}: no such recipe, file or data set{did_you_mean(name, [*recipes(), *known])}")
        take_words(overrides)
        study = load_study(name, overrides, resolve=resolve_unrun)
        check_paths(study)
        runs = {run.dataset_label: run for run in reversed(study.runs)}
        opened: dict[str, Dataset] = {}
        for label, run in reversed(runs.items()):
            with naming(run, study):
                opened[label] = checked_dataset(run)
        return opened
    found, config = dataset_of(name, overrides)
    dataset = open_dataset(found, config)
    check_copies(dataset, dataset.prepared_test(), validation="validation" in dataset.describe().sizes)
    return {found.plugin.label(config) or name: dataset}  # type: ignore[attr-defined]


def load(run: str | Path, *, which: str = "best") -> Backbone:
    """A trained model, in evaluation mode on the CPU.

    Args:
        run: the run's folder, or its address in storage; or a folder that `subquad export` wrote.
        which: "best" or "last"; of an exported folder the one that was exported.

    Raises:
        RunError: there is no such run or checkpoint.
        CheckpointError: the checkpoint is damaged.
    """
    from subquad.drivers.export import load_exported
    from subquad.drivers.folder import local_folder
    from subquad.drivers.trained import Trained
    from subquad.runs import EXPORTED

    folder = local_folder(str(run))
    exported = (folder / EXPORTED).exists()
    model = load_exported(folder) if exported else Trained.of(folder, which).parts.bare_model
    model.register_forward_pre_hook(_wants_a_batch)
    return model


def _wants_a_batch(model: Backbone, given: tuple[Any, ...]) -> None:
    if given and not isinstance(given[0], dict):
        raise TypeError(
            "a model takes a batch: a dict with the data set's arrays, such as inputs, (B, L) or (B, L, C), and keep, "
            f"(B, L) bool; got a {type(given[0]).__name__}"
        )


def executor_of(local: bool, address: str | None = None) -> Executor:
    """What trains: this machine's own processes, Ray on this machine, or a Ray cluster.

    Args:
        local: without Ray.
        address: of a cluster; None: what RAY_ADDRESS says, else one is started on this machine.
    """
    from subquad.errors import UserError

    if local and address:
        raise UserError(f"--local and --address {address}: give one of them")
    if local:
        from subquad.drivers.local import LocalExecutor

        return LocalExecutor()
    from subquad.ray.attached import ClusterExecutor
    from subquad.ray.executor import RayExecutor

    address = address or os.environ.get("RAY_ADDRESS")
    return ClusterExecutor(address) if address and address != "local" else RayExecutor()
