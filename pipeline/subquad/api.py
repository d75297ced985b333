"""subquad from Python and in notebooks: `subquad.mixer`, `attention`, `train`, `tune`, `load`,
`datasets` and `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subquad.data import Dataset
    from subquad.nn import Backbone, MultiheadAttention, TokenMixer
    from subquad.plugin import Role
    from subquad.reports.view import ReportView
    from subquad.results import Results, SearchResult


def mixer(
    name: str,
    *,
    dim: int,
    num_heads: int = 1,
    max_len: int = 0,
    causal: bool = False,
    role: Role = "self",
    context_len: int = 0,
    layer_index: int = 0,
    num_layers: int = 1,
    **params: Any,
) -> TokenMixer:
    """Build one token mixer, a layer for any network: `mixer(x)` or `mixer(x, keep=keep)`, with x
    (B, L, dim) and keep (B, L) bool, returns a tensor (B, L, dim).

    After a call, `mixer.losses` has its extra losses by name, (B,) each, and `mixer.loss_weights`
    their weights; most mixers have none. `mixer(x, return_output=True)` returns a
    `subquad.nn.MixerOutput`, which also has what the mixer hands on to the next layer: `out`,
    `losses`, `carry`.

    Args:
        name: a plugin's name, or `./file.py:Class`.
        dim: model width; divisible by `num_heads`.
        num_heads: heads.
        max_len: longest sequence, for mixers bound to it.
        causal: position t sees positions <= t only.
        role: "cross" for one that lets x see another sequence: `mixer(x, context=...,
            context_keep=...)`.
        context_len: longest other sequence, for such mixers that are bound to it.
        layer_index, num_layers: its place in a stack, for mixers that hand something on to the next
            layer, all but the last: `above(y, carry=below(x, return_output=True).carry)`.
        params: the plugin's parameters.

    Raises:
        UserError: the plugin is unknown, or a parameter is wrong.
    """
    from subquad.experiment import parameters
    from subquad.nn import as_layer
    from subquad.plugin import Site
    from subquad.registry import make_mixer, resolve

    resolved = resolve("mixer", name)
    site = Site(
        dim=dim,
        num_heads=num_heads,
        max_len=max_len,
        causal=causal,
        role=role,
        context_len=context_len,
        layer_index=layer_index,
        num_layers=num_layers,
    )
    return as_layer(make_mixer(resolved, parameters(resolved, params), site))


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
    """`torch.nn.MultiheadAttention` with another attention core: its calls, its weights by name and
    shape.

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
        raise PluginError(
            f"{around[0]}: it belongs to projections that torch.nn.MultiheadAttention does not have"
        )
    built = mixer(
        name, dim=embed_dim, num_heads=num_heads, max_len=max_len, causal=causal, **params
    )
    if not isinstance(built, AttentionMixer):
        raise PluginError(
            f"mixer {name!r} is no attention core: it has projections of its own, or none"
        )
    return MultiheadAttention(built.core, embed_dim, num_heads, bias=bias, batch_first=batch_first)


def train(
    target: str | Path,
    overrides: Sequence[str] = (),
    *,
    data: Any = None,
    root: str | Path = ".",
    local: bool = True,
    address: str | None = None,
    jobs: int | None = 1,
) -> Results:
    """Train an experiment or study; returns each run's result, with its `folder`.

    The list shows itself in a notebook; `.table()` is a frame of pandas, `.curves()` has pictures.

    Args:
        target: an experiment file, a recipe's name, or `./study.py:NAME`, a function that returns
            experiments.
        overrides: `key=value`, as on the command line.
        data: what is trained on in place of the experiment's data: `(x, y)` arrays or tensors, a
            dict of arrays, a torch Dataset, a pandas or polars frame or a Hugging Face dataset; or
            a dict of these for "train", "test" and perhaps "validation". `dataset.params.KEY=VALUE`
            says more of it, such as names of columns.
        root: folder for runs/ and the tracking database, or an address of storage.
        local: without Ray.
        address: of a Ray cluster that this machine is part of, such as "auto"; it then trains
            there.
        jobs: runs at once; None: as many as fit. More than one start processes, so a script that
            calls this is to ask for `__name__ == "__main__"`.

    Raises:
        UserError: the experiment cannot be done as it is.
        Interrupted: Ctrl-C or SIGTERM arrived; the run can go on.
    """
    from subquad.execution.drive import drive
    from subquad.output.progress import Display
    from subquad.preparation.given import given_data
    from subquad.record.files import read_json
    from subquad.record.names import RESULT
    from subquad.results import Results
    from subquad.session import Session

    session = Session(str(root), local=local, address=address, jobs=jobs)
    given = given_data(str(target), overrides, data)
    study = session.load(str(target), given.overrides)
    with given.named():
        study = session.begin(study)
    _refuse_interrupted(drive(study, Display(None), session.executor).signum, study.folder)
    results = [
        {"folder": str(run.folder), **(read_json(run.folder / RESULT) or {})} for run in study.runs
    ]
    return Results(results, study.folder)


