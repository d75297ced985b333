"""GFNet: a learned filter for each frequency of an image's patches, or of a sequence. Light
half.
"""

from __future__ import annotations

from subquad.plugin import Facts, MixerConfig, MixerPlugin, Range, Site, param


class Config(MixerConfig):
    """Parameters of GFNet."""

    scale: float = param(
        0.02,
        meaning="standard deviation of the filter at the start",
        gt=0,
        le=10,
        search=Range(1e-3, 1, log=True),
    )

    def check(self, site: Site) -> None:
        super().check(site)
        if (
            site.grid is not None
            and site.max_len
            and site.max_len != (n := site.num_prefix_tokens + _size(site.grid))
        ):
            raise ValueError(
                f"gfnet filters the grid of {site.grid[0]} x {site.grid[1]} patches, which with "
                f"{site.num_prefix_tokens} tokens in front are {n}, and sequences "
                f"have up to {site.max_len}"
            )


def _size(grid: tuple[int, int]) -> int:
    return grid[0] * grid[1]


PLUGIN = MixerPlugin(
    config=Config,
    build="subquad_plugins.gfnet.mixer:GFNet",
    summary="GFNet: a learned filter of the frequencies of an image's patches",
    paper="Rao et al. 2021, Global Filter Networks for Image Classification",
    facts=Facts(padding_invariant=True, max_length="site", complexity="L log L", leak=1e-12),
)
