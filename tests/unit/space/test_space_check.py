"""Spaces held against an experiment: what is refused, with the whole message, and what is left
out.
"""

from __future__ import annotations

import pytest

from subquad.errors import ConfigError
from subquad.experiment import load_study
from subquad.experiment.run import laid
from subquad.plugin import Config, MixerConfig, MixerPlugin, Range, param
from subquad.registry import Found, Resolved, resolve
from subquad.space import auto_space, check_space

P = "mixer.params"
BASIS = f"{P}.basis: {{choice: [jacobi, legendre]}}"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([f"{P}.ordr: {{int: [2, 4]}}"], f"2: {P}.ordr: unknown key; did you mean 'order'?"),
        (
            ["mixer.order: {int: [2, 4]}"],
            "2: mixer.order: unknown key; it belongs at mixer.params.order",
        ),
        (["lr: {choice: [1]}"], "2: lr: unknown key; it belongs at train.lr"),
        (
            ["train.learning_rate: {choice: [1]}"],
            "2: train.learning_rate: unknown key; did you mean 'lr'?",
        ),
        (
            [f"{P}.order.deep: {{choice: [1]}}"],
            f"2: {P}.order: got a mapping, must be a whole number >= 0 and <= 32",
        ),
        (
            [f"{P}.order: {{int: [2, 40]}}"],
            f"2: {P}.order: got 40, must be a whole number >= 0 and <= 32",
        ),
        (
            [f"{P}.order: {{choice: [2, x]}}"],
            f"2: {P}.order: got 'x', must be a whole number >= 0 and <= 32",
        ),
        (
            [f"{P}.order: {{uniform: [2, 10]}}"],
            f"2: {P}.order: uniform draws fractions, must be a whole number >= 0 "
            "and <= 32; use int or choice",
        ),
        (
            [f"{P}.basis: {{choice: [jacobi, fourier]}}"],
            f"2: {P}.basis: got 'fourier', must be one of jacobi, legendre, chebyshev, monomial",
        ),
        (["train.lr: {uniform: [0, 1]}"], "2: train.lr: got 0.0, must be a number > 0"),
        (
            ["train.seed: {int: [0, 9]}"],
            "2: train.seed: cannot be searched: seeds are repeated, not chosen; "
            "list them in the study's matrix",
        ),
        (
            ["protocol: {choice: [paper]}"],
            "2: protocol: cannot be searched: it says how a run is measured",
        ),
        (
            ["resources.workers: {int: [1, 2]}"],
            "2: resources.workers: cannot be searched: it decides no numbers",
        ),
        (
            ["tracking.uri: {choice: [x]}"],
            "2: tracking.uri: cannot be searched: it decides no numbers",
        ),
        (
            ["train.log_every: {int: [1, 9]}"],
            "2: train.log_every: cannot be searched: it decides no numbers",
        ),
        (
            ["train: {choice: [1]}"],
            "2: train: cannot be searched: it holds several settings; name one of them",
        ),
        (
            ["mixer.name: {choice: [agf]}"],
            "2: mixer.name: cannot be searched: plugins are compared, not "
            "searched; list them in the study's matrix",
        ),
        (
            ["mixer.params: {choice: [1]}"],
            "2: mixer.params: cannot be searched: it holds several settings; name one of them",
        ),
        (
            [f"{P}.jacobi_a: {{choice: [1], when: {{{P}.bases: jacobi}}}}"],
            f"2: {P}.jacobi_a.when.{P}.bases: unknown key; did you mean 'basis'?",
        ),
        (
            [f"{P}.jacobi_a: {{choice: [1], when: {{{P}.basis: jakobi}}}}"],
            f"2: {P}.jacobi_a.when.{P}.basis: got 'jakobi', must be one of jacobi, "
            "legendre, chebyshev, monomial; did you mean 'jacobi'?",
        ),
        (
            [f"{P}.jacobi_a: {{choice: [1], when: {{{P}.jacobi_a: 1}}}}"],
            f"2: {P}.jacobi_a: when names the setting itself",
        ),
        (
            [f"{P}.jacobi_a: {{choice: [1], when: {{{P}.basis: legendre}}}}"],
            f"2: {P}.jacobi_a: is never searched: needs {P}.basis legendre, and "
            "the experiment has 'jacobi'; set "
            f"{P}.basis there, or leave this one out",
        ),
        (
            [BASIS, f"{P}.jacobi_a: {{choice: [1], when: {{{P}.basis: chebyshev}}}}"],
            f"3: {P}.jacobi_a: is never searched: needs {P}.basis chebyshev, which "
            "./s.yaml:2 does not try",
        ),
        (
            [
                BASIS,
                f"{P}.order: {{int: [2, 4], when: {{{P}.basis: jacobi}}}}",
                f"{P}.jacobi_a: {{choice: [1], when: {{{P}.basis: legendre, {P}.order: 2}}}}",
            ],
            f"4: {P}.jacobi_a: is never searched: its conditions, and those of "
            "what they name, cannot hold together",
        ),
        (
            [
                f"{P}.order: {{int: [2, 4], when: {{{P}.jacobi_a: 1}}}}",
                f"{P}.jacobi_a: {{choice: [1], when: {{{P}.order: 2}}}}",
            ],
            f"2: {P}.order: when goes in a circle ({P}.order -> {P}.jacobi_a -> {P}.order)",
        ),
    ],
)
def test_a_space_that_cannot_work(refused, lines, message):
    text = "".join(f"  {line}\n" for line in lines)
    assert refused(f"dims:\n{text}") == message


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (
            f"less: [{P}.order, train.lrr]",
            "4: constraints.less: train.lrr: unknown key; did you mean 'lr'?",
        ),
        (
            "less: [train.epochs, train.batch_size]",
            "4: constraints.less: none of train.epochs, train.batch_size is searched; leave it out",
        ),
        (
            f"less: [{P}.order, train.steps]",
            "4: constraints.less: train.steps is null, must be a number",
        ),
        (
            f"less: [{P}.order, {P}.form]",
            f"4: constraints.less: {P}.form is 'svd', must be a number",
        ),
    ],
)
def test_a_constraint_that_cannot_work(refused, constraint, message):
    assert (
        refused(f"dims:\n  {P}.order: {{int: [2, 4]}}\nconstraints:\n  - {constraint}\n") == message
    )


