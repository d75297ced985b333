"""Whether an experiment can run at a point: the plugins are asked, so that no space repeats what they know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from subquad.experiment.checked import Checked, check, parse
from subquad.experiment.settings import Setting, Tree, overlay
from subquad.plugin import Site
from subquad.registry import Resolved
from subquad.registry.loaded import check_site

Build = Callable[[Sequence[Setting]], Checked]
"""An experiment with settings laid over it; it raises `UserError` where that cannot run."""


def builder(experiment: Checked, *, max_len: int = 0, causal: bool = False) -> Build:
    """What `Space.refusal` asks for an experiment. Nothing heavy is imported, and no plugin is looked for again.

    Args:
        experiment: what the points are laid over.
        max_len: longest sequence of its data, prefix tokens included; 0: not known, so that limits of length are not
            looked at.
        causal: whether its backbone asks for a causal mixer.
    """
    data = experiment.experiment.model_dump(mode="json")

    def resolve(kind: str, name: str, **more: Any) -> Resolved:
        return getattr(experiment, kind)

    def build(settings: Sequence[Setting]) -> Checked:
        tree = overlay(Tree(data, {}), settings)
        checked = check(parse(tree.data, tree.marks, resolve=resolve), tree.marks, resolve=resolve)
        if site := _site(checked, max_len, causal):
            check_site(checked.mixer, checked.mixer_config, site)
        return checked

    return build


def _site(checked: Checked, max_len: int, causal: bool) -> Site | None:
    """A place in the network, as far as it is known; None where the backbone does not say its width."""
    dim, heads = (getattr(checked.backbone_config, key, None) for key in ("dim", "num_heads"))
    if not isinstance(dim, int):
        return None
    return Site(dim=dim, num_heads=heads if isinstance(heads, int) else 1, max_len=max_len, causal=causal)
