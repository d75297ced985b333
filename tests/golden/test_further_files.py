"""Files of the folders in SUBQUAD_GOLDEN: they are found by their arrays, whatever their names and
sizes, and one of no kind is told in one line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_lra_dual
import test_mdfwa_layer
import torch
from golden_files import KINDS, OWN, UnknownFile, golden_files, kind_of, load_golden, paths

from subquad_plugins.agf import Config
from subquad_plugins.agf.naive import agf
from subquad_plugins.mdfwa.naive import mdfwa
from subquad_plugins.sfpc.naive import dense_operator, polynomials


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBQUAD_GOLDEN", str(tmp_path))
    return tmp_path


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
def test_a_whole_mdfwa_layer_is_read(folder, causal, assert_close):
    torch.manual_seed(4)
    names = ("F_F", "F_W", "P", "W_G")
    given = {
        "X": drawn(2, 12, 6),
        **{name: drawn(6, 6) for name in names},
        "b": drawn(6),
        "b_G": drawn(6),
    }
    given |= {
        "alpha": torch.softmax(drawn(3), 0),
        "gain": drawn(6),
        "bias": drawn(6),
        "wavelet": "haar",
    }
    given |= {"period": 16, "norm": "causal_rms"} if causal else {"form": "hartley"}
    expected = mdfwa(**given)
    arrays = {
        name: value.numpy() if isinstance(value, torch.Tensor) else value
        for name, value in given.items()
    }
    np.savez(folder / "mdfwa_layer_drawn.npz", **arrays, LN_Y=expected, out=expected + given["X"])
    assert test_mdfwa_layer.compare("mdfwa_layer_drawn", assert_close)
    np.savez(folder / "mdfwa_layer_drawn.npz", **arrays, LN_Y=expected + 1e-9)
    with pytest.raises(AssertionError):
        test_mdfwa_layer.compare("mdfwa_layer_drawn", assert_close)


def test_a_whole_dual_model_is_read(folder, assert_close):
    """The authors' tower and hidden states, of which a drawn head makes the logits of pairs."""
    torch.manual_seed(4)
    arrays = load_golden("lra_softmax_modelforsc")
    width, head = arrays["hidden"].shape[-1], "sd/seq_classifer.mlpblock.0.weight"
    arrays |= {head: torch.randn(len(arrays[head]), 4 * width)}
    outputs = len(arrays["sd/seq_classifer.mlpblock.2.bias"])
    keep, state = arrays["mask"].bool(), test_lra_dual.state_of(arrays)
    model = test_lra_dual.dual(arrays, state, outputs)
    model.load_state_dict(state)
    a = (arrays["hidden"] * keep[..., None]).mean(1)
    b = a.roll(1, 0)
    logits = model.head(torch.cat([a, b, a * b, a - b], 1))
    pairs = {"ids_1": arrays["ids"].roll(1, 0), "mask_1": arrays["mask"].roll(1, 0)}
    kept = {
        name: array
        for name, array in arrays.items()
        if name.startswith("sd/") or name in ("ids", "mask", "heads")
    }
    np.savez(folder / "lra_dual_drawn.npz", **kept, **pairs, logits=logits.detach())
    test_lra_dual.test_whole_dual_model("lra_dual_drawn", assert_close)


@pytest.mark.parametrize("name", paths())
def test_every_file_is_of_a_known_kind(name):
    try:
        kind_of(paths()[name])
    except UnknownFile as reason:
        pytest.fail(str(reason), pytrace=False)


def test_what_is_no_golden_file_is_told_and_hides_no_other(folder):
    np.savez(folder / "strange.npz", x=np.ones(3), odd=np.ones(2))
    (folder / "broken.npz").write_bytes(b"no archive")
    known = ", ".join(sorted(KINDS))
    with pytest.raises(UnknownFile) as raised:
        kind_of(folder / "strange.npz")
    assert str(raised.value) == (
        f"{folder}/strange.npz: of no known kind, with the arrays odd, x; known are {known} "
        "(tests/support/golden_files.py says what each has)"
    )
    with pytest.raises(UnknownFile, match=r"broken\.npz: no archive of arrays: "):
        kind_of(folder / "broken.npz")
    shutil.copy(paths()["cur_select"], folder / "cur_select.npz")
    assert golden_files("cur selection") == [str(folder / "cur_select.npz"), "cur_select"]


def heads(x: torch.Tensor) -> torch.Tensor:
    """(B, L, D) to (B, H, L, E) of three heads."""
    return x.unflatten(-1, (3, -1)).transpose(1, 2)


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def inputs() -> dict[str, torch.Tensor]:
    return {letter: drawn(2, 3, 10, 5) for letter in "qkv"}


def agf_layer() -> dict[str, Any]:
    given = {name: drawn(*shape).requires_grad_() for name, shape in AGF_SHAPES.items()}
    ours = {"U": "u", "V": "v", "S": "sigma", "val": "value", "out": "out"}
    state = {"filter.theta": given["theta"]}
    for theirs, name in ours.items():
        state |= {f"{name}.weight": given[f"W_{theirs}"], f"{name}.bias": given[f"b_{theirs}"]}
    config = Config(order=2, basis="legendre", mask_padding=False, fix_identity=False)
    out, ortho = agf(given["x"], state, config, 3)
    weighting = drawn(2, 10, 15)
    ((out * weighting).sum() + 0.3 * ortho.sum()).backward()
    gradients = {f"grad_{name}": value.grad for name, value in given.items()}
    found = {"out64": out, "out32": out, "ortho64": ortho, "ortho32": ortho}
    fields = {"K": 2, "fixI": 0, "heads": 3, "poly": "legendre"}
    return given | gradients | found | fields | {"grad_w_weighting": weighting}