def test_constraints_that_leave_nothing_are_refused_before_anything_starts(space):
    text = (
        f"dims: {{{P}.order: {{int: [20, 30]}}}}\nconstraints: [{{less: [{P}.order, "
        f"train.batch_size]}}]"
    )
    message = (
        r"^space s: none of 1,000 random points keeps its constraints \(less: \[.*\] "
        r"at \./s\.yaml:2\)"
    )
    with pytest.raises(ConfigError, match=message):
        space(text)


def test_a_path_and_a_data_seed_are_not_searched(refused, space):
    assert refused("dims:\n  dataset.params.seed: {int: [0, 3]}\n").startswith(
        "2: dataset.params.seed: cannot be"
    )
    text = "dims:\n  dataset.params.path: {choice: [a, b]}\n"
    assert refused(text, "dataset=lra-text").startswith(
        "2: dataset.params.path: cannot be searched: it says where"
    )


def test_a_validator_of_one_field_is_asked_and_those_of_several_are_not(refused, space):
    """How parameters fit together another value may mend; a wavelet that does not exist nothing
    can.
    """
    text = "dims:\n  mixer.params.wavelet: {choice: [haar, har]}\n"
    assert refused(text, mixer="mdfwa").startswith("2: mixer.params.wavelet: ")
    learned = "mixer.params.frequencies=learned"
    assert space("dims: {mixer.params.terms: {int: [4, 8]}}", learned, mixer="mdfwa").size() == 5
    assert space("dims: {train.steps: {choice: [5, 10]}}").size() == 2


FOR_AGF = (
    f"mixer: agf\ndims:\n  {P}.order: {{int: [2, 4]}}\n  train.lr: {{loguniform: [1e-4, 1e-2]}}\n"
)


def test_a_space_for_another_mixer_is_refused_or_its_keys_are_left_out(refused, space):
    assert refused(FOR_AGF, mixer="softmax") == (
        "3: is for mixer 'agf', and the experiment has 'softmax'; use another space, or mixer=agf"
    )
    left = space(FOR_AGF, mixer="softmax", drop=True)
    assert [dim.path for dim in left.dims] == ["train.lr"]
    assert [dim.path for dim in left.left_out] == [f"{P}.order"]


def test_what_cannot_be_searched_here_is_left_out_with_all_that_hangs_on_it(space):
    text = f"""\
dims:
  {P}.order: {{int: [2, 4]}}
  {P}.basis: {{choice: [jacobi, legendre], when: {{{P}.form: svd}}}}
  {P}.jacobi_a: {{choice: [1.0, 2.0]}}
  train.lr: {{choice: [0.1, 0.2]}}
"""
    assert [dim.path for dim in space(text, f"{P}.form=uv", drop=True).dims] == ["train.lr"]
    assert space(text).dimensions == 4


