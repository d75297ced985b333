"""Wheels of somebody else's plugins, written as a build tool writes them, and installed nowhere."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

MEAN = """
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Mean(TokenMixer):
    '''The mean of all real tokens, added to each.'''

    class Config(MixerConfig):
        pass

    facts = Facts(padding_invariant=True, complexity="L")
    paper = "nobody, 2026"

    def __init__(self, config, site):
        super().__init__()
        self.value = torch.nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        weight = torch.ones_like(x[..., :1]) if keep is None else keep.unsqueeze(-1).to(x.dtype)
        total = (self.value(x) * weight).sum(1, keepdim=True)
        return x + total / weight.sum(1, keepdim=True).clamp(min=1)
"""


def wheel(
    folder: Path,
    name: str = "sent-mean",
    entries: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    *,
    version: str = "1.0",
    tag: str = "py3-none-any",
    python: str = ">=3.11",
) -> Path:
    """Write a wheel that offers mixers, by default one called `sent-mean`."""
    base = f"{name.replace('-', '_')}-{version}"
    rows = "".join(
        f"{key} = {target}\n" for key, target in (entries or {name: "sent_mean:Mean"}).items()
    )
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {python}\n"
    )
    built = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
    content = {
        **(files or {"sent_mean.py": MEAN}),
        f"{base}.dist-info/METADATA": metadata,
        f"{base}.dist-info/WHEEL": built,
        f"{base}.dist-info/entry_points.txt": f"[subquad.mixers]\n{rows}",
    }
    record = "".join(
        f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items()
    )
    path = folder / f"{base}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for inner, text in {**content, f"{base}.dist-info/RECORD": record}.items():
            packed.writestr(inner, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
