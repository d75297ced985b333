"""Speed of token mixers as a ratio over softmax attention, measured in turn in one process.

At each length every mixer gets the same number of tokens. A round times softmax, a few mixers, softmax again, a few
more mixers, and so on; a mixer's ratio in a round is over the mean of the two softmax blocks around it. What is
reported are medians over rounds.

Letters: B batch, L length, D model width, H heads.
"""

from __future__ import annotations

import gc
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from subquad.bench.clock import Clock, Roofline, one_thread, roofline
from subquad.bench.rows import REFERENCE, Row, parse_row
from subquad.bench.work import PARTS, Work
from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.plugin import Site
from subquad.registry import make_mixer

GROUP = 3
"""So many mixers stand between two blocks of softmax."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How it is measured.

    Attributes:
        lengths: L of each comparison.
        dim, heads: D and H.
        tokens: B L, the same at every length; one sample where L is longer.
        rounds: times that every mixer is timed at every length.
        device: "cpu", "cuda", "cuda:1".
        causal: build softmax and all mixers causal.
    """

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096)
    dim: int = 128
    heads: int = 2
    tokens: int = 8192
    rounds: int = 5
    device: str = "cpu"
    causal: bool = False

    def batch(self, length: int) -> int:
        """B at a length."""
        return max(1, self.tokens // length)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One mixer at one length.

    Attributes:
        row: the row's text.
        length, batch: L and B.
        forward_us, both_us: microseconds per token, without and with the backward pass.
        forward_ratio, both_ratio: time over that of softmax; below 1 is faster.
        gflop: operations of forward and backward, counted, in 1e9.
        mbytes: bytes they move, counted, in 1e6.
        gflops: operations reached per second, in 1e9.
        uncounted: operations left out of the counts, as nobody can count them.
    """

    row: str
    length: int
    batch: int
    forward_us: float
    both_us: float
    forward_ratio: float
    both_ratio: float
    gflop: float
    mbytes: float
    gflops: float
    uncounted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that was measured.

    Attributes:
        protocol: how.
        rows: softmax and the mixers that were timed.
        speeds: by length, then in the rows' order.
        best: what the process reaches at best.
        skipped: what was not timed, and why.
    """

    protocol: Protocol
    rows: tuple[Row, ...]
    speeds: tuple[Speed, ...]
    best: Roofline
    skipped: tuple[str, ...] = ()


def compare(
    rows: Sequence[Row],
    protocol: Protocol,
    *,
    skipped: Sequence[str] = (),
    strict: bool = True,
    done: Callable[[int], None] = lambda length: None,
) -> Comparison:
    """Time all rows at all lengths.

    Args:
        rows: the mixers; softmax is added.
        protocol: how.
        skipped: what was left out already.
        strict: raise where a mixer cannot stand at a length; else leave it out and say so.
        done: called after each length.

    Raises:
        SubquadError: a mixer cannot be built or called so, or its outputs are not finite.
    """
    clock = Clock(_device(protocol.device))
    rows = (parse_row(REFERENCE), *(row for row in rows if row.text != REFERENCE))
    left_out, speeds = list(skipped), []
    with one_thread():
        best = roofline(clock)
        for length in protocol.lengths:
            works = list(_prepared(rows, protocol, length, clock, None if strict else left_out))
            gc.collect()
            for _ in range(protocol.rounds):
                _round(works, clock)
            speeds += [_speed(work, protocol, length) for work in works]
            done(length)
    return Comparison(protocol=protocol, rows=rows, speeds=tuple(speeds), best=best, skipped=tuple(left_out))


def _device(name: str) -> torch.device:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"--device {name}: give cpu, cuda or cuda:1")
    if name != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: torch sees no CUDA device here; use cpu")
    return torch.device(name)


def _prepared(
    rows: Sequence[Row], protocol: Protocol, length: int, clock: Clock, left_out: list[str] | None
) -> Iterator[Work]:
    """What can be timed at a length; the reference always can."""
    for row in rows:
        try:
            yield _prepare(row, protocol, length, clock)
        except SubquadError as error:
            if left_out is None or row.text == REFERENCE:
                raise
            left_out.append(f"{row.text} at length {length}: {error}")


def _prepare(row: Row, protocol: Protocol, length: int, clock: Clock) -> Work:
    """Build, look at the outputs, warm up."""
    work = Work(row, _build(row, protocol, length), _tokens(protocol, length))
    for what, values in (("outputs", [work.forward()]), ("gradients", work.both())):
        if not all(bool(torch.isfinite(one).all()) for one in values if one is not None):
            raise PluginError(f"{row.text}: {what} at length {length} are not finite, so there is nothing to time")
    work.repeats = {part: clock.repeats(work.action(part)) for part in PARTS}
    return work


def _build(row: Row, protocol: Protocol, length: int) -> nn.Module:
    causal = protocol.causal or row.facts.causal == "always"
    if causal and row.facts.causal == "never":
        raise PluginError(f"{row.text}: never causal, so it cannot be timed with --causal")
    limit = row.facts.max_length
    if isinstance(limit, int) and limit < length:
        raise PluginError(f"{row.text}: takes {limit} positions at most")
    site = Site(dim=protocol.dim, num_heads=protocol.heads, max_len=length, causal=causal)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_mixer(row.resolved, row.config, site).to(protocol.device, torch.float32).train()


def _tokens(protocol: Protocol, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(protocol.batch(length), length, protocol.dim, generator=generator).to(protocol.device)


def _round(works: Sequence[Work], clock: Clock) -> None:
    reference, others = works[0], works[1:]
    for part in PARTS:
        before = reference.time(part, clock)
        reference.seconds[part].append(before)
        reference.ratios[part].append(1.0)
        for group in _groups(others):
            times = [work.time(part, clock) for work in group]
            after = reference.time(part, clock)
            reference.seconds[part].append(after)
            for work, seconds in zip(group, times, strict=True):
                work.seconds[part].append(seconds)
                work.ratios[part].append(2 * seconds / (before + after))
            before = after


def _groups(works: Sequence[Work]) -> Iterator[Sequence[Work]]:
    return (works[start : start + GROUP] for start in range(0, len(works), GROUP))


def _speed(work: Work, protocol: Protocol, length: int) -> Speed:
    seconds = {part: statistics.median(work.seconds[part]) for part in PARTS}
    ratios = {part: statistics.median(work.ratios[part]) for part in PARTS}
    batch = protocol.batch(length)
    micro = 1e6 / (batch * length)
    count = work.count()
    return Speed(
        row=work.row.text,
        length=length,
        batch=batch,
        forward_us=micro * seconds["forward"],
        both_us=micro * seconds["both"],
        forward_ratio=ratios["forward"],
        both_ratio=ratios["both"],
        gflop=count.flops / 1e9,
        mbytes=count.moved / 1e6,
        gflops=count.flops / 1e9 / seconds["both"],
        uncounted=count.unknown,
    )
