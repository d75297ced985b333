"""Every 1-edit typo of every key, the built-in plugins' parameters included, leads back to that
key.
"""

from __future__ import annotations

import string

import pytest

from subquad.experiment.key_names import known_keys, suggest_key
from subquad.experiment.schema import Experiment
from subquad.experiment.settings import dotted
from subquad.registry import find_plugins, resolve

LETTERS = string.ascii_lowercase + "_0"


def every_key():
    """The known keys of one experiment for each built-in plugin."""
    known = known_keys(Experiment)
    for kind in ("dataset", "task", "backbone", "mixer"):
        for found in find_plugins(kind):
            if found.distribution == "subquad":
                yield {
                    **known,
                    **known_keys(resolve(kind, found.name).plugin.config, (kind, "params")),
                }


def edits(key):
    """All strings one deletion, swap of neighbours, substitution or insertion away."""
    splits = [(key[:i], key[i:]) for i in range(len(key) + 1)]
    found = {a + b[1:] for a, b in splits if b}
    found |= {a + b[1] + b[0] + b[2:] for a, b in splits if len(b) > 1}
    found |= {a + letter + b[1:] for a, b in splits if b for letter in LETTERS}
    found |= {a + letter + b for a, b in splits for letter in LETTERS}
    return found - {key, ""}


def outcomes():
    """(typo, key, suggestion) of every typo that is not itself a key beside it."""
    done = set()
    for known in every_key():
        for parent, siblings in known.items():
            if (parent, siblings) in done:
                continue
            done.add((parent, siblings))
            for key in siblings:
                for typo in edits(key) - set(siblings):
                    yield (*parent, typo), key, suggest_key((*parent, typo), known)


@pytest.mark.ci
def test_at_least_95_percent_of_typos_get_the_right_suggestion(capsys):
    total = right = 0
    for _, key, suggestion in outcomes():
        total += 1
        right += suggestion == f"; did you mean {key!r}?"
    with capsys.disabled():
        print(f"\n{right} of {total} typos ({right / total:.2%}) get the right suggestion")
    assert total > 20_000
    assert right / total >= 0.95


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("trian",), "; did you mean 'train'?"),
        (("lr",), "; it belongs at train.lr"),
        (("train", "workers"), "; it belongs at resources.workers"),
        (("dataset", "problem"), "; it belongs at dataset.params.problem"),
        (("name", "x"), "; it takes none"),
        (("train", "Learning-Rate"), "; did you mean 'lr'?"),
        (("learning_rate",), "; did you mean train.lr?"),
        (("train", "bs"), "; did you mean 'batch_size'?"),
        (("model",), "; did you mean 'backbone'?"),
        (("d_model",), "; did you mean backbone.params.dim?"),
        (
            ("resources", "zzzzzzzz"),
            "; there is workers, cpus_per_worker, gpus_per_worker, strategy, "
            "max_failures, hang_timeout_s, wait_s, storage",
        ),
    ],
)
def test_suggestions(path, said):
    known = known_keys(Experiment)
    known |= known_keys(resolve("dataset", "uea").plugin.config, ("dataset", "params"))
    known |= known_keys(resolve("backbone", "encoder").plugin.config, ("backbone", "params"))
    assert suggest_key(path, known) == said


def test_typos_reach_the_user_with_their_line(refused, base_text):
    """End to end: two neighbours swapped in each key of the train section."""
    keys = [key for key in known_keys(Experiment)[("train",)] if len(key) > 2 and key[1] != key[2]]
    assert len(keys) > 20
    for key in keys:
        typo = key[0] + key[2] + key[1] + key[3:]
        message = refused(base_text + f"  {typo}: 1\n")
        assert (
            message == f"exp.yaml:10: {dotted(('train', typo))}: unknown key; did you mean {key!r}?"
        )
