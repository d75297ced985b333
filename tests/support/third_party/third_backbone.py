"""A decoder: embedding, layers around any causal mixer, logits of the next token at every position."""

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
        where = {"dim": config.dim, "num_heads": config.num_heads, "num_layers": config.num_layers, "causal": True}
        sites = [Site(**where, role="decoder", layer_index=i) for i in range(config.num_layers)]
        self.embed = nn.Embedding(context.spec.vocab_size, config.dim)
        mixers = [context.make_mixer(site) for site in sites]
        self.blocks = nn.ModuleList(Layer({"norm": nn.LayerNorm(config.dim), "mixer": one}) for one in mixers)
        self.head = nn.Linear(config.dim, context.num_outputs)

    def forward(self, batch):
        x = self.embed(batch["inputs"])
        for block in self.blocks:
            x = block(x, batch["keep"])
        return ModelOutput(self.head(x))


PLUGIN = BackbonePlugin(
    config=Config, build=Decoder, summary="a decoder", inputs=("tokens",), targets=("next-token",), causal=True
)
