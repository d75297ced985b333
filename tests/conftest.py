"""For all tests: bytecode is cached, and Hypothesis draws the same examples every time, without a time limit.

Bytecode is cached here and in every process that a test starts, also where the environment switches that off. Without
a cache each of them compiles torch, Ray and MLflow anew: most of what a short test would cost.
"""

import os
import sys

from hypothesis import settings

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same")
