"""A decoder: embedding, layers around any causal mixer, logits of the next token everywhere."""

from torch import nn

from subquad.nn import Backbone, ModelOutput, as_output
from subquad.plugin import BackboneConfig, BackbonePlugin, Site, param


class Config(BackboneConfig):
    dim: int = param(16, meaning="model width", ge=1)
    num_heads: int = param(2, meaning="heads of each mixer", ge=1)
    num_layers: int = param(2, meaning="layers", ge=1)


class Layer(nn.ModuleDict):
    def forward(self, x, keep):
        norm, mixer = self["norm"], self["mixer"]
        return x + as_output(mixer(norm(x), keep=keep)).out


class Decoder(Backbone):
    def __init__(self, config, context):
        super().__init__()
        self.embed = nn.Embedding(context.spec.vocab_size, config.dim)
        self.blocks = nn.ModuleList()
        for number in range(config.num_layers):
            site = Site(**dict(config), causal=True, role="decoder", layer_index=number)
            mixer = context.make_mixer(site)
            self.blocks.append(Layer({"norm": nn.LayerNorm(config.dim), "mixer": mixer}))
        self.head = nn.Linear(config.dim, context.num_outputs)

    def forward(self, batch):
        x = self.embed(batch["inputs"])
        for block in self.blocks:
            x = block(x, batch["keep"])
        return ModelOutput(self.head(x))


USES = {"inputs": ("tokens",), "targets": ("next-token",), "causal": True}
PLUGIN = BackbonePlugin(config=Config, build=Decoder, summary="a decoder", **USES)
