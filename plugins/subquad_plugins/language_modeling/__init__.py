"""Language modelling: the next token at every position. Light half.

What all tasks on tokens share is in this folder too: their loss and sums, and the search for what a
model writes.
"""

from __future__ import annotations

from subquad.plugin import Config as PluginConfig
from subquad.plugin import Metric, Not, TaskPlugin, param


class TokenConfig(PluginConfig):
    """Parameters of every task on tokens."""

    label_smoothing: float = param(
        0.0,
        meaning="share of the target spread evenly over all "
        "tokens in training; metrics leave it out",
        ge=0,
        lt=1,
    )
    max_new_tokens: int | None = param(
        None,
        meaning="longest text that is written; null: as long as the data set's longest",
        unit="tokens",
        ge=1,
    )
    min_new_tokens: int = param(
        0, meaning="tokens that are written before the end of a text", unit="tokens", ge=0
    )
    no_repeat_ngram: int = param(
        0,
        meaning="no run of this many tokens is written twice "
        "in a text; 0: anything may be repeated",
        ge=0,
    )


class Config(TokenConfig):
    """Parameters of language modelling."""

    max_new_tokens: int | None = param(
        100,
        meaning="longest continuation; null: as long as the data set's sequences",
        unit="tokens",
        ge=1,
    )
    temperature: float = param(
        0.0,
        meaning="0: write the likeliest token; else draw one "
        "from the softmax of logits / temperature",
        ge=0,
    )
    top_k: int = param(
        0,
        meaning="draw among this many likeliest tokens; 0: among all",
        ge=0,
        when={"temperature": Not(0)},
    )
    sampling_seed: int = param(0, meaning="of the draws", ge=0, when={"temperature": Not(0)})


PLUGIN = TaskPlugin(
    config=Config,
    build="subquad_plugins.language_modeling.task:LanguageModeling",
    summary="cross entropy of the next token; perplexity, bits per byte, token accuracy and loss",
    targets=("next-token",),
    reports={
        "perplexity": Metric(mode="min", digits=2),
        "bits_per_byte": Metric(label="bits per byte", mode="min", digits=3),
        "token_accuracy": Metric(label="token accuracy", unit="%", in_tables=False),
        "loss": Metric(mode="min", in_tables=False),
    },
)
