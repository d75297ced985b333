"""`timm-vit` against timm's own models: outputs, weights, optimiser groups, mixers in its
blocks; what it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from subquad.data import DataSpec
from subquad.engine.optim import build_optimizer
from subquad.errors import ConfigError
from subquad.experiment import parameters
from subquad.experiment.schema import Train
from subquad.nn import AttentionMixer, BackboneContext, ParameterRule
from subquad.plugin import Site
from subquad.registry import make_mixer, resolve
from subquad_plugins.timm_vit import Config
from subquad_plugins.timm_vit.backbone import VisionTransformer

TINY = {"patch_size": 8, "depth": 2, "dim": 16, "num_heads": 2}
OF_TIMM = {
    "patch_size": 8,
    "depth": 2,
    "embed_dim": 16,
    "num_heads": 2,
    "img_size": 32,
    "num_classes": 5,
}
VIT = "vit_tiny_patch16_224"
MIXERS = sorted(
    point.name
    for point in entry_points(group="subquad.mixers")
    if point.dist and point.dist.name == "subquad"
)


def built(
    model: str = VIT, mixer: str = "softmax", params: Mapping[str, Any] | None = None, **config: Any
):
    """A small model for images of 32 x 32, with five outputs, in evaluation mode."""
    size, channels = config.pop("size", 32), config.pop("channels", 3)
    plugin = resolve("mixer", mixer)
    own = parameters(plugin, params or {})
    context = BackboneContext(
        spec=DataSpec.images(size, size, channels, num_classes=5),
        num_outputs=5,
        make_mixer=lambda site: make_mixer(plugin, own, site),
    )
    torch.manual_seed(0)
    return VisionTransformer(Config(model=model, **{**TINY, **config}), context).eval()


def pixels(size: int = 32, count: int = 2) -> Tensor:
    return torch.randint(
        0,
        256,
        (count, 3, size, size),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(1),
    )


def of_timm(model: str = VIT, **changed: Any):
    """timm's own model, its weights far from where they start."""
    torch.manual_seed(2)
    own = timm.create_model(model, **{**OF_TIMM, **changed}).eval()
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return own


def logits_of_timm(model: Any, images: Tensor) -> Tensor:
    mean, std = (torch.tensor(model.pretrained_cfg[key])[:, None, None] for key in ("mean", "std"))
    return model((images / 255 - mean) / std)


@pytest.mark.parametrize(
    "model",
    [
        VIT,
        "deit_small_patch16_224",
        "deit_tiny_distilled_patch16_224",  # two tokens in front, two heads
        "deit3_small_patch16_224",  # layer scale, positions without the class token
        "vit_base_patch16_siglip_224",  # no class token, attention pooling
        "vit_small_patch14_reg4_dinov2",  # registers
        "aimv2_large_patch14_224",  # projections without biases
        "vit_base_patch32_clip_224",  # norm before the blocks
    ],
)
def test_softmax_with_timms_weights_gives_timms_outputs(model):
    own, ours = of_timm(model), built(model)
    found = ours.import_weights(own.state_dict())
    assert (found.missing, found.unused) == ((), ())
    with torch.no_grad():
        torch.testing.assert_close(
            ours({"inputs": pixels()}).outputs, logits_of_timm(own, pixels()), rtol=1e-5, atol=1e-5
        )


def test_a_model_starts_as_timms_does():
    weight = built(dim=128, num_heads=4).get_parameter("vit.blocks.0.mixer.query.weight")
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not built().get_parameter("vit.blocks.0.mixer.query.bias").any()


@pytest.mark.parametrize("mixer", MIXERS)
def test_every_mixer_learns_here(mixer):
    model = built(mixer=mixer, size=72, drop_path=0.1).train()
    output = model({"inputs": pixels(72)})
    loss = output.outputs.square().sum() + (0 if output.penalty is None else output.penalty.sum())
    loss.backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_drop_path_grows_to_the_last_layer():
    rates = [
        getattr(block.drop_path1, "drop_prob", 0.0)
        for block in built(depth=3, drop_path=0.2).blocks
    ]
    assert rates == pytest.approx([0.0, 0.1, 0.2])


