"""Copy, the control task for mixers with fixed operators: name the token that stands at one
position. Light half.

Generated, not downloaded. Nothing has to be looked up by content, so a mixer only has to carry a
token along the sequence; read at another position, `identity` sees an independent token and stays
at chance, 1 / num_values.
"""

from __future__ import annotations

from pydantic import model_validator

from subquad.plugin import DatasetPlugin, param
from subquad_datasets.generated import GeneratedConfig


class Config(GeneratedConfig):
    """Parameters of the copy task."""

    length: int = param(17, meaning="tokens in a sequence", symbol="L", ge=2, le=100_000)
    position: int = param(
        0, meaning="place of the token to copy; the last place is read, so it cannot be that", ge=0
    )
    num_values: int = param(8, meaning="different tokens, the classes", ge=2, le=10_000)

    @model_validator(mode="after")
    def _elsewhere(self) -> Config:
        if self.position > self.length - 2:
            raise ValueError(
                f"position {self.position} must lie before the last "
                f"place: 0 to {self.length - 2} with length {self.length}"
            )
        return self


PLUGIN = DatasetPlugin(
    config=Config,
    build="subquad_datasets.copy.dataset:Copy",
    summary="control task: name the token at a fixed position; chance without mixing",
    inputs="tokens",
    targets=("class", "next-token"),
)
