"""Models that write, trained alone or by two processes."""

from __future__ import annotations

import resource
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from writing import documents, greedy, maker, model_of, prompts, sequence_spec, text_spec

from subquad.data import DataSpec
from subquad.engine.group import Group
from subquad.engine.tensors import gathered, model_tensors

SEQUENCE, TEXT = sequence_spec(), text_spec(24)


def models(**params: Any) -> list[tuple[Any, dict[str, Tensor]]]:
    """A model of each kind and a batch of four samples."""
    read = documents((11, 6, 3, 8), (14, 9, 4, 11), SEQUENCE)
    written = prompts((12, 7, 9, 3))
    return [
        (model_of("encoder-decoder", maker("mdfwa"), SEQUENCE, **params), read),
        (model_of("decoder", maker("softmax"), TEXT, **params), written),
    ]


def trained(model: Any, wrapped: Any, batch: dict[str, Tensor], total: float) -> list[float]:
    """Sums of the losses of three steps, each over a weight of `total`."""
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(3):
        loss = wrapped(batch).outputs.loss.sum()
        optimizer.zero_grad()
        (loss / total).backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def one_of_two(rank: int, rendezvous: str, expected: list[Any]) -> None:
    """Train and write as one of two processes, and compare with what one alone gave."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    group = Group(rank, 2)
    for strategy in ("ddp", "fsdp2"):
        for (model, batch), output in zip(models(), expected, strict=True):
            _compare(
                group,
                strategy,
                model,
                {name: value[rank::2] for name, value in batch.items()},
                output,
            )
    dist.destroy_process_group()


def _compare(
    group: Group, strategy: str, model: Any, share: dict[str, Tensor], expected: Any
) -> None:
    losses, weights, tokens = expected
    shard = group.sharder(strategy)
    wrapped = group.wrap(model, shard, False, shard is not None)
    # Both average the gradients of two processes, each over half of the weight.
    own = torch.tensor(trained(model, wrapped, share, 2.0), dtype=torch.float64)
    found = group.add(own).float()
    torch.testing.assert_close(found, torch.tensor(losses), rtol=1e-6, atol=0)
    for name, weight in model_tensors(model).items():
        torch.testing.assert_close(gathered(weight), weights[name], rtol=1e-9, atol=1e-12)
    if strategy == "fsdp2":
        group.make_whole(model)
    assert torch.equal(greedy(model, share, 6)[0], tokens[group.rank :: 2])


def train_long_document(
    rank: int, mixer: str, params: dict[str, Any], recompute: bool, limit: float
) -> None:
    """One step at the paper's size: 4,096 source tokens, 256 targets, width 512, twice 12 layers,
    50,257 tokens.

    Args:
        limit: GiB of memory that this process may take.
    """
    torch.set_num_threads(1)
    spec = DataSpec.tokens(4096, 50_257, target="sequence", end_token=1, lengths={"target": 256})
    size = {"num_layers": 12, "dim": 512, "num_heads": 8, "dropout": 0.1}
    model = model_of("encoder-decoder", maker(mixer, **params), spec, torch.float32, **size).train()
    wrapped = Group().wrap(model, None, False, recompute)
    keep = torch.arange(4096)[None] < 4000
    batch = {"inputs": torch.randint(2, 50_257, keep.shape) * keep, "keep": keep}
    batch["labels"] = torch.randint(2, 50_257, (1, 256))
    start, optimizer = time.process_time(), torch.optim.AdamW(model.parameters())
    loss = wrapped(batch).outputs.loss.mean()
    loss.backward()
    optimizer.step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{mixer} {params}, recompute {recompute}: {peak:.1f} GiB, "
        f"{time.process_time() - start:.0f} s"
    )
    assert loss.isfinite()
    assert peak < limit
