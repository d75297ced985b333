"""A language model's task: the cross entropy of each token, given those before it."""

import math

import torch
import torch.nn.functional as F

from subquad.nn import Task
from subquad.plugin import Config, Metric, TaskPlugin


class NextToken(Task):
    @property
    def num_outputs(self):
        return self.spec.vocab_size

    def weight(self, batch):
        return float(batch["keep"][:, 1:].sum())

    def loss(self, outputs, batch):
        real = batch["keep"][:, 1:]
        found, wanted = outputs[:, :-1][real].float(), batch["inputs"][:, 1:][real]
        return F.cross_entropy(found, wanted, reduction="sum"), real.sum()

    def sums(self, outputs, batch):
        loss, count = self.loss(outputs, batch)
        return {"loss": loss.double(), "count": count}

    def metrics(self, sums):
        return {"perplexity": math.exp(float(sums["loss"]) / max(1, int(sums["count"])))}

    def decode(self, model, batch):
        """The sequence and its most likely next token."""
        return torch.cat([batch["inputs"], model(batch).outputs[:, -1:].argmax(-1)], 1)


REPORTS = {"perplexity": Metric(mode="min", digits=2)}
PLUGIN = TaskPlugin(
    config=Config, build=NextToken, summary="next token", targets=("next-token",), reports=REPORTS
)