AGF_SHAPES = {"x": (2, 10, 15), "theta": (3,)} | {
    f"{part}_{name}": (15, 15)[: 2 if part == "W" else 1]
    for name in ("U", "V", "S", "val", "out")
    for part in "Wb"
}


def softmax() -> dict[str, Any]:
    given = inputs()
    return given | {"y": attended(**given), "meta": "softmax attention"}


def linear() -> dict[str, Any]:
    given = inputs()
    q, k = (torch.nn.functional.elu(given[letter]) + 1 for letter in "qk")
    weights = q @ k.mT
    y = weights @ given["v"] / (weights.sum(-1, keepdim=True) + 1e-6)
    turned = {name: x.transpose(1, 2) for name, x in (given | {"y": y}).items()}
    return turned | {"key_len": torch.tensor([10, 10])}


def efficient() -> dict[str, Any]:
    x = drawn(2, 10, 15)
    weights = {name: drawn(15, 15) for name in ("queries", "keys", "values", "reprojection")}
    q, k, v = (heads(x @ weights[name].T) for name in ("queries", "keys", "values"))
    mixed = torch.softmax(q, -1) @ (torch.softmax(k, -2).mT @ v)
    y = mixed.transpose(1, 2).flatten(2) @ weights["reprojection"].T
    stored = {f"w.{name}.weight": weight[..., None, None] for name, weight in weights.items()}
    biases = {f"w.{name}.bias": torch.zeros(15).double() for name in weights}
    return stored | biases | {"x": x, "y": y, "meta": "heads=3"}


def linformer_core() -> dict[str, Any]:
    given, packing = inputs(), drawn(3, 4, 10)
    y = attended(given["q"], packing @ given["k"], packing @ given["v"])
    return given | {"E": packing, "y": y}


def nystrom() -> dict[str, Any]:
    given = inputs()
    q_hat, k_hat = (given[letter].unflatten(2, (5, 2)).mean(3) for letter in "qk")
    identity = torch.eye(5, dtype=torch.float64)
    u = torch.softmax(q_hat @ k_hat.mT / 5**0.5, -1)
    z = u.mT / u.sum(-2).max()
    for _ in range(6):
        uz = u @ z
        z = z @ (13 * identity - uz @ (15 * identity - uz @ (7 * identity - uz))) / 4
    y = attended(given["q"], k_hat, z @ attended(q_hat, given["k"], given["v"]))
    return given | {"pinv_in": u, "pinv_out": z, "y": y}


def luna_apart() -> dict[str, Any]:
    x, p = drawn(2, 10, 15), drawn(2, 4, 15)
    names = ("pq", "pk", "pv", "q", "k", "v", "out")
    weights = {name: drawn(15, 15) for name in names}
    pack_query = heads(p @ weights["pq"].T)
    packed = attended(pack_query, heads(x @ weights["pk"].T), heads(x @ weights["pv"].T))
    packed = packed.transpose(1, 2).flatten(2)
    key, value = (heads(packed @ weights[name].T) for name in "kv")
    mixed = attended(heads(x @ weights["q"].T), key, value).transpose(1, 2).flatten(2)
    stored = {f"w.{name}_proj.weight": weight for name, weight in weights.items()}
    stored |= {f"w.{name}_proj.bias": torch.zeros(15).double() for name in names}
    return stored | {
        "x": x,
        "p": p,
        "pc": packed,
        "y": mixed @ weights["out"].T,
        "meta": "3 heads",
    }


def sfpc_shift() -> dict[str, Any]:
    x, c = drawn(3, 9, 5), drawn(4)
    powers = polynomials(dense_operator("shift", 9), "monomial", 3)
    matrix = sum(weight * power for weight, power in zip(c, powers, strict=True))
    return {"X": x, "c": c, "M": matrix, "out": matrix @ x}


MADE = (
    agf_layer,
    softmax,
    linear,
    efficient,
    linformer_core,
    nystrom,
    luna_apart,
    sfpc_shift,
)
"""Files of three heads of width 5, by plain formulas."""


@pytest.mark.ci
def test_files_of_any_name_and_size_are_read_by_a_test(folder):
    """Copies of ours go to the tests that read the originals; drawn files are compared, and what
    is no golden file fails alone.
    """
    torch.manual_seed(4)
    ours = {name: path for name, path in paths().items() if path.parent == OWN}
    for number, path in enumerate(ours.values()):
        shutil.copy(path, folder / f"copy-{number}-.npz")
    collected = pytest_said("--collect-only")
    for number, name in enumerate(ours):
        reading = [line for line in collected if f"copy-{number}-" in line]
        assert len(reading) >= 2, f"no test reads a copy of {name}"
    for path in folder.iterdir():
        path.unlink()
    for make in MADE:
        arrays = {name: np.asarray(plain(value)) for name, value in make().items()}
        np.savez(folder / f"drawn_{make.__name__}.npz", **arrays)
    np.savez(folder / "drawn_odd.npz", odd=np.ones(3))
    lines = pytest_said("-k", "drawn_", "-rA")
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    assert [line.split("[")[1].split("]")[0] for line in failed] == ["drawn_odd"]
    for make in MADE:
        name = f"drawn_{make.__name__}"
        passed = [line for line in lines if line.startswith("PASSED") and name in line]
        assert len(passed) >= 2, f"no test has compared {name}"


def plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def pytest_said(*options: str) -> list[str]:
    """What a run of this folder's tests prints, line by line."""
    here = str(Path(__file__).parent)
    chosen = ("-m", "ci or not ci", "-p", "no:cacheprovider", *options)
    command = [sys.executable, "-m", "pytest", "-q", here, *chosen]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
