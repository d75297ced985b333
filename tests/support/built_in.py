"""The built-in mixers, in every way that they are built, and what they say of themselves."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from subquad.registry import find_plugins, resolve
from subquad_check import CheckSubject
from subquad_check.subject import check_subjects
from subquad_plugins.about import About, Kernel


@cache
def abouts() -> dict[str, About]:
    """What the file `about.py` of each that is installed says."""
    return {
        found.name: import_module(f"{found.target.partition(':')[0]}.about").ABOUT
        for found in find_plugins("mixer")
        if found.is_built_in
    }


def kernels() -> dict[str, Kernel]:
    """Their kernels in Triton, by operation."""
    return {
        kernel.operation.name: kernel for about in abouts().values() for kernel in about.kernels
    }


@cache
def built(name: str) -> dict[str, CheckSubject]:
    """The ways one mixer is built."""
    subjects = check_subjects(resolve("mixer", f"subquad:{name}"))
    return {str(subject): subject for subject in subjects}


@cache
def all_subjects() -> dict[str, CheckSubject]:
    """All ways, and with the further settings, each by a name of its own."""
    found = {f"{name}: {way}": subject for name in abouts() for way, subject in built(name).items()}
    for name, about in abouts().items():
        for params in about.further:
            for subject in check_subjects(resolve("mixer", f"subquad:{name}"), params):
                found[f"{name}{', causal' * subject.causal}: {params}"] = subject
    return found
