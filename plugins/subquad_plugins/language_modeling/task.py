"""Cross entropy of tokens: exact sums for each sample, from which every metric follows;
continuations of prompts.

Letters: B batch, L length, T written tokens, V vocabulary.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from subquad.data import NO_LABEL, DataSpec
from subquad.errors import DataError, PluginError
from subquad.nn import Backbone, Batch, Decoder, Task, TokenScores
from subquad_plugins.language_modeling import Config, TokenConfig
from subquad_plugins.language_modeling.beam_search import Rules, Sliding, beam_search, drawing


class TokenTask(Task):
    """What tasks share whose labels are tokens. The loss weight is the number of labelled tokens.

    Args:
        config: see `TokenConfig`.
        spec: of a data set of tokens.

    Raises:
        DataError: it has no vocabulary, or other labels.
    """

    counts_tokens = True

    def __init__(self, config: TokenConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.label_smoothing = config.label_smoothing
        self.token_bytes = torch.tensor(spec.token_bytes)
        longest = config.max_new_tokens or spec.lengths.get("target", spec.max_len)
        self.rules = Rules(spec.end_token, longest, config.min_new_tokens, config.no_repeat_ngram)
        if spec.vocab_size < 2:
            raise DataError(
                "labels are tokens, which this data set has none of: its "
                f"vocab_size is {spec.vocab_size}"
            )
        if spec.target not in ("next-token", "sequence"):
            raise DataError(
                "labels are to be tokens, and this data set's are of target "
                f"{spec.target!r}: use one that gives them, such as text-lm"
            )

    @property
    def num_outputs(self) -> int:
        return self.spec.vocab_size

    def loss(self, outputs: TokenScores, batch: Batch) -> tuple[Tensor, Tensor]:
        scores = _fitting(outputs, batch["labels"])
        losses = scores.loss
        if self.label_smoothing:
            losses = (1 - self.label_smoothing) * losses + self.label_smoothing * scores.smooth
        return losses.sum(), self.weight(batch).to(losses.dtype)

    def weight(self, batch: Batch) -> Tensor:
        return (batch["labels"] != NO_LABEL).sum()

    def per_sample(self, outputs: TokenScores, batch: Batch) -> dict[str, Tensor]:
        """Sums over each sample's labels, (B,) each.

        Returns:
            `loss` float64, -log p without smoothing; `tokens`, `hits` and, where tokens are text,
            `bytes`, int64.
        """
        labels = batch["labels"]
        scores = _fitting(outputs, labels)
        real = labels != NO_LABEL
        rows = {
            "loss": scores.loss.double().sum(1),
            "tokens": real.sum(1),
            "hits": ((scores.predicted == labels) & real).sum(1),
        }
        if len(self.token_bytes):
            lengths = self.token_bytes.to(labels.device)[labels.clamp_min(0)]
            rows["bytes"] = lengths.masked_fill(~real, 0).sum(1)
        return rows

    def sums(self, outputs: TokenScores, batch: Batch) -> dict[str, Tensor]:
        return {name: rows.sum() for name, rows in self.per_sample(outputs, batch).items()}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """`loss` in nats per token, `perplexity`, `token_accuracy`, and `bits_per_byte` of text;
        NaN without any.
        """
        tokens = float(sums["tokens"]) or math.nan
        nats = float(sums["loss"])
        metrics = {
            "loss": nats / tokens,
            "perplexity": math.exp(min(nats / tokens, 700.0)),
            "token_accuracy": float(sums["hits"]) / tokens,
        }
        if "bytes" in sums:
            metrics["bits_per_byte"] = nats / math.log(2) / (float(sums["bytes"]) or math.nan)
        return metrics

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        if bool((kept["hits"] > kept["tokens"]).any()):
            raise ValueError("a sample has more hits than tokens")
        return self.metrics(
            {name: kept[name].sum() for name in ("loss", "tokens", "hits", "bytes") if name in kept}
        )

    @abstractmethod
    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """`text`: what the model writes, token ids (B, T), 0 after the end."""


class LanguageModeling(TokenTask):
    """The next token at every position; of a prompt, the tokens that go on from it."""

    def __init__(self, config: Config, spec: DataSpec):
        super().__init__(config, spec)
        if config.temperature:
            self._draws = (config.temperature, config.top_k, config.sampling_seed)
        else:
            self._draws = None

    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """`text`: what goes on from each sample's real tokens, (B, T), 0 after the end.

        Draws depend on the seed and on the place in the batch.
        """
        if self._draws:
            draw = drawing(*self._draws)
        else:
            draw = None
        sliding = Sliding(writing(model), self.spec.max_len)
        return {"text": beam_search(sliding, batch, self.rules, draw=draw).text}


def writing(model: Backbone) -> Decoder:
    """The backbone, if it can write.

    Raises:
        PluginError: it cannot.
    """
    if not isinstance(model, Decoder):
        raise PluginError(
            f"backbone {type(model).__name__} cannot write: it is no subquad.nn.Decoder"
        )
    return model


def _fitting(outputs: TokenScores, labels: Tensor) -> TokenScores:
    """Raises PluginError where they are no scores of these labels."""
    if not isinstance(outputs, TokenScores) or outputs.loss.shape != labels.shape:
        if isinstance(outputs, TokenScores):
            given = tuple(outputs.loss.shape)
        else:
            given = type(outputs).__name__
        raise PluginError(
            f"outputs must be TokenScores of labels of shape {tuple(labels.shape)}, got {given}"
        )
    return outputs
