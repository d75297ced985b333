"""A vision transformer of timm whose blocks mix tokens by the experiment's mixers.

Patches, positions, prefix tokens, feed-forward parts, pooling and head are timm's own modules,
under timm's names.

Letters: B batch, C channels, H and W height and width, L tokens with the prefix, D model width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from subquad.errors import ConfigError
from subquad.nn import (
    AttentionMixer,
    Backbone,
    BackboneContext,
    Batch,
    Imported,
    MixerOutput,
    ModelOutput,
    ParameterRule,
    TokenMixer,
    gather_losses,
)
from subquad.plugin import Site
from subquad.suggest import did_you_mean
from subquad_plugins.encoder.layer import all_mixers, mixed, run_layers
from subquad_plugins.timm_vit import Config

if TYPE_CHECKING:  # its import takes seconds, and is due when a model is built
    from timm.models.vision_transformer import Block

_MODULES = ("vision_transformer", "vision_transformer_hybrid", "deit")
_OWN = "vit."
"""What stands before timm's names in ours."""


class Layer(nn.Module):
    """A block of timm with another mixer: (B, L, D) to (B, L, D), and what the mixer returned
    besides.

    Args:
        block: gives all its parts but the attention.
        mixer: acts along the tokens.
    """

    def __init__(self, block: Block, mixer: TokenMixer):
        super().__init__()
        self.mixer = mixer
        self.norm1 = block.norm1
        self.ls1 = block.ls1
        self.drop_path1 = block.drop_path1
        self.norm2 = block.norm2
        self.ls2 = block.ls2
        self.drop_path2 = block.drop_path2
        self.mlp = block.mlp

    @property
    def mixers(self) -> list[TokenMixer]:
        """As `EncoderLayer.mixers`."""
        return [self.mixer]

    def forward(
        self, x: Tensor, keep: Tensor | None = None, carry: Any = None
    ) -> tuple[Tensor, MixerOutput]:
        result = mixed(self.mixer, self.norm1(x), keep=keep, carry=carry)
        x = x + self.drop_path1(self.ls1(result.out))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x)))), result


class VisionTransformer(Backbone):
    """A vision transformer of timm around any token mixer.

    The projections around an attention core start as timm's do (normal, deviation 0.02, no bias); a
    mixer without a core starts as it does everywhere.

    Args:
        config: see `Config`.
        context: data description, head width and how mixers are built.

    Raises:
        ConfigError: the model is none of timm's vision transformers, or its parameters do not fit
            it or the images.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, config: Config, context: BackboneContext):
        from timm.models.vision_transformer import init_weights_vit_timm

        super().__init__()
        self.vit = _created(config, context)
        layers = [
            Layer(block, context.make_mixer(site))
            for block, site in zip(self.vit.blocks, _sites(self.vit, context.seed), strict=True)
        ]
        for layer in layers:
            if isinstance(layer.mixer, AttentionMixer):
                for part in (
                    layer.mixer.query,
                    layer.mixer.key,
                    layer.mixer.value,
                    layer.mixer.out,
                ):
                    init_weights_vit_timm(part)
        self.vit.blocks = nn.ModuleList(layers)
        self.layer_decay = config.layer_decay
        mean, std = (
            torch.tensor(_of_channels(name, config, self.vit, context.spec.channels))[:, None, None]
            for name in ("mean", "std")
        )
        # In one pass over the pixels: (x / 255 - mean) / std.
        self.register_buffer("scale", 1 / (255 * std), persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)

    @property
    def blocks(self) -> nn.ModuleList:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Its layers, which stand under timm's name, so that each tensor has one."""
        return cast(nn.ModuleList, self.vit.blocks)

    @property
    def mixers(self) -> list[TokenMixer]:
        """The mixer of each layer."""
        return all_mixers(self.blocks)

    def forward(self, batch: Batch) -> ModelOutput:
        """`inputs` (B, C, H, W), pixels of 0..255 in any type, to outputs (B, num_outputs)."""
        vit = self.vit
        x = vit.patch_embed(
            torch.addcmul(self.shift, batch["inputs"].to(self.scale.dtype), self.scale)
        )
        x, results = run_layers(
            list(self.blocks), vit.norm_pre(vit.patch_drop(vit._pos_embed(x))), None
        )
        return ModelOutput(vit.forward_head(vit.norm(x)), *gather_losses(self.mixers, results))

    def parameter_rules(self) -> Mapping[str, ParameterRule]:
        """As timm has them: no decay of vectors, positions and prefix tokens; learning rates by
        `layer_decay`.
        """
        from timm.optim import param_groups_layer_decay  # pyright: ignore[reportPrivateImportUsage]

        names = {parameter: name for name, parameter in self.named_parameters()}
        apart = self.vit.no_weight_decay()
        # 1.0: any but 0
        groups = param_groups_layer_decay(self.vit, 1.0, apart, layer_decay=self.layer_decay)
        return {
            names[parameter]: ParameterRule(
                lr_scale=group["lr_scale"], weight_decay=bool(group["weight_decay"])
            )
            for group in groups
            for parameter in group["params"]
        }

    def import_weights(self, tensors: Mapping[str, Tensor]) -> Imported:
        """Weights of timm, of another run, or of what else timm reads; positions and patches are
        resampled as it does.

        Fused projections are split. A model without their biases gets zeros, so that it computes
        the same.
        """
        from timm.models.vision_transformer import checkpoint_filter_fn

        given = {name.removeprefix(_OWN): tensor for name, tensor in tensors.items()}
        pieces = dict(_split(checkpoint_filter_fn(given, self.vit, adapt_layer_scale=True)))
        for name, own in self.vit.state_dict().items():
            weight = name.removesuffix("bias") + "weight"
            if ".mixer." in name and name not in pieces and weight in pieces:
                pieces[name] = torch.zeros_like(own)
        return super().import_weights({_OWN + name: tensor for name, tensor in pieces.items()})