def test_a_mixer_knows_its_site():
    sites: list[Site] = []
    plugin = resolve("mixer", "identity")

    def make(site: Site):
        sites.append(site)
        return make_mixer(plugin, parameters(plugin, {}), site)

    context = BackboneContext(
        spec=DataSpec.images(32, 16, num_classes=5), num_outputs=5, make_mixer=make, seed=7
    )
    VisionTransformer(Config(model="deit_tiny_distilled_patch16_224", **TINY), context)
    shared = {
        "dim": 16,
        "num_heads": 2,
        "max_len": 10,
        "num_layers": 2,
        "num_prefix_tokens": 2,
        "grid": (4, 2),
    }
    assert sites == [Site(layer_index=index, seed=7, **shared) for index in (0, 1)]


def test_cur_of_all_tokens_and_an_exact_inverse_is_softmax_attention():
    own = of_timm()
    exact = {"num_indices": 17, "pinv": "exact", "selection": "step"}
    ours = built(mixer="cur", params=exact)
    found = ours.import_weights(own.state_dict())
    assert (found.missing, found.unused) == ((), ())
    with torch.no_grad():
        ours.double(), own.double()
        torch.testing.assert_close(
            ours({"inputs": pixels()}).outputs,
            logits_of_timm(own, pixels().double()),
            rtol=0,
            atol=1e-4,
        )


def test_cur_always_picks_the_class_token():
    model = built(mixer="cur", params={"num_indices": 4, "selection": "random"})
    for mixer in model.mixers:
        assert isinstance(mixer, AttentionMixer)
        assert mixer.core.force_first
    without = built(
        mixer="cur", params={"num_indices": 4, "selection": "random"}, class_token=False, pool="avg"
    )
    assert not any(mixer.core.force_first for mixer in without.mixers)  # pyright: ignore


def test_agf_takes_the_projections_that_it_shares_and_starts_its_filter_as_the_identity():
    model = built(mixer="agf")
    found = model.import_weights(of_timm().state_dict())
    layer = [
        name.removeprefix("vit.blocks.0.mixer.")
        for name in found.used
        if ".blocks.0.mixer." in name
    ]
    assert layer == ["value.weight", "value.bias", "out.weight", "out.bias"]
    assert {name.split(".mixer.")[1] for name in found.missing} == {
        *(f"{part}.{kind}" for part in ("u", "v", "sigma") for kind in ("weight", "bias")),
        "filter.theta",
    }
    assert {name.split(".mixer.")[1] for name in found.unused} == {
        f"{part}.{kind}" for part in ("query", "key") for kind in ("weight", "bias")
    }
    assert not model.get_parameter("vit.blocks.0.mixer.filter.theta").any()


def test_positions_of_another_resolution_are_resampled_as_timm_does():
    large = of_timm(img_size=48)
    ours = built()
    assert ours.import_weights(large.state_dict()).missing == ()
    resized = of_timm(img_size=48)
    resized.set_input_size((32, 32))
    torch.testing.assert_close(ours.get_parameter("vit.pos_embed"), resized.pos_embed)
    again = built(size=48)
    assert again.import_weights(ours.state_dict()).missing == ()  # our own weights too


def test_another_number_of_classes_leaves_the_head_alone():
    found = built().import_weights(of_timm(num_classes=7).state_dict())
    assert found.missing == found.unused == ("vit.head.weight", "vit.head.bias")


