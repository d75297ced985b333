"""CUR against stored arrays: the pseudo-inverse, the selections, all parts of the attention, and
its gradients.

What a file is about, and every parameter, is read from the arrays in it; each expected array must
be compared.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from golden_files import golden_files, load_golden
from torch import Tensor

from subquad_plugins.cur import Config
from subquad_plugins.cur.attention import cur_attention
from subquad_plugins.cur.naive import attention
from subquad_plugins.cur.selection import select_indices
from subquad_plugins.numerics.pinv import Start, exact_inverse, pseudo_inverse
from subquad_plugins.numerics.tensors import take_rows

Arrays = dict[str, Any]
GIVEN = {"meta", "Q", "K", "V", "idx", "q_idx", "k_idx", "key_valid", "dO"}
STARTS: dict[str, Start] = {
    "exact": "norms",
    "Z": "norms",
    "nystrom": "rows",
    "nystrom_global": "batch",
}
SCORED = re.compile(r"(sum|abs|embed)(\d*)_(q|k|qk)(?:_cls([01]))?")


def indices(arrays: Arrays) -> tuple[Tensor, Tensor]:
    return arrays["q_idx" if "q_idx" in arrays else "idx"], arrays[
        "k_idx" if "k_idx" in arrays else "idx"
    ]


def run(arrays: Arrays, dtype: torch.dtype = torch.float64, **options: Any) -> Tensor:
    q, k, v = (arrays[name].to(dtype) for name in "QKV")
    return cur_attention(q, k, v, *indices(arrays), key_keep=arrays.get("key_valid"), **options)


def oracle(arrays: Arrays, **options: Any) -> Tensor:
    """`naive.attention` with the file's indices; padded queries get 0."""
    q, k, v = (arrays[name] for name in "QKV")
    q_idx, k_idx = indices(arrays)
    config, out = Config(**options), torch.zeros_like(v[:, :, : q.shape[2]])
    for b in range(q.shape[0]):
        real = (
            arrays["key_valid"][b].nonzero()[:, 0]
            if "key_valid" in arrays
            else torch.arange(q.shape[2])
        )
        place = {int(position): rank for rank, position in enumerate(real)}
        for h in range(q.shape[1]):
            rows, columns = ([place[int(i)] for i in index[b, h]] for index in (q_idx, k_idx))
            out[b, h, real] = attention(
                q[b, h, real], k[b, h, real], v[b, h, real], rows, columns, config
            )
    return out


def options_of(key: str) -> dict[str, Any]:
    if key == "out_exact":
        return {"pinv": "exact"}
    what, number = re.fullmatch(r"out_(it|copy|renorm)(\d+)", key).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return {"iterations": int(number), "copy_rows": what == "copy", "renormalise": what == "renorm"}


def part(arrays: Arrays, key: str) -> Tensor:
    """C, R, U, R V, the inverses of U, and attention with all rows, each from its definition or
    ours.
    """
    q, k, v = (arrays[name] for name in "QKV")
    hidden = (
        torch.tensor(False) if "key_valid" not in arrays else ~arrays["key_valid"][:, None, None]
    )
    q_hat, k_hat = (take_rows(x, index) for x, index in zip((q, k), indices(arrays), strict=True))

    def weights(left: Tensor, right: Tensor, mask: Any = False) -> Tensor:
        scores = left @ right.mT / q.shape[-1] ** 0.5
        return torch.softmax(scores.masked_fill(torch.as_tensor(mask), -torch.inf), -1)

    if key == "pinv":
        return exact_inverse(arrays["U"])
    if found := re.fullmatch(r"Z(\d+)", key):
        return pseudo_inverse(arrays["U"], int(found[1]))
    if key == "full":
        all_rows = torch.arange(q.shape[2]).expand(q.shape[:3])
        return cur_attention(
            q, k, v, all_rows, all_rows, key_keep=arrays.get("key_valid"), pinv="exact"
        )
    r = weights(q_hat, k, hidden)
    return {"C": weights(q, k_hat), "U": weights(q_hat, k_hat), "R": r, "RV": r @ v}[key]


