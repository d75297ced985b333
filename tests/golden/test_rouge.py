"""ROUGE of pairs of texts, as rouge-score gave it."""

from __future__ import annotations

import pytest
from golden_files import golden_files, load_golden

from subquad.rouge import rouge


@pytest.mark.ci
@pytest.mark.parametrize("name", golden_files("rouge"))
def test_precision_recall_and_f1_are_those_of_the_file(name):
    golden = load_golden(name)
    found = rouge(golden["hyp"], golden["ref"], stemmer=False)
    assert found == pytest.approx(golden["scores"].flatten(1).numpy(), abs=1e-12)
