"""Model, optimiser and generators as plain values, and back: canonical names, whole tensors, tied
weights once.

Names are those of the model as its backbone wrote it, without the prefixes of DDP, FSDP2 or
torch.compile, so that a checkpoint does not depend on how, or on how many ranks, it was trained.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from subquad.errors import CheckpointError, DataError, and_more
from subquad.security.limits import check_safetensors

_PAIRS = ":complex128"
"""Ends the names of complex numbers that are written as pairs: safetensors has those of 64 bits
alone.
"""


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as a safetensors file."""
    named = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.complex128:
            name += _PAIRS
            tensor = torch.view_as_real(tensor)
        named[name] = tensor
    return save(named)


def unpacked(where: object, content: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        DataError: it is none.
    """
    check_safetensors(where, content)
    try:
        found = {}
        for name, tensor in load(content).items():
            if name.endswith(_PAIRS):
                tensor = torch.view_as_complex(tensor)
            found[name.removesuffix(_PAIRS)] = tensor
    except Exception as error:  # damaged files raise what their bytes happen to say
        raise DataError(f"{where}: not a safetensors file: {error}") from error
    return found


def trained_parameters(optimizer: Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """What an optimiser updates, by canonical name, in the same order on every rank.

    The objects are the optimiser's own. A sharded model has other ones while a forward pass has
    its parameters gathered, so a walk over the model would not find their state.
    """
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def _named_state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers by name, each tensor once."""
    persistent = model.state_dict(keep_vars=True)
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if name in persistent:
            yield name, buffer


def gathered(tensor: Tensor) -> Tensor:
    """The whole of a sharded tensor, by a collective call; another one as it is."""
    if _is_sharded(tensor):
        return cast("Any", tensor).full_tensor()
    return tensor


def _is_sharded(tensor: Tensor) -> bool:
    """Who shards has imported what this asks for; for others the import would cost 0.7 s."""
    module = sys.modules.get("torch.distributed.tensor")
    if module is None:
        return False
    return isinstance(tensor, module.DTensor)


def _whole(tensor: Tensor) -> Tensor:
    """A detached CPU copy of the whole tensor; for a sharded one a collective call."""
    return gathered(tensor).detach().to("cpu", copy=True).contiguous()


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Whole tensors of a model."""
    return {name: _whole(tensor) for name, tensor in _named_state(model)}


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Whole optimiser state, named `<parameter>/<state>`; scalars become 0-d tensors.

    Every rank must call it: for a sharded model each tensor is a collective call.
    """
    found = {}
    for name, parameter in trained_parameters(optimizer):
        # the order in which state was loaded may differ between ranks
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            found[f"{name}/{key}"] = _whole(torch.as_tensor(value))
    return found


def kinds_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """`float32 3x4`, by name."""
    kinds = {}
    for name, tensor in tensors.items():
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


@torch.no_grad()
def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy whole tensors into a model, sharded or not.

    Raises:
        CheckpointError: names, shapes or types differ; the first differences are named.
    """
    own = dict(_named_state(model))
    wrong = differing(kinds_of(own), kinds_of(tensors))
    if wrong:
        first = ", ".join(wrong[:5])
        more = and_more(len(wrong) - 5)
        raise CheckpointError(f"the checkpoint holds another model: {first}{more} differ")
    for name, tensor in own.items():
        tensor.copy_(_like(tensors[name], tensor))


def load_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> set[str]:
    """Give an optimiser the state that `optimizer_tensors` took, whatever it held before.

    Returns:
        names of the parameters that have state.

    Raises:
        CheckpointError: there is state of a parameter that the optimiser does not update.
    """
    names = {name.rpartition("/")[0] for name in tensors}
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
        parameter = parameters[name]
        value = tensors[path]
        # torch keeps the step count on the CPU, except for fused optimisers; the rest lives where
        # the parameter does.
        if key != "step":
            placed = _like(value, parameter)
        elif fused:
            placed = value.to(parameter.device)
        else:
            placed = value
        optimizer.state[parameter][key] = placed.clone()
    return names


def _like(value: Tensor, tensor: Tensor) -> Tensor:
    if _is_sharded(tensor):
        from torch.distributed.tensor import distribute_tensor

        sharded = cast("Any", tensor)
        # Every rank has the whole value and takes its own part: no collective call.
        return distribute_tensor(
            value.to(tensor.device), sharded.device_mesh, sharded.placements, src_data_rank=None
        )
    return value.to(tensor.device)


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


def load_generators(states: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Give back what `generator_states` took."""
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    version, words, gauss = values["python"]
    random.setstate((version, tuple(words), gauss))
    words, position, has_gauss, cached = values["numpy"]
    np.random.set_state(("MT19937", np.array(words, dtype=np.uint32), position, has_gauss, cached))
