"""The Long Range Arena recipes against what was published: parameter counts, training settings,
AGF's best settings.

The published figures are written down here a second time, so that a slip in a recipe shows.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from writing import maker

from subquad.data import DataSpec
from subquad.errors import ConfigError
from subquad.experiment import Run, load_study
from subquad.experiment.sources import read_layers
from subquad.nn import BackboneContext
from subquad.registry import find_plugins, recipes
from subquad_plugins.dual_encoder.backbone import DualEncoder
from subquad_plugins.encoder import Config
from subquad_plugins.encoder.backbone import Encoder

TASKS = ("listops", "text", "retrieval", "image", "pathfinder")
FROZEN = 2
"""The authors' AGF keeps each layer's constant coefficient as a frozen parameter; ours is none."""

AGF_COUNTS = {
    "listops": 218_134,
    "text": 182_286,
    "retrieval": 403_470,
    "image": 183_318,
    "pathfinder": 182_286,
}
SOFTMAX_COUNTS = {
    "listops": 209_802,
    "text": 173_954,
    "retrieval": 395_138,
    "image": 174_986,
    "pathfinder": 173_954,
}

SPECS = {
    "listops": DataSpec.tokens(max_len=2048, vocab_size=17, num_classes=10),
    "text": DataSpec.tokens(max_len=1024, vocab_size=257, num_classes=2),
    "retrieval": DataSpec.tokens(max_len=4096, vocab_size=257, num_classes=2),
    "image": DataSpec.tokens(max_len=1024, vocab_size=256, num_classes=10, equal_length=True),
    "pathfinder": DataSpec.tokens(max_len=1024, vocab_size=256, num_classes=2, equal_length=True),
}

SCHEDULES = {
    "listops": (32, 5_000, 1_000, 50),
    "text": (32, 20_000, 8_000, 500),
    "retrieval": (32, 30_000, 800, 300),
    "image": (256, 35_000, 175, 175),
    "pathfinder": (256, 62_400, 312, 312),
}
"""Batch, steps, warm-up, steps between evaluations."""

AGF_BEST = {
    "listops": {"agf-paper": (5, 0.1, 1.5, 1.0), "agf-code": (5, 0.01, 2.0, -1.0)},
    "text": {"agf-paper": (5, 1e-3, 1.0, 1.0), "agf-code": (5, 0.01, 2.0, -2.0)},
    "retrieval": {"agf-paper": (5, 0.1, 1.0, 1.0), "agf-code": (5, 1e-4, 2.0, -1.5)},
    "image": {"agf-paper": (7, 0.01, 2.0, -1.0), "agf-code": (6, 0.1, 1.5, 2.0)},
    "pathfinder": {"agf-paper": (3, 1e-4, 1.5, -1.0), "agf-code": (4, 1e-4, 1.5, -1.0)},
}
"""Order, weight of the orthogonality loss, a, b: the paper's appendix, and the script of the
released code.
"""


AGF, SOFTMAX, CUR = maker("agf", order=5), maker("softmax", dropout=0.1), maker("cur")


def written(task: str) -> dict[str, Any]:
    """The first run of a recipe."""
    return next(iter(rows_of(task).values())).experiment.model_dump()


def build(task: str, make_mixer: Any) -> Any:
    """The backbone of a recipe on the data set's description."""
    backbone, spec = written(task)["backbone"], SPECS[task]
    kind = {"encoder": Encoder, "dual-encoder": DualEncoder}[
        backbone["name"].removeprefix("subquad:")
    ]
    context = BackboneContext(spec=spec, num_outputs=spec.num_classes, make_mixer=make_mixer)
    return kind(Config(**backbone["params"]), context)


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("task", TASKS)
def test_parameter_counts_are_the_published_ones(task):
    assert count(build(task, AGF)) + FROZEN == AGF_COUNTS[task]
    assert count(build(task, SOFTMAX)) == SOFTMAX_COUNTS[task]
    assert count(build(task, CUR)) == SOFTMAX_COUNTS[task]


@pytest.mark.parametrize("task", TASKS)
def test_the_data_are_padded_to_the_published_length(task):
    assert written(task)["dataset"]["params"].get("max_len", 1024) == SPECS[task].max_len


def rows_of(task: str) -> dict[str, Run]:
    """Every mixer that the recipe knows, on one task, with one seed."""
    return cells("lra-agf", f"matrix.dataset=[{task}]", "matrix.mixer=all", "matrix.seed=[0]")


@cache
def cells(name: str, *overrides: str) -> dict[str, Run]:
    """The cells of a recipe by label, as the command line would run them."""
    layers, _ = read_layers(name, Path.cwd(), recipes)
    axes = next(
        layer.data["matrix"]["dataset"]
        for layer in layers
        if "dataset" in layer.data.get("matrix", {})
    )
    named = {axis if isinstance(axis, str) else axis["name"] for axis in axes}
    if missing := sorted(named - {row.full_name for row in find_plugins("dataset")}):
        pytest.skip(f"not installed: data set {', '.join(missing)}")
    return {cell.label: cell for cell in load_study(name, overrides).runs}