def real_only(arrays: Arrays, x: Tensor) -> Tensor:
    """Outputs of padded queries mean nothing."""
    return x * arrays["key_valid"][:, None, :, None] if "key_valid" in arrays else x


@pytest.mark.parametrize("name", golden_files("cur attention"))
def test_attention_equals_the_stored(assert_close, name):
    arrays = load_golden(name)
    for key in sorted(set(arrays) - GIVEN):
        exact = key in ("pinv", "out_exact", "full")
        if key.startswith("out"):
            expected = real_only(arrays, arrays[key])
            options = options_of(key)
            assert_close(
                real_only(arrays, run(arrays, **options)), expected, 1e-8 if exact else 1e-10
            )
            assert_close(
                real_only(arrays, oracle(arrays, **options)), expected, 1e-8 if exact else 1e-10
            )
            if not exact:
                assert_close(
                    real_only(arrays, run(arrays, torch.float32, **options)), expected, 2e-5
                )
        else:
            assert_close(part(arrays, key), arrays[key], 1e-8 if exact else 1e-12)


@pytest.mark.parametrize("name", golden_files("cur gradients"))
def test_gradients_equal_the_stored(assert_close, name):
    arrays = load_golden(name)
    given = [letter for letter in "QKV" if f"d{letter}" in arrays]
    assert set(arrays) - GIVEN == {"out", *(f"d{letter}" for letter in given)}
    steps = [
        n for n in range(1, 13) if (run(arrays, iterations=n) - arrays["out"]).abs().max() < 1e-10
    ]
    assert len(steps) == 1, "one number of iterations reproduces the output"

    followed: dict[bool, dict[str, Tensor]] = {}
    for through in (True, False):
        inputs = {letter: arrays[letter].clone().requires_grad_() for letter in "QKV"}
        out = run({**arrays, **inputs}, iterations=steps[0], through_start=through)
        grads = torch.autograd.grad((out * arrays["dO"]).sum(), list(inputs.values()))
        followed[through] = dict(zip("QKV", grads, strict=True))
    # whether the start of the inverse is followed is told by the gradients alone
    gaps = [(followed[way]["Q"] - arrays["dQ"]).abs().max() for way in (True, False)]
    through = bool(gaps[0] <= gaps[1])
    for letter in given:
        assert_close(followed[through][letter], arrays[f"d{letter}"], 1e-10)
    assert (followed[True]["Q"] - followed[False]["Q"]).abs().max() > 1e-3, "the conventions differ"


@pytest.mark.parametrize("name", golden_files("cur selection"))
def test_selections_equal_the_stored(name):
    arrays = load_golden(name)
    q, k = arrays["Q"], arrays["K"]
    for key in sorted(set(arrays) - GIVEN):
        found = SCORED.fullmatch(key)
        if found:
            selection, column, source, first = found.groups()
            chosen = {
                "source": source.replace("qk", "q+k"),
                "force_first": first == "1",
                "column": int(column or 0),
            }
            m = arrays[key].shape[-1]
        else:
            selection = {
                "step_paper": "step",
                "step_paper_full": "step_full",
                "linspace": "linspace",
            }[key]
            chosen, m = {}, len(arrays["step_paper" if key == "step_paper_full" else key])
        index, counted = select_indices(q, k, m, selection, **chosen)  # pyright: ignore[reportArgumentType]
        assert counted is None
        assert torch.equal(index, arrays[key].expand_as(index)), key


@pytest.mark.parametrize("name", golden_files("inverse"))
def test_inverses_equal_the_stored(assert_close, name):
    arrays = load_golden(name)
    for key in sorted(set(arrays) - {"U", "meta"}):
        if key == "pinv":
            assert_close(exact_inverse(arrays["U"]), arrays[key], 1e-8)
            continue
        start, number = key.rsplit("_", 1)
        assert_close(
            pseudo_inverse(arrays["U"], int(number), start=STARTS[start]), arrays[key], 1e-10
        )
        rounded = pseudo_inverse(arrays["U"].float(), int(number), start=STARTS[start])
        if int(number) <= 6:
            assert_close(rounded, arrays[key], 2e-5)
