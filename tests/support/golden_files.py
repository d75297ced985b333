"""Golden arrays: those of tests/golden/data, and of the folders that SUBQUAD_GOLDEN lists
besides.

What a file is about is told by its arrays, never by its name. In a test, a file goes by its name
without ending, or by its path where that name is taken.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from subquad.plugin import Site

OWN = Path(__file__).resolve().parents[1] / "golden" / "data"

KINDS: dict[str, str] = {
    "agf basis": "pairs x official",
    "agf core": "preU preV preS val theta out64",
    "agf filter": "s theta a b filter_fixI*",
    "agf layer": "x W_U W_V W_S W_val W_out theta out64",
    "bigbird": "x y rand w.query.weight w.key.weight w.value.weight",
    "cosformer": "x y w.q_proj.weight w.k_proj.weight w.v_proj.weight w.out_proj.weight",
    "cur attention": "Q K V idx|q_idx",
    "cur gradients": "Q K V idx|q_idx dO out",
    "cur selection": "Q K sum_*|abs_*|embed*|step_*|linspace",
    "dba": "x y px pc w.pq_proj.weight w.pk_proj.weight w.q_len_proj.weight w.q_proj.weight",
    "efficient": "x y w.queries.weight w.keys.weight w.reprojection.weight",
    "favor": "q k omega phi_q phi_k",
    "flow layer": "x out sd/query_projection.weight sd/out_projection.weight",
    "flowformer": "x y w.query_projection.weight w.out_projection.weight",
    "fourier transforms": "x re_seq|re_2d|hartley|causal_N*|causal_c*|learned|learned_causal",
    "fnet": "x y",
    "gfnet": "x y w.complex_weight",
    "hyena": "x y filter w.in_proj.weight w.short_filter.weight w.filter_fn.implicit_filter.*",
    "inverse": "U pinv|*_[0-9]*",
    "linear": "q k v y key_len",
    "linear as published": "q k v y",
    "linformer": "x y w.proj_k w.to_q.weight w.to_k.weight w.to_out.weight",
    "linformer core": "q k v y E|w.E",
    "local": "q k v mask y_blk|y_exact|y_onlyblock",
    "longformer": "x attn_* y_* w.query.weight w.query_global.weight",
    "lra model": "*ids* *mask* sd/model.transformer_0.*",
    "luna": "x y p pc w.pq_proj.weight w.q_proj.weight w.out_proj.weight",
    "m2": "x y w.in_linear.weight w.short_filter.weight w.filter_fn.implicit_filter.*",
    "mamba": "x y w.A_log w.in_proj.weight w.x_proj.weight",
    "masks": "sparse_*|longformer_w*",
    "mdfwa layer": "X b LN_Y|out F_F|F_W",
    "mega average": "x y w.delta w.alpha w.beta w.gamma w.omega",
    "mega layer": "x y w.mx_proj.weight w.v_proj.weight w.move.gamma",
    "nystrom": "q k v y pinv_in pinv_out",
    "nystrom layer": "x y w.query.weight w.key.weight w.value.weight w.conv.weight",
    "nystrom library": "x y_allmask pinv_in w.to_qkv.weight w.res_conv.weight",
    "performer": "q k v y projection",
    "primal": "x y escore rscore w.We w.Wr w.W_q.weight",
    "primal series": "x out escore rscore sd/We sd/Wr sd/query_projection.weight",
    "radam": "A p0 traj",
    "reformer": "x y rot w.query_key.weight w.value.weight",
    "rouge": "hyp ref scores",
    "s4 block": "x y w.layer.kernel.A_real w.layer.kernel.C",
    "s4d": "x y w.kernel.log_A_real w.kernel.C",
    "s5": "x y w.seq.Lambda w.seq.B w.seq.C",
    "selective scan": "u delta A B C y",
    "sfpc bound": "*_k[0-9]*_c *_k[0-9]*_op *_k[0-9]*_sup",
    "sfpc circulant": "X f c C out",
    "sfpc laplacian": "X c|ch T_*",
    "sfpc shift": "X c M out",
    "singularformer": "x y w.pseudoAttn.weight w.WQ.weight w.WO.weight",
    "soft": "x y newton_in w.attn.Qlandmark_op.weight",
    "softmax": "q k v y",
    "uea loader": "train_ids test_ids X Xt mean std",
    "uea model": "X mask logits64 sd/project_inp.weight sd/encoder.attn_layers.0.*",
    "wavelet bands": "x *_a[0-9]* *_d[0-9]*",
    "wavelet coefficients": "x[0-9]* N[0-9]*_a[0-9]* N[0-9]*_d[0-9]*",
    "wavelet mix": "x alpha *_all|*_details_only",
    "yoso": "q k v y conv_w grad_out",
}
"""Arrays that a file of each kind has, and may have more: `a|b` is either, `*` any letters. Where
several kinds fit, it is the one of which most arrays are there.
"""

SAID = {"fnet": "FNet|Fourier", "linear as published": "linear attention", "softmax": "softmax"}
"""What the description `meta` says of kinds that arrays alone do not tell apart."""


class UnknownFile(Exception):
    """A file that no test can read; the message is one line."""


def paths() -> dict[str, Path]:
    """Every golden file, by the name it goes by."""
    found: dict[str, Path] = {}
    listed = filter(None, os.environ.get("SUBQUAD_GOLDEN", "").split(os.pathsep))
    for folder in (OWN, *map(Path, listed)):
        for path in sorted(folder.rglob("*.npz")):
            found[str(path) if path.stem in found else path.stem] = path
    return found


def golden_files(*kinds: str) -> list[str]:
    """Names of the files of some kinds. Those of no kind fail in a test of their own."""
    assert set(kinds) <= set(KINDS)
    return [name for name, path in sorted(paths().items()) if _kind_if_known(path) in kinds]


def kind_of(path: Path) -> str:
    """The kind of a file.

    Raises:
        UnknownFile: it is no archive of arrays, or of no kind.
    """
    try:
        with np.load(path) as stored:
            names = stored.files
            description = str(stored["meta"]) if "meta" in names else ""
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as reason:
        raise UnknownFile(f"{path}: no archive of arrays: {reason}") from None
    sizes = {
        kind: len(words.split())
        for kind, words in KINDS.items()
        if all(_has(names, word) for word in words.split())
        and re.search(SAID.get(kind, ""), description)
    }
    if not sizes:
        raise UnknownFile(
            f"{path}: of no known kind, with the arrays {', '.join(sorted(names))}; known are "
            f"{', '.join(sorted(KINDS))} (tests/support/golden_files.py says what each has)"
        )
    return max(sizes, key=sizes.__getitem__)


@cache
def _kind_if_known(path: Path) -> str | None:
    """Looked up once: files are not written while tests are collected."""
    try:
        return kind_of(path)
    except UnknownFile:
        return None


def _has(names: Collection[str], word: str) -> bool:
    for pattern in word.split("|"):
        if pattern in names or any(fnmatchcase(name, pattern) for name in names):
            return True
    return False


def arrays_of(name: str) -> list[str]:
    """Names of the arrays of a file."""
    with np.load(paths()[name]) as stored:
        return stored.files


def load_golden(name: str) -> dict[str, Any]:
    """Numeric arrays of a golden file as tensors; the few strings in it, and lists of them, as
    they are.
    """
    with np.load(paths()[name]) as stored:
        arrays = {key: stored[key] for key in stored.files}
    return {
        key: torch.from_numpy(value) if value.dtype.kind != "U" else value.tolist()
        for key, value in arrays.items()
    }


def said(arrays: dict[str, Any], pattern: str, default: int | None = None) -> int:
    """A number that the file's description gives; the arrays do not have it."""
    found = re.search(pattern, str(arrays.get("meta")))
    assert found or default is not None, f"the description gives no number for {pattern!r}"
    given = default if found is None else next(filter(None, found.groups()))
    return int(given or 0)


def heads_in(arrays: dict[str, Any]) -> int:
    """How many heads a file's layer has; 2 where it does not say."""
    for name in ("heads", "num_heads"):
        if name in arrays:
            return int(arrays[name])
    if "q" in arrays:
        return arrays["q"].shape[1]
    return said(arrays, r"heads ?= ?(\d+)|(\d+) heads", 2)


def site_of(arrays: dict[str, Any], **more: Any) -> Site:
    """Where a file's layer stands: of its width, its heads and its length, of q (B, H, L, E) or
    of x (B, L, D).
    """
    if "q" in arrays:
        _, heads, length, width = arrays["q"].shape
        return Site(dim=heads * width, num_heads=heads, max_len=length, **more)
    length, dim = arrays["x"].shape[1:]
    return Site(dim=dim, num_heads=heads_in(arrays), max_len=length, **more)