@pytest.mark.parametrize("task", TASKS)
def test_recipes_train_as_published(task):
    for cell in rows_of(task).values():
        train = cell.experiment.train
        found = (train.batch_size, train.steps, train.warmup_steps, train.eval_every_steps)
        assert found == SCHEDULES[task]
        published = {
            "optimizer": "adamw",
            "lr": 1e-4,
            "eps": 1e-6,
            "weight_decay": 0.0,
            "beta1": 0.9,
            "beta2": 0.999,
            "schedule": "one-cycle",
            "clip_norm": None,
        }
        assert published.items() <= train.model_dump().items()
        assert (train.epochs, train.eval_every_epochs, train.patience) == (None, None, None)
        assert cell.experiment.protocol == "honest"


@pytest.mark.parametrize("task", TASKS)
def test_recipes_hold_the_best_published_settings_of_agf(task):
    fixed = ("jacobi", True, "tanh", True)
    for label, best in AGF_BEST[task].items():
        config: Any = rows_of(task)[f"{task}-{label}-seed0"].mixer_config
        assert (config.order, config.ortho_weight, config.jacobi_a, config.jacobi_b) == best
        names = ("basis", "fix_identity", "coeff_activation", "mask_padding")
        assert tuple(getattr(config, name) for name in names) == fixed


def test_the_study_of_cur_has_its_settings():
    study = cells("lra-cur")
    assert len(study) == 5 * 5 * 5
    for task in TASKS:
        config: Any = study[f"{task}-cur-seed0"].mixer_config
        assert (config.num_indices, config.selection, config.iterations, config.function) == (
            64,
            "abs",
            6,
            "softmax",
        )
        laplace = "laplace" if task in ("image", "pathfinder") else "softmax"
        for name in ("mega", "megacur"):
            chosen: Any = study[f"{task}-{name}-seed0"].mixer_config
            assert chosen.attention == laplace
    lengths = [study[f"{task}-cur-seed0"].experiment.dataset.params for task in TASKS[:3]]
    assert [params["max_len"] for params in lengths] == [1024, 2048, 4096]


@pytest.mark.parametrize(
    "name", [name for name in recipes() if name.endswith(("-smoke", "-small"))]
)
def test_small_recipes_need_no_files_but_pictures_that_are_not_generated_shipped_or_downloaded(
    name,
):
    plan = load_study(name)
    assert plan.name == name
    datasets = [cell.experiment.dataset for cell in plan.runs]
    assert all(
        dataset.params.get("path") is None
        for dataset in datasets
        if dataset.name != "subquad:imagenet"
    )


@pytest.mark.parametrize("name", sorted(name for name in recipes() if name.startswith("lra-")))
def test_every_recipe_loads_and_says_what_it_is(name):
    assert len(recipes()[name].summary) > 20
    assert cells(name)


def test_the_commands_of_the_documentation_load():
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "lra.md").read_text(encoding="utf-8")
    commands = re.findall(r"^subquad train (.*?)(?: {2,}#.*)?$", text, re.MULTILINE)
    assert len(commands) == 19
    for command in commands:
        name, *overrides = shlex.split(command)
        assert load_study(name, overrides).runs


def test_rows_of_the_token_table_that_no_token_has_take_no_part():
    spec = DataSpec.tokens(max_len=6, vocab_size=9, num_classes=2)
    context = BackboneContext(spec=spec, num_outputs=2, make_mixer=SOFTMAX)
    wide, plain = (Encoder(Config(dim=8, vocab_size=rows), context).eval() for rows in (32, None))
    state = wide.state_dict()
    assert state["embedding.project.weight"].shape == (32, 8)
    state["embedding.project.weight"] = state["embedding.project.weight"][:9]
    plain.load_state_dict(state)
    inputs = torch.arange(12).view(2, 6) % 9
    batch = {"inputs": inputs, "keep": inputs != 0}
    assert torch.equal(wide(batch).outputs, plain(batch).outputs)


def test_token_tables_that_do_not_suit_the_data_are_refused():
    def encoder(spec: DataSpec, rows: int) -> Encoder:
        context = BackboneContext(spec=spec, num_outputs=2, make_mixer=SOFTMAX)
        return Encoder(Config(dim=8, vocab_size=rows), context)

    tokens = DataSpec.tokens(max_len=6, vocab_size=9, num_classes=2)
    with pytest.raises(
        ConfigError,
        match=r"vocab_size 8 is less than the data set's 9 tokens: use 9 or more, or null$",
    ):
        encoder(tokens, 8)
    series = DataSpec.series(max_len=6, channels=2, num_classes=2)
    with pytest.raises(
        ConfigError,
        match=r"vocab_size 8 has no effect with a data set of series: leave it at null$",
    ):
        encoder(series, 8)
