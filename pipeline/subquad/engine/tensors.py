"""Model, optimiser and generators as plain values, and back: canonical names, whole tensors, tied
weights once.

Names are those of the model as its backbone wrote it, without the prefixes of DDP, FSDP2 or
torch.compile, so that a checkpoint does not depend on how, or on how many ranks, it was trained.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from subquad.errors import CheckpointError, and_more


def trained_parameters(optimizer: Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """What an optimiser updates, by canonical name, in the same order on every rank.

    The objects are the optimiser's own. A sharded model has other ones while a forward pass has
    its parameters gathered, so a walk over the model would not find their state.
    """
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def _named_state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and persistent buffers by name, each tensor once."""
    persistent = set(model.state_dict(keep_vars=True))
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
    return module is not None and isinstance(tensor, module.DTensor)


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
        state = optimizer.state.get(parameter, {})
        for key in sorted(state):  # the order in which state was loaded may differ between ranks
            value = state[key]
            found[f"{name}/{key}"] = _whole(torch.as_tensor(value))
    return found


def missing_state(optimizer: Optimizer, updated: Iterable[str], found: Iterable[str]) -> list[str]:
    """What `optimizer_tensors` found too little, by name.

    Args:
        updated: names of parameters that the optimiser has had a gradient of. Of others it has
            no state.
        found: names of the tensors that were found.
    """
    held = set(found)
    keys = {name.rpartition("/")[2] for name in held}
    if not keys:
        stateless = all(group.get("momentum") == 0 for group in optimizer.param_groups)  # sgd's
        if stateless:
            return []
        return sorted(updated)
    wanted = {f"{name}/{key}" for name in updated for key in keys}
    return sorted(wanted - held)


@torch.no_grad()
def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy whole tensors into a model, sharded or not.

    Raises:
        CheckpointError: names, shapes or types differ; the first differences are named.
    """
    own = dict(_named_state(model))
    wrong = sorted(own.keys() ^ tensors.keys())
    wrong += [
        name
        for name in sorted(own.keys() & tensors.keys())
        if (own[name].shape, own[name].dtype) != (tensors[name].shape, tensors[name].dtype)
    ]
    if wrong:
        listed = ", ".join(wrong[:5]) + and_more(len(wrong) - 5)
        raise CheckpointError(f"the checkpoint holds another model: {listed} differ")
    for name, tensor in own.items():
        tensor.copy_(_like(tensors[name], tensor))


def load_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> set[str]:
    """Give an optimiser the state that `optimizer_tensors` took, whatever it held before.

    Returns:
        names of the parameters that have state.

    Raises:
        CheckpointError: there is state of a parameter that the optimiser does not update.
    """
    states = dict[str, dict[str, Tensor]]()
    for name in sorted(tensors):
        parameter_name, _, key = name.rpartition("/")
        states.setdefault(parameter_name, {})[key] = tensors[name]
    parameters = dict(trained_parameters(optimizer))
    if unknown := sorted(states.keys() - parameters.keys()):
        raise CheckpointError(
            f"the checkpoint has the optimiser's state of {unknown[0]}, which it does not update"
        )
    fused = any(group.get("fused") for group in optimizer.param_groups)
    optimizer.state.clear()
    for name, state in states.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            key: _placed(key, value, parameter, fused) for key, value in state.items()
        }
    return set(states)


def _placed(key: str, value: Tensor, parameter: nn.Parameter, fused: bool) -> Tensor:
    # torch keeps the step count on the CPU, except for fused optimisers; the rest lives where the
    # parameter does.
    if key == "step":
        return value.to(parameter.device if fused else "cpu", copy=True)
    if value.shape == parameter.shape:
        return _like(value, parameter).clone()
    return value.to(parameter.device, copy=True)


def _like(value: Tensor, tensor: Tensor) -> Tensor:
    if _is_sharded(tensor):
        from torch.distributed.tensor import distribute_tensor

        sharded = cast("Any", tensor)
        # Every rank has the whole value and takes its own part: no collective call.
        placed = sharded.device_mesh, sharded.placements
        return distribute_tensor(value.to(tensor.device), *placed, src_data_rank=None)
    return value.to(tensor.device)


def seed_everything(seed: int, *stream: int) -> None:
    """Seed Python, NumPy and torch from one seed and any further stream numbers (rank, step)."""
    words = np.random.SeedSequence([seed, *stream]).generate_state(4)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.manual_seed(int(words[2]) << 32 | int(words[3]))


def generator_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """States of torch's generators, uint8 each, and those of Python's and NumPy's global ones as
    JSON values.
    """
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    version, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()
    return states, {
        "python": [version, list(words), gauss],
        "numpy": [np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }


def load_generators(states: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Give back what `generator_states` took."""
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    version, words, gauss = values["python"]
    random.setstate((version, tuple(words), gauss))
    keys, position, has_gauss, cached = values["numpy"]
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), position, has_gauss, cached))
