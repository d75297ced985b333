"""Model, optimiser and generators as plain values, and back: canonical names, tied weights once; of
a sharded tensor the rows that this rank has.

Names are those of the model as its backbone wrote it, without the prefixes of DDP, FSDP2 or
torch.compile, so that a checkpoint does not depend on how, or on how many ranks, it was trained.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subquad.engine.stored import Stored
from subquad.errors import CheckpointError, and_more


def trained_parameters(optimizer: Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """What an optimiser updates, by canonical name, in the same order on every rank.

    The objects are the optimiser's own. A sharded model has other ones while a forward pass has
    its parameters gathered, so a walk over the model would not find their state.
    """
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, each tensor once."""
    persistent = model.state_dict(keep_vars=True)
    found: dict[str, Tensor] = dict(model.named_parameters())
    for name, buffer in model.named_buffers():
        if name in persistent:
            found[name] = buffer
    return found


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Optimiser state, named `<parameter>/<state>`; scalars become 0-d tensors."""
    found = {}
    for name, parameter in trained_parameters(optimizer):
        # the order in which state was loaded may differ between ranks
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            found[f"{name}/{key}"] = torch.as_tensor(value)
    return found


def _is_sharded(tensor: Tensor) -> bool:
    """Without torch's own class, whose import would cost 0.7 s where nothing is sharded."""
    return hasattr(tensor, "to_local")


def gathered(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor, by a collective call; another one as it is."""
    return cast("Any", tensor).full_tensor() if _is_sharded(tensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor."""
    return cast("Any", tensor).to_local() if _is_sharded(tensor) else tensor


def first_rows(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Of each sharded tensor the place of the first row that this rank has."""
    found = {}
    for name, tensor in tensors.items():
        if _is_sharded(tensor):
            (chunk,) = cast("Any", tensor).__create_chunk_list__()
            found[name] = chunk.offsets[0]
    return found


def copied(tensors: Mapping[str, Tensor], *, whole: bool) -> dict[str, Tensor]:
    """Copies on the CPU of what this rank has.

    Args:
        whole: also of tensors that every rank has.
    """
    copies = {}
    for name, tensor in tensors.items():
        if whole or _is_sharded(tensor):
            own = local(tensor).detach()
            copy = torch.empty_like(own, device="cpu", pin_memory=own.is_cuda)
            copies[name] = copy.copy_(own, non_blocking=True)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return copies


def kinds_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """`float32 3x4`, by name."""
    kinds = {}
    for name, tensor in (tensors.kinds if isinstance(tensors, Stored) else tensors).items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = "x".join(map(str, tensor.shape))
        kinds[name] = f"{dtype} {shape}".rstrip()
    return kinds


def differing(kinds: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """Names of tensors that only one of two states has, or that are of another kind in it."""
    return [
        name for name in sorted(kinds.keys() | others.keys()) if kinds.get(name) != others.get(name)
    ]


def missing_state(
    optimizer: Optimizer, updated: Iterable[str], found: Collection[str]
) -> list[str]:
    """What `optimizer_tensors` found too little, by name.

    Args:
        updated: names of parameters that the optimiser has had a gradient of. Of others it has
            no state.
        found: names of the tensors that were found.
    """
    if not found:
        momenta = [group.get("momentum") for group in optimizer.param_groups]
        is_stateless = set(momenta) == {0}  # sgd's
        if is_stateless:
            return []
        return sorted(updated)
    keys = {path.rpartition("/")[2] for path in found}
    return sorted({f"{name}/{key}" for name in updated for key in keys}.difference(found))


def load_model(model: nn.Module, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
    """Copy tensors into a model, sharded or not.

    Args:
        tensors: whole ones; for a sharded model those of files, of which its rows are read.
        prefix: begins their names there; others are left.

    Raises:
        CheckpointError: names, shapes or types differ; the first differences are named.
    """
    own = {f"{prefix}{name}": tensor for name, tensor in model_tensors(model).items()}
    kinds = kinds_of(tensors)
    given = {name: kind for name, kind in kinds.items() if name.startswith(prefix)}
    wrong = differing(kinds_of(own), given)
    if wrong:
        first = ", ".join(wrong[:5])
        more = and_more(len(wrong) - 5)
        raise CheckpointError(f"the checkpoint holds another model: {first}{more} differ")
    for name, tensor in own.items():
        _fill(tensor, tensors, name)


@torch.no_grad()
def _fill(tensor: Tensor, tensors: Mapping[str, Tensor], name: str) -> None:
    """Copy what a rank has of a tensor from the whole of it."""
    own = local(tensor)
    start = first_rows({name: tensor}).get(name)
    if start is None:
        own.copy_(tensors[name])
    else:
        own.copy_(cast("Stored", tensors).rows(name, start, start + len(own)))


def load_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> set[str]:
    """Give an optimiser the state that `optimizer_tensors` took, whatever it held before.

    Args:
        tensors: those whose names begin with `/` are no state.

    Returns:
        names of the parameters that have state.

    Raises:
        CheckpointError: there is state of a parameter that the optimiser does not update.
    """
    names = {name.rpartition("/")[0] for name in tensors} - {""}
    parameters = dict(trained_parameters(optimizer))
    unknown = sorted(names - parameters.keys())
    if unknown:
        raise CheckpointError(
            f"the checkpoint has the optimiser's state of {unknown[0]}, which it does not update"
        )
    fused = any(group.get("fused") for group in optimizer.param_groups)
    optimizer.state.clear()
    for path in sorted(tensors):
        name, _, key = path.rpartition("/")
        if not name:
            continue
        parameter = parameters[name]
        # torch keeps the step count on the CPU, except for fused optimisers; the rest lives where
        # the parameter does.
        if key == "step":
            placed = tensors[path].to(parameter.device if fused else "cpu", copy=True)
        else:
            placed = torch.empty_like(parameter, requires_grad=False)
            _fill(placed, tensors, path)
        optimizer.state[parameter][key] = placed
    return names


def seed_everything(seed: int, *stream: int) -> None:
    """Seed Python, NumPy and torch from one seed and any further stream numbers (rank, step)."""
    first, second, high, low = np.random.SeedSequence([seed, *stream]).generate_state(4).tolist()
    random.seed(first)
    np.random.seed(second)
    torch.manual_seed(high << 32 | low)


def generator_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """States of torch's generators, uint8 each, and those of Python's and NumPy's global ones as
    JSON values.
    """
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    version, words, gauss = random.getstate()
    _, keys, *rest = np.random.get_state()
    values = {
        "python": [version, list(words), gauss],
        "numpy": [np.asarray(keys).tolist(), *rest],
    }
    return states, values


def load_generators(
    states: Mapping[str, Tensor], values: Mapping[str, Any], prefix: str = ""
) -> None:
    """Give back what `generator_states` took; a prefix begins the names of the states."""
    torch.set_rng_state(states[f"{prefix}torch"])
    if f"{prefix}cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[f"{prefix}cuda"])
    version, words, gauss = values["python"]
    random.setstate((version, tuple(words), gauss))
    words, position, has_gauss, cached = values["numpy"]
    np.random.set_state(("MT19937", np.array(words, dtype=np.uint32), position, has_gauss, cached))
