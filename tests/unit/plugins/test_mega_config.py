"""Parameters of Mega and MegaCUR: sizes, and what is claimed for which settings."""

from __future__ import annotations

from subquad.plugin import Site
from subquad_plugins import cur, mega, megacur
from subquad_plugins.mega.mixer import Mega


def test_the_size_of_a_table():
    assert Mega(mega.Config(bias="rotary"), Site(dim=8)).bias.limit is None
    assert Mega(mega.Config(chunk_size=3), Site(dim=8, max_len=10)).bias.limit == 3
    assert Mega(mega.Config(), Site(dim=8, max_len=10)).bias.limit == 10


def test_default_widths_are_those_of_the_published_text_model():
    assert mega.Config().widths(128) == (64, 256)
    assert mega.Config().widths(18) == (10, 36)
    assert mega.Config(attention_dim=96, value_dim=320).widths(160) == (96, 320)


def test_cur_parameters_are_those_of_the_cur_plugin():
    shared = set(megacur.Config.model_fields) - set(mega.Config.model_fields)
    assert shared == set(cur.Config.model_fields) - {"bias", "qk_norm", "rotary", "function"}
    for name in shared:
        ours, theirs = megacur.Config.model_fields[name], cur.Config.model_fields[name]
        assert (ours.annotation, ours.default, ours.metadata) == (
            theirs.annotation,
            theirs.default,
            theirs.metadata,
        )
