"""Cross entropy of another text's tokens; in the final evaluation texts are written and compared
with the references.

Letters: B batch, T written tokens, R tokens of the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import torch
from torch import Tensor

from subquad.data import DataSpec
from subquad.errors import ConfigError, DataError
from subquad.nn import Backbone, Batch, Example
from subquad.rouge import ROUGE, SCORES, is_known, rouge
from subquad_plugins.language_modeling.beam_search import beam_search
from subquad_plugins.language_modeling.task import TokenTask, writing
from subquad_plugins.summarization import Config
from subquad_plugins.summarization.diversity import (
    Words,
    degenerate,
    distinct,
    length_ratio,
    repetition,
    words_of,
)
from subquad_plugins.summarization.intervals import mean_intervals

_EXAMPLES = 3
"""Documents whose texts a report shows: the first ones of the split."""


class Summarization(TokenTask):
    """ROUGE is taken of what is written, so it costs a search for each document: the final
    evaluation alone has it.

    Args:
        config: see `Config`.
        spec: of a data set whose batches have `reference`, with `text`.

    Raises:
        DataError: it has no such texts.
        ConfigError: texts shall be longer than its targets, or rouge-score is not installed.
    """

    def __init__(self, config: Config, spec: DataSpec):
        super().__init__(config, spec)
        self._beams = {"width": config.beam_width, "length_penalty": config.length_penalty}
        if spec.text is None or "reference" not in spec.arrays:
            raise DataError(
                "task summarization needs reference texts, which this data set does not give"
            )
        self._text = spec.text
        if (longest := spec.lengths["target"]) < self.rules.max_new_tokens:
            raise ConfigError(
                f"task.params.max_new_tokens: got {self.rules.max_new_tokens}, the "
                f"model learns {longest} tokens"
            )
        if find_spec("rouge_score") is None:
            raise ConfigError("task summarization needs rouge-score: pip install 'subquad[text]'")

    def evaluate(
        self, model: Backbone, batch: Batch, *, final: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """At the end the arrays over documents also have ROUGE and the texts it is taken of.

        `rouge1`, `rouge2` and `rougeL`, F1 as float64 in [0, 1], and with `_precision` and
        `_recall` what it is made of; `text` (B, T) and `reference` (B, R), token ids.
        """
        sums, rows = super().evaluate(model, batch, final=final)
        if final:
            texts = {"text": self.decode(model, batch)["text"], "reference": batch["reference"]}
            scores = rouge(*(self._texts(ids) for ids in texts.values()))
            rows |= dict(zip(SCORES, torch.from_numpy(scores).unbind(1), strict=True))
            rows |= {name: ids.to(self._kept_as) for name, ids in texts.items()}
        return sums, rows

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        """Also the mean of each ROUGE, its precision, recall and interval, and how much the texts
        differ and repeat.

        `rougeL_low` and `rougeL_high` are the ends of the 95 % bootstrap interval of `rougeL`.
        """
        metrics = super().rescore(kept)
        scores = torch.stack([kept[name] for name in SCORES], 1).numpy()
        if not ((scores >= 0) & (scores <= 1)).all():
            raise ValueError("ROUGE must lie in [0, 1]")
        for place, name in enumerate(SCORES):
            metrics[name] = float(scores[:, place].mean())
        low, high = mean_intervals(torch.stack([kept[name] for name in ROUGE], 1).numpy())
        for place, name in enumerate(ROUGE):
            metrics[f"{name}_low"] = float(low[place])
            metrics[f"{name}_high"] = float(high[place])
        texts, targets = self._words(kept)
        return metrics | {
            "distinct1": distinct(texts, 1),
            "distinct2": distinct(texts, 2),
            "repetition": repetition(texts),
            "length_ratio": length_ratio(texts, targets),
        }

    def remarks(self, kept: Mapping[str, Tensor]) -> list[str]:
        """That texts are degenerate, and why; and that ROUGE counts words in another script."""
        remarks = list[str]()
        if reasons := degenerate(*self._words(kept)):
            remarks.append(f"texts are degenerate: {'; '.join(reasons)}")
        known = list(map(is_known, self._texts(kept["reference"])))
        if not all(known):
            remarks.append(
                f"{known.count(False)} of {len(known)} references are mostly in other letters than "
                "a to z: their ROUGE counts words of any script, without a stemmer"
            )
        return remarks

    def examples(self, kept: Mapping[str, Tensor]) -> list[Example]:
        """The first documents' summaries."""
        texts, targets = (self._texts(kept[name][:_EXAMPLES]) for name in ("text", "reference"))
        return [Example(target, text) for target, text in zip(targets, texts, strict=True)]

    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """`text`: the summary of each document, (B, T), 0 after the end."""
        return {"text": beam_search(writing(model), batch, self.rules, **self._beams).text}

    @property
    def _kept_as(self) -> torch.dtype:
        """The type of token ids in files."""
        return torch.int16 if self.spec.vocab_size <= torch.iinfo(torch.int16).max else torch.int32

    def _words(self, kept: Mapping[str, Tensor]) -> tuple[list[Words], list[Words]]:
        """Of the texts and of their targets."""
        texts, references = (self._texts(kept[name]) for name in ("text", "reference"))
        return words_of(texts, references), words_of(references, references)

    def _texts(self, ids: Tensor) -> list[str]:
        return [self._text(row) for row in ids.tolist()]
