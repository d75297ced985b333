"""The mixer contract on its awkward cases, in real training: state, extra losses on uneven
ranks, bounds, prefixes.
"""

from __future__ import annotations

import numpy as np
import pytest
from command import cli
from result_file import read_result
from small_run import digests, only_run

from subquad.record.metrics import read_records

FILE = '''
import torch
from torch import nn
from subquad.nn import MixerOutput, ParameterRule, TokenMixer
from subquad.errors import PluginError
from subquad.plugin import Facts, MixerConfig


class Stateful(TokenMixer):
    """A mean over all that was seen in training, kept in a buffer."""

    Config = MixerConfig
    facts = Facts(stateful=True, causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.register_buffer("seen", torch.zeros(site.dim))

    def forward(self, x, *, keep=None, carry=None):
        if self.training:
            with torch.no_grad():
                self.seen.lerp_(x.mean((0, 1)).to(self.seen), 0.1)
        return self.value(x).cumsum(1) / x.shape[1] + self.seen.to(x.dtype)


class Regularised(TokenMixer):
    """An extra loss, different for every sample and not in the task's; a slow parameter."""

    Config = MixerConfig
    facts = Facts(causal="always")
    loss_weights = {"size": 0.3}

    def __init__(self, config, site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.rate = nn.Parameter(torch.ones(site.dim))

    def forward(self, x, *, keep=None, carry=None):
        out = (self.value(x) * self.rate).cumsum(1)
        return MixerOutput(out, {"size": out.square().mean((1, 2))})

    def parameter_rules(self):
        return {"rate": ParameterRule(lr_scale=0.1, weight_decay=False)}


class Bound(TokenMixer):
    """One weight per position: it must be told the longest length and how many class tokens."""

    class Config(MixerConfig):
        most: int = 100

        def check(self, site):
            if site.max_len > self.most:
                raise ValueError(
                    f"most {self.most} is less than the longest sequence, {site.max_len}"
                )

    facts = Facts(max_length="site", causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.prefix = site.num_prefix_tokens
        self.weight = nn.Parameter(torch.randn(site.max_len, 1))
        self.read = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        if x.shape[1] > len(self.weight):
            raise PluginError(f"Bound: {x.shape[1]} positions, built for {len(self.weight)}")
        out = (x * self.weight[: x.shape[1]]).cumsum(1)
        if self.prefix:
            first = self.read(out[:, -1:]).expand(-1, self.prefix, -1)
            out = torch.cat([first, out[:, self.prefix :]], 1)
        else:
            out = self.read(out)
        return out


class Chained(TokenMixer):
    """Hands a summary to the next layer; the last layer has no tail for it."""

    Config = MixerConfig
    facts = Facts(causal="always")

    def __init__(self, config, site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)
        self.tail = None if site.is_last else nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        x = x if carry is None else x + carry[:, None]
        out = self.value(x).cumsum(1)
        return MixerOutput(out, carry=None if self.tail is None else self.tail(out[:, -1]))
'''
PLAIN = (
    "train.precision=fp64",
    "backbone.params.dropout=0.0",
    "backbone.params.num_layers=2",
    "train.epochs=2",
)
"""fp64 without dropout: what is left between two ways of cutting a batch is rounding."""


@pytest.fixture(autouse=True)
def mixers(tmp_path):
    (tmp_path / "mixers.py").write_text(FILE)


def curve(run, metric="loss"):
    return np.array(
        [record.metrics[metric] for record in read_records(run) if record.kind == "train"]
    )


def train(small, tmp_path, name, *settings, check=0, several=False):
    root = tmp_path / name
    done = cli(
        ["train", str(small), "--local", "--root", str(root), *settings], tmp_path, check=check
    )
    return done if check or several else only_run(root)


def test_three_uneven_ranks_follow_the_same_curves(small, tmp_path):
    """Batches of 16 are 6, 5 and 5, the last of an epoch less: every sample counts the same,
    with its extra loss.
    """
    names = ("Regularised", "Chained", "Bound")
    settings = (f"matrix.mixer=[{', '.join(f'./mixers.py:{name}' for name in names)}]", *PLAIN)
    found = []
    for workers in (1, 3):
        train(
            small, tmp_path, str(workers), *settings, f"resources.workers={workers}", several=True
        )
        found.append(sorted((tmp_path / str(workers)).glob("runs/*/*/cells/*")))
    assert [len(runs) for runs in found] == [3, 3]
    for single, three in zip(*found, strict=True):
        assert single.name == three.name
        np.testing.assert_allclose(curve(three), curve(single), rtol=0, atol=1e-9)
        tested = [read_result(run)["test"]["metrics"] for run in (three, single)]
        assert tested[0] == pytest.approx(tested[1], abs=1e-9)


@pytest.mark.parametrize("name", ["Stateful", "Regularised"])
def test_a_killed_run_goes_on_bit_for_bit(ranks, ticket, tmp_path, name):
    settings = (f"mixer={tmp_path}/mixers.py:{name}", "resources.workers=2", "train.epochs=2")
    whole, killed = ticket(*settings), ticket(*settings)
    for run, fault in ((whole, ""), (killed, "kill@step:20"), (killed, "")):
        ended = ranks.train(run, 2, fault)
        assert {process.code for process in ended} == {-9 if fault else 0}, ended[0].trace
    assert read_result(killed.folder)["attempts"] == 2
    assert digests(killed.folder) == digests(whole.folder)


def test_state_is_in_the_checkpoint_and_moves_the_result(small, tmp_path):
    import subquad

    run = train(small, tmp_path, "run", "mixer=./mixers.py:Stateful", "train.epochs=1")
    model = subquad.load(run, which="last")
    assert model.blocks[0].mixer.seen.abs().max() > 0


@pytest.mark.parametrize("head", ["last", "cls"])
def test_a_length_bound_mixer_is_told_length_and_class_tokens(small, tmp_path, head):
    import subquad

    settings = ("mixer=./mixers.py:Bound", f"backbone.params.head={head}", "train.epochs=1")
    mixer = subquad.load(train(small, tmp_path, "run", *settings)).blocks[0].mixer
    prefix = int(head == "cls")
    assert (mixer.prefix, len(mixer.weight)) == (prefix, 5 + prefix)


def test_a_bound_that_the_data_break_is_refused_before_a_folder_is_made(small, tmp_path):
    settings = ("mixer=./mixers.py:Bound", "mixer.params.most=4")
    done = train(small, tmp_path, "run", *settings, check=2)
    message = (
        "mixer.params: most 4 is less than the longest sequence, 5 (mixer "
        f"{tmp_path / 'mixers.py'}:Bound)"
    )
    assert done.stderr == f"subquad: {message}\n"
    assert not (tmp_path / "run" / "runs").exists()