def _created(config: Config, context: BackboneContext) -> Any:
    """The model as timm builds it, for the data set's images and the task's outputs.

    Raises:
        ConfigError: it is no vision transformer whose attention can be replaced, or its parameters
            do not fit.
    """
    import timm

    known = timm.list_models(module=list(_MODULES))
    name = config.model
    lengths = context.spec.lengths
    if name.partition(".")[0] not in known:
        raise ConfigError(
            "backbone.params.model: timm has no vision transformer "
            f"{name!r}{did_you_mean(name, known)}"
        )
    given = {
        key: value
        for key, value in config.model_dump(include=set(_OF_TIMM)).items()
        if value is not None
    }
    try:
        model = timm.create_model(
            name,
            img_size=(lengths["height"], lengths["width"]),
            in_chans=context.spec.channels,
            num_classes=context.num_outputs,
            **{_OF_TIMM[key]: value for key, value in given.items()},
        )
    except (AssertionError, RuntimeError) as error:
        raise ConfigError(f"backbone: {name}: {str(error).strip()}") from error
    _check(name, model, lengths)
    return model


_OF_TIMM = {
    "patch_size": "patch_size",
    "depth": "depth",
    "dim": "embed_dim",
    "num_heads": "num_heads",
    "class_token": "class_token",
    "pool": "global_pool",
    "drop_path": "drop_path_rate",
}
"""Parameters that timm takes, by its names for them."""


def _check(name: str, model: Any, lengths: Mapping[str, int]) -> None:
    """Refuse a model whose attention has parts that a mixer does not replace, and images that
    its patches cut off.
    """
    if not all(_is_plain(block, model.embed_dim) for block in model.blocks):
        raise ConfigError(
            f"backbone.params.model: the attention of {name} has parts that no mixer replaces"
        )
    height = lengths["height"]
    width = lengths["width"]
    patch = model.patch_embed.patch_size
    if height % patch[0] or width % patch[1]:
        raise ConfigError(
            f"backbone: images of {height} x {width} pixels cannot be cut into "
            f"patches of {patch[0]} x {patch[1]}: "
            "change backbone.params.patch_size, or the size of the images"
        )


def _is_plain(block: Any, dim: int) -> bool:
    """Whether a block's attention is softmax attention and nothing else."""
    from timm.layers.attention import Attention
    from timm.models.vision_transformer import Block

    attn = getattr(block, "attn", None)
    if type(block) is not Block or type(attn) is not Attention:
        return False
    return (
        attn.attn_dim == dim
        and attn.gate is None
        and {type(attn.norm), type(attn.q_norm)} == {nn.Identity}
    )


def _sites(model: Any, seed: int) -> list[Site]:
    """Where the mixer of each block stands."""
    shared = Site(
        dim=model.embed_dim,
        num_heads=model.blocks[0].attn.num_heads,
        max_len=model.patch_embed.num_patches + model.num_prefix_tokens,
        num_layers=len(model.blocks),
        num_prefix_tokens=model.num_prefix_tokens,
        grid=model.patch_embed.grid_size,
        seed=seed,
    )
    return [replace(shared, layer_index=index) for index in range(shared.num_layers)]


def _of_channels(name: str, config: Config, model: Any, channels: int) -> tuple[float, ...]:
    """Mean or deviation of each channel.

    Raises:
        ConfigError: there are not as many as channels.
    """
    values = getattr(config, name) or model.pretrained_cfg[name]
    if len(values) != channels:
        raise ConfigError(
            f"backbone.params.{name}: {len(values)} values for images of "
            f"{channels} channels: give {channels}"
        )
    return values


def _split(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """timm's tensors by the names of a `Layer`'s mixer."""
    for name, tensor in tensors.items():
        block, fused, kind = name.partition(".attn.qkv.")
        if fused:
            parts = (f"{block}.mixer.{part}.{kind}" for part in ("query", "key", "value"))
            yield from zip(parts, tensor.chunk(3), strict=True)
        else:
            yield name.replace(".attn.proj.", ".mixer.out."), tensor