def test_decay_and_learning_rates_are_timms():
    model = built(layer_decay=0.5)
    rules = model.parameter_rules()
    assert set(rules) == {name for name, _ in model.named_parameters()}
    assert rules["vit.head.weight"] == ParameterRule(lr_scale=1.0)
    assert rules["vit.norm.weight"] == ParameterRule(lr_scale=0.5**1, weight_decay=False)
    assert rules["vit.blocks.1.mixer.query.weight"] == ParameterRule(lr_scale=0.5)
    assert rules["vit.blocks.0.mixer.query.bias"] == ParameterRule(
        lr_scale=0.25, weight_decay=False
    )
    assert rules["vit.patch_embed.proj.weight"] == ParameterRule(lr_scale=0.125)
    for name in ("vit.pos_embed", "vit.cls_token"):
        assert rules[name] == ParameterRule(lr_scale=0.125, weight_decay=False)
    assert {rule.lr_scale for rule in built().parameter_rules().values()} == {1.0}


def test_other_means_and_channels():
    model = built(channels=1, mean=[0.5], std=[0.25])
    assert model({"inputs": pixels()[:, :1]}).outputs.shape == (2, 5)
    assert (model.scale.item(), model.shift.item()) == (pytest.approx(1 / (255 * 0.25)), -2.0)
    scale = built("deit_tiny_patch16_224").scale.flatten()
    torch.testing.assert_close(1 / (255 * scale), torch.tensor([0.229, 0.224, 0.225]))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model": "vit_tiny_patch16_225"},
            "no vision transformer 'vit_tiny_patch16_225'; did you mean 'vit_tiny_pa",
        ),
        ({"model": "resnet50"}, "backbone.params.model: timm has no vision transformer 'resnet50'"),
        (
            {"model": "vit_tiny_patch16_224.x"},
            r"backbone: vit_tiny_patch16_224.x: Invalid pretrained tag \(x\)",
        ),
        (
            {"model": "vit_dwee_patch16_reg1_gap_256"},
            "the attention of vit_dwee_patch16_reg1_gap_256 has parts that no",
        ),
        (
            {"model": "beit3_base_patch16_224"},
            "the attention of beit3_base_patch16_224 has parts that no mixer",
        ),
        ({"num_heads": 3}, f"backbone: {VIT}: dim should be divisible by num_heads"),
        (
            {"patch_size": 5},
            "images of 32 x 32 pixels cannot be cut into patches of 5 x 5: change "
            "backbone.params.pat",
        ),
        ({"channels": 1}, "backbone.params.mean: 3 values for images of 1 channels: give 1"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(config, message):
    with pytest.raises(ConfigError, match=message) as caught:
        built(**config)
    assert "\n" not in str(caught.value)


def test_a_pool_without_its_token_is_refused():
    with pytest.raises(
        ValueError, match="class_token false leaves nothing for pool token: use pool avg or max"
    ):
        Config(model=VIT, class_token=False)


@pytest.mark.ci
def test_deit_small_with_agf_trains_a_real_step():
    """Published size, 224 pixels, AGF in the last layer and its extra loss in the penalty."""
    agf, softmax = resolve("mixer", "agf"), resolve("mixer", "softmax")
    params = {"order": 4, "jacobi_a": -0.5, "jacobi_b": 0.0, "ortho_weight": 1e-4}
    last, other = (agf, parameters(agf, params)), (softmax, parameters(softmax, {}))
    context = BackboneContext(
        spec=DataSpec.images(224, 224, num_classes=1000),
        num_outputs=1000,
        make_mixer=lambda site: make_mixer(*(last if site.is_last else other), site),
    )
    torch.manual_seed(0)
    model = VisionTransformer(
        Config(model="deit_small_patch16_224", drop_path=0.1), context
    ).train()
    assert 22e6 < sum(parameter.numel() for parameter in model.parameters()) < 23e6
    train = Train(lr=1e-3, weight_decay=0.05)
    optimizer, labels = build_optimizer(train, model), torch.tensor([3, 7])
    losses = []
    for _ in range(3):
        output = model({"inputs": pixels(224)})
        assert output.penalty is not None
        loss = torch.nn.functional.cross_entropy(output.outputs, labels) + output.penalty.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]
