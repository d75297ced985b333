"""Cross entropy of another text's tokens; in the final evaluation texts are written and compared with the references.

Letters: B batch, T written tokens, R tokens of the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import torch
from torch import Tensor

from subquad.data import DataSpec
from subquad.errors import ConfigError, DataError
from subquad.nn import Backbone, Batch
from subquad_plugins.language_modeling.search import beam_search
from subquad_plugins.language_modeling.task import TokenTask, writing
from subquad_plugins.summarization import Config
from subquad_plugins.summarization.rouge import ROUGE, mean_intervals, rouge


class Summarization(TokenTask):
    """ROUGE is taken of what is written, so it costs a search for each document: the final evaluation alone has it.

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
            raise DataError("task summarization needs reference texts, which this data set does not give")
        self._text = spec.text
        if (longest := spec.lengths["target"]) < self.rules.max_new_tokens:
            raise ConfigError(
                f"task.params.max_new_tokens: got {self.rules.max_new_tokens}, the model learns {longest} tokens"
            )
        if find_spec("rouge_score") is None:
            raise ConfigError("task summarization needs rouge-score: pip install 'subquad[text]'")

    def evaluate(self, model: Backbone, batch: Batch, *, final: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """At the end the arrays over documents also have `rouge1`, `rouge2` and `rougeL`, F1 as float64 in [0, 1]."""
        sums, rows = super().evaluate(model, batch, final=final)
        if final:
            answers, references = self._texts(self.decode(model, batch)["text"]), self._texts(batch["reference"])
            rows |= dict(zip(ROUGE, torch.from_numpy(rouge(answers, references)).unbind(1), strict=True))
        return sums, rows

    def rescore(self, kept: Mapping[str, Tensor]) -> dict[str, float]:
        """Also the mean of each ROUGE and, as `rougeL_low` and `rougeL_high`, its 95 % bootstrap interval."""
        found, scores = super().rescore(kept), torch.stack([kept[name] for name in ROUGE], 1).numpy()
        if not ((scores >= 0) & (scores <= 1)).all():
            raise ValueError("ROUGE must lie in [0, 1]")
        low, high = mean_intervals(scores)
        for name, *values in zip(ROUGE, scores.mean(0), low, high, strict=True):
            found |= {f"{name}{end}": float(one) for end, one in zip(("", "_low", "_high"), values, strict=True)}
        return found

    def decode(self, model: Backbone, batch: Batch) -> dict[str, Tensor]:
        """`text`: the summary of each document, (B, T), 0 after the end."""
        return {"text": beam_search(writing(model), batch, self.rules, **self._beams).text}

    def _texts(self, ids: Tensor) -> list[str]:
        return [self._text(row) for row in ids.tolist()]
