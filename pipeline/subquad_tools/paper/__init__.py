"""A paper's tables and figures from its file: which runs each cell needs, what is there, what is
measured of models beside, and files with all of it that can be verified.

Stands above sessions and reports.
"""

from typing import Literal

Size = Literal["full", "small", "smoke"]
"""Of a study of a paper."""
PUBLISHED = "published"
"""In place of a size: the printed numbers alone."""