def tune(
    target: str | Path,
    overrides: Sequence[str] = (),
    *,
    space: str,
    data: Any = None,
    root: str | Path = ".",
    local: bool = True,
    address: str | None = None,
    jobs: int | None = 1,
    **settings: Any,
) -> SearchResult:
    """Search settings of an experiment or study, then train the winners anew and test them.

    Args:
        target: an experiment file, a recipe's name, or `./study.py:NAME`, a function that returns
            experiments.
        overrides: `key=value`, as on the command line.
        space: names of search spaces or files, joined by `+`, such as "agf+optimizer".
        data, root, local, address, jobs: as for `train`.
        settings: others of `subquad.search.settings.Settings`, such as `sampler="tpe"`,
            `pruner="asha"`, `budget="20-trials"`, `points=[{"train.lr": 1e-3}]`,
            `pruner_settings={"reduction_factor": 4}`.

    Returns:
        what search.json holds: `folder`, and for each of `candidates` its `trials` by state and the
        `best` one. It shows itself in a notebook; `.table()` is a frame of pandas, `.curves()` has
        pictures.

    Raises:
        UserError: the search cannot be done as it is.
        Interrupted: Ctrl-C or SIGTERM arrived; the search can go on.
    """
    from subquad.preparation.given import given_data
    from subquad.results import SearchResult
    from subquad.search.run import Watch, run
    from subquad.search.search import write_search
    from subquad.search.settings import Settings
    from subquad.session import Session

    session = Session(str(root), local=local, address=address, jobs=jobs)
    given = given_data(str(target), overrides, data)
    study = session.load(str(target), given.overrides)
    with given.named():
        prepared = session.prepare(study, Settings(space, **settings))
    folder = write_search(prepared.search, session.root)
    ended = run(prepared, folder, Watch(), session.executor)
    _refuse_interrupted(ended.signum, folder)
    return SearchResult(ended.summary)


def _refuse_interrupted(signum: int, folder: Path) -> None:
    """Tell how to go on with what a signal has stopped, if one has."""
    from subquad.errors import Interrupted
    from subquad.suggest import to_paste

    if signum:
        raise Interrupted(signum, f"stopped; go on with: {to_paste('resume', folder)}")


def datasets(
    target: str | Path, overrides: Sequence[str] = (), *, data: Any = None
) -> dict[str, Dataset]:
    """Data sets, prepared and looked at as before training, by what tables call them.

    Args:
        target: an experiment file, a recipe's name, or the name of a data set.
        overrides: `key=value`, as on the command line; with a data set's name
            `dataset.params.KEY=VALUE`.
        data: as for `train`, with an experiment or recipe.

    Raises:
        UserError: nothing has this name, the experiment or parameters cannot be used, or data are
            missing or malformed.
    """
    from subquad.data.copies import check_copies
    from subquad.engine.parts import open_dataset
    from subquad.errors import UserError
    from subquad.experiment import dataset_of, load_given
    from subquad.experiment.components import resolve_unrun
    from subquad.preparation.given import given_data
    from subquad.preparation.preflight import check_paths, checked_dataset, naming
    from subquad.registry import find_plugins, recipes
    from subquad.suggest import did_you_mean

    name = str(target)
    offered = recipes()
    known = {plugin.name for plugin in find_plugins("dataset")}
    if name in offered or name not in known:
        if name not in offered and not Path(name).exists():
            hint = did_you_mean(name, [*offered, *known])
            raise UserError(f"{name!r}: no such recipe, file or data set{hint}")
        given = given_data(name, overrides, data)
        study = load_given(name, given.overrides, resolve=resolve_unrun)
        check_paths(study)
        opened: dict[str, Dataset] = {}
        for run in study.runs:
            if run.dataset_label not in opened:
                with given.named(), naming(run, study):
                    opened[run.dataset_label] = checked_dataset(run)
        return opened
    if data is not None:
        raise UserError(f"data: {name} is a data set; give an experiment or a recipe")
    resolved, config = dataset_of(name, overrides)
    dataset = open_dataset(resolved, config)
    check_copies(
        dataset, dataset.prepared_test(), validation="validation" in dataset.describe().sizes
    )
    return {resolved.plugin.label(config) or name: dataset}  # type: ignore[attr-defined]


def load(run: str | Path, *, which: str = "best") -> Backbone:
    """A trained model, in evaluation mode on the CPU. A notebook shows the run's row; `.table()`
    is a frame of pandas with it, `.curves()` has pictures of its training.

    Args:
        run: the run's folder, or its address in storage; or a folder that `subquad export` wrote.
        which: "best" or "last"; of an exported folder the one that was exported.

    Raises:
        RunError: there is no such run or checkpoint.
        CheckpointError: the checkpoint is damaged.
    """
    from subquad.experiment.folder import local_folder
    from subquad.record.names import EXPORTED
    from subquad.results import Results, refuse_no_batch
    from subquad.trained.export import load_exported
    from subquad.trained.model import Trained

    folder = local_folder(str(run))
    if (folder / EXPORTED).exists():
        model = load_exported(folder)
    else:
        model = Trained.of(folder, which).parts.bare_model
        shown = Results([], folder)
        for name in ("table", "curves", "_repr_html_"):
            setattr(model, name, getattr(shown, name))
    model.register_forward_pre_hook(refuse_no_batch)
    return model


def report(*runs: str | Path, baseline: str | None = None) -> ReportView:
    """What `subquad report` says of runs: it shows itself in a notebook and as text, `.table()` is
    a frame of pandas, `.curves()` has pictures. Nothing is written.

    Args:
        runs: folders of runs or studies, or that of one search, or their addresses in storage.
        baseline: label of the mixer that others are compared with; None: the one the study names.

    Raises:
        RunError: a folder is none of these, or a result cannot be read.
    """
    from subquad.results import view_of

    return view_of([str(run) for run in runs], baseline)
