"""Summarization: another text from a text, judged by ROUGE. Light half."""

from __future__ import annotations

from subquad.plugin import Metric, TaskPlugin, param
from subquad_plugins.language_modeling import TokenConfig


class Config(TokenConfig):
    """Parameters of summarization."""

    beam_width: int = param(
        4, meaning="beams of the search; 1: the likeliest token is written each time", ge=1
    )
    length_penalty: float = param(
        1.0,
        meaning="a text scores sum of log p / length^this; above 0 it favours long texts",
        ge=-10,
        le=10,
    )


PLUGIN = TaskPlugin(
    config=Config,
    build="subquad_plugins.summarization.task:Summarization",
    summary="teacher forcing; beam search, ROUGE with intervals, "
    "diversity and repetition on the test split",
    paper="Lin 2004, ROUGE: a package for automatic "
    "evaluation of summaries; Koehn 2004 (intervals)",
    targets=("sequence",),
    reports={
        "rougeL": Metric(label="ROUGE-L", unit="points"),
        "rouge1": Metric(label="ROUGE-1", unit="points"),
        "rouge2": Metric(label="ROUGE-2", unit="points"),
        "distinct1": Metric(label="distinct-1", digits=3),
        "distinct2": Metric(label="distinct-2", digits=3),
        "repetition": Metric(mode="min", digits=3),
        "length_ratio": Metric(label="length ratio", digits=3),
        "loss": Metric(mode="min", in_tables=False),
    },
    selects="loss",
)
