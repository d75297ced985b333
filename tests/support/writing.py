"""Small models that write, around every built-in mixer that can stand in them; found by their
facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from subquad.data import NO_LABEL, Array, DataSpec
from subquad.experiment import parameters
from subquad.nn import BackboneContext, TokenMixer
from subquad.plugin import Site
from subquad.registry import build_class, find_plugins, make_mixer, resolve
from subquad_check.subject import CheckSubject, check_subjects

VOCABULARY, END = 13, 1
Make = Callable[[Site], TokenMixer]


def subjects() -> Iterator[CheckSubject]:
    """Every way to build a built-in mixer."""
    for found in find_plugins("mixer"):
        if found.distribution == "subquad":
            yield from check_subjects(found.name)


def causal_subjects() -> Iterator[CheckSubject]:
    return (subject for subject in subjects() if subject.causal)


def cross_subjects() -> Iterator[CheckSubject]:
    """Those that let one sequence see another and can decode so."""
    claimed = (subject for subject in subjects() if subject.facts.cross and not subject.causal)
    return (subject for subject in claimed if subject.build(role="cross").caches)


def way_name(subject: CheckSubject) -> str:
    return f"{subject.resolved.found.name}: {subject.variant}"


def maker(mixer: str | CheckSubject, **params: Any) -> Make:
    """Builds a mixer, by its name or as it is certified, at a site."""
    if isinstance(mixer, CheckSubject):
        return lambda site: make_mixer(mixer.resolved, mixer.config, site)
    found = resolve("mixer", mixer)
    config = parameters(found, params)
    return lambda site: make_mixer(found, config, site)


def model_of(
    backbone: str, make: Make, spec: DataSpec, dtype: torch.dtype = torch.float64, **params: Any
) -> Any:
    """A small model in evaluation mode, all of whose weights are stirred."""
    found = resolve("backbone", backbone)
    config = parameters(
        found, {"num_layers": 2, "dim": 8, "num_heads": 2, "dropout": 0.0, **params}
    )
    torch.manual_seed(0)
    context = BackboneContext(spec=spec, num_outputs=spec.vocab_size, make_mixer=make)
    model = build_class(found)(config, context).to(dtype).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def text_spec(length: int, **more: Any) -> DataSpec:
    return DataSpec.tokens(length, VOCABULARY, target="next-token", end_token=END, **more)


def prompts(lengths: tuple[int, ...], width: int = 0) -> dict[str, Tensor]:
    """Random tokens, padded, with the label of each position: the token after it."""
    width = width or max(lengths)
    keep = torch.arange(width) < torch.tensor(lengths)[:, None]
    drawn = torch.randint(
        2, VOCABULARY, (len(lengths), 600), generator=torch.Generator().manual_seed(5)
    )
    inputs, labels = drawn[:, :width], drawn[:, 1 : width + 1]
    return {"inputs": inputs * keep, "keep": keep, "labels": labels.masked_fill(~keep, NO_LABEL)}


@torch.no_grad()
def greedy(model: Any, batch: dict[str, Tensor], steps: int) -> tuple[Tensor, Tensor]:
    """Tokens (B, steps) that are likeliest, one after the other, and the logits (B, steps, V)
    that they stood in.
    """
    logits, state, memory = model.start(batch)
    all_logits, tokens = [logits], [logits.argmax(-1)]
    for _ in range(steps - 1):
        logits, state = model.step(tokens[-1], state, memory)
        all_logits.append(logits)
        tokens.append(logits.argmax(-1))
    return torch.stack(tokens, 1), torch.stack(all_logits, 1)


def without_caches(model: Any) -> Any:
    """The same model, as if one of its mixers had no decode cache."""
    shadow = type("Without", (type(model),), {"caches": False})
    model.__class__ = shadow
    return model


def sequence_spec(source: int = 11, target: int = 14, titles: int = 4, **more: Any) -> DataSpec:
    """Texts with section titles as a second modality and three numbers for each of two figures
    as a third.
    """
    arrays = {
        "inputs_titles": Array(("titles",), "int64"),
        "keep_titles": Array(("titles",), "bool"),
        "inputs_figures": Array(("figures", "numbers")),
        "keep_figures": Array(("figures",), "bool"),
        "reference": Array(("reference",), "int64"),
    }
    lengths = {"target": target, "reference": target, "titles": titles, "figures": 2, "numbers": 3}
    return DataSpec.tokens(
        source, VOCABULARY, target="sequence", end_token=END, arrays=arrays, lengths=lengths, **more
    )


def documents(
    sources: tuple[int, ...], targets: tuple[int, ...], spec: DataSpec
) -> dict[str, Tensor]:
    """A batch of random texts with these numbers of real tokens; the targets count their end
    token.
    """
    text, generator = prompts(sources, spec.max_len), torch.Generator().manual_seed(6)
    longest = spec.lengths["target"]
    labels = torch.randint(2, VOCABULARY, (len(targets), longest), generator=generator)
    place, ends = torch.arange(longest), torch.tensor(targets)[:, None] - 1
    labels = labels.masked_fill(place == ends, END).masked_fill(place > ends, NO_LABEL)
    titles, figures = (
        torch.arange(spec.lengths[name]) < ends % 3 + 1 for name in ("titles", "figures")
    )
    ids = torch.randint(2, VOCABULARY, titles.shape, generator=generator)
    numbers = torch.randn(*figures.shape, 3, generator=generator, dtype=torch.float64)
    second = {"inputs_titles": ids * titles, "keep_titles": titles}
    third = {"inputs_figures": numbers, "keep_figures": figures}
    return {"inputs": text["inputs"], "keep": text["keep"], "labels": labels, **second, **third}