def test_a_condition_may_hold_by_a_default_alone(space, refused):
    """jacobi_a is 1, its default, where the basis has none."""
    basis = "[jacobi, legendre]"
    text = f"""\
dims:
  {P}.basis: {{choice: BASIS}}
  {P}.jacobi_a: {{choice: [2.0], when: {{{P}.basis: jacobi}}}}
  {P}.order: {{int: [2, 4], when: {{{P}.jacobi_a: 1.0}}}}
"""
    assert space(text.replace("BASIS", basis)).size() == 1 + 3
    assert refused(text.replace("BASIS", "[jacobi]")) == (
        f"4: {P}.order: is never searched: needs {P}.jacobi_a 1.0, which ./s.yaml:3 does not try"
    )


def test_a_space_of_which_nothing_is_left_is_refused(space):
    text = f"mixer: agf\ndims: {{{P}.order: {{int: [2, 4]}}}}"
    with pytest.raises(
        ConfigError, match=r"^space s: nothing of it can be searched in this experiment$"
    ):
        space(text, mixer="softmax", drop=True)


class Sloppy(MixerConfig):
    """Fields whose own searches are wrong."""

    order: int = param(1, meaning="a number", ge=1, le=4, search=[1, 9])


class Logged(MixerConfig):
    scale: float = param(1.0, meaning="a number", search=Range(0.0, 1.0, log=True))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            Sloppy,
            r"space auto \(mixer sloppy\): mixer\.params\.order: got 9, must be a "
            r"whole number >= 1 and <= 4",
        ),
        (
            Logged,
            r"space auto \(mixer sloppy\): mixer\.params\.scale\.loguniform: starts at 0, "
            r"which has no logarithm; begin above 0, or use uniform, or a choice with 0 in it",
        ),
    ],
)
def test_a_search_that_a_plugin_got_wrong_is_blamed_on_it(tmp_path, config: type[Config], message):
    plugin = MixerPlugin(config=config, build="fakes:Nothing", summary="a fake")

    def find(kind, name, *, base=None):
        fake = Resolved(plugin, Found("mixer", "sloppy", "fakes", "1.0", "fakes:PLUGIN"))
        return fake if kind == "mixer" else resolve(kind, name, base=base)

    text = "dataset: recall\ntask: classification\nbackbone: encoder\nmixer: sloppy\n"
    (tmp_path / "e.yaml").write_text(text)
    experiment = load_study("e.yaml", cwd=tmp_path, resolve=find).runs[0]
    with pytest.raises(ConfigError, match=f"^{message}$"):
        check_space(auto_space(experiment), experiment)


SEVERAL = ("backbone.params.num_layers=4", "mixers=[{name: softmax, layers: 0..2}]")


def test_layers_and_parameters_of_one_of_several_mixers_are_searched(space, experiment):
    text = (
        "dims:\n  mixers.0.layers: {choice: [0, 0..1, 0..2]}\n"
        "  mixers.0.params.dropout: {uniform: [0.0, 0.5]}\n"
    )
    found = space(text, *SEVERAL)
    run = experiment("agf", *SEVERAL)
    drawn = [laid(run, found.draw(0, number)) for number in range(20)]
    layers = {made.experiment.mixers[0].layers for made in drawn}
    assert layers == {(0,), ("0..1",), ("0..2",)}
    assert len({made.mixers[0][1].dropout for made in drawn}) == 20  # pyright: ignore


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "mixers.1.layers: {choice: [0]}",
            "2: mixers[1]: there is no such entry, the list has 1",
        ),
        (
            "mixers.0.params.dropuot: {choice: [0.1]}",
            "2: mixers[0].params.dropuot: unknown key; did you mean 'dropout'?",
        ),
        (
            "mixers.0.params.dropout: {choice: [2.0]}",
            "2: mixers[0].params.dropout: got 2.0, must be a number >= 0 and < 1",
        ),
        (
            "mixers.0.layers: {choice: [0..x]}",
            "2: mixers[0].layers: got '0..x', must be a list of at least 1 values, each a whole "
            "number or text of two layers, as in -3..-1 or null",
        ),
        (
            "mixers.0.name: {choice: [agf]}",
            "2: mixers[0].name: cannot be searched: plugins are compared, not "
            "searched; list them in the study's matrix",
        ),
        (
            "mixers.0.role: {choice: [self]}",
            "2: mixers[0].role: cannot be searched: it says which sites there are",
        ),
        (
            "mixers: {choice: [1]}",
            "2: mixers: cannot be searched: it holds several settings; name one of them",
        ),
    ],
)
def test_a_space_of_several_mixers_that_cannot_work(refused, line, message):
    assert refused(f"dims:\n  {line}\n", *SEVERAL) == message
