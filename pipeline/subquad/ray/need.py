"""Whether Ray can be used here, told without importing it: its settings are read when it is."""

from __future__ import annotations

from importlib.util import find_spec

from subquad.errors import UserError

_NEEDED = ("ray", "fsspec", "pandas", "pyarrow", "requests")
"""Ray, and what `ray.train` and `ray.tune` import of other packages."""


def require_ray() -> None:
    """Refuse to go through Ray where it is not installed.

    Raises:
        UserError: it is not, or something that it needs.
    """
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if lacking:
        what = "Ray is not installed" if "ray" in lacking else f"Ray needs {', '.join(lacking)}"
        raise UserError(f"{what}: pip install 'subquad[ray]', or go without Ray by --local")
