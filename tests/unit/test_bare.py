"""Modules of torch that know nothing of subquad, as mixers."""

import re

import pytest
import torch
from torch import nn

from subquad.cli.main import main
from subquad.errors import UserError
from subquad.nn import MixerOutput
from subquad.nn.bare import bare_mixer
from subquad.plugin import Facts, Site
from subquad.registry import make_mixer, resolve
from subquad_check import certify

LAYERS = """
import torch
from torch import nn
from torch.nn import GRU, LSTM, MultiheadAttention, TransformerEncoderLayer
from subquad.plugin import Facts


class Mean(nn.Module):
    "Mean of all tokens so far."

    def __init__(self, dim, gate=0.5):
        super().__init__()
        self.value = nn.Linear(dim, dim)
        self.gate = gate

    def forward(self, x):
        count = torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device)
        return x + self.gate * self.value(x).cumsum(1) / count[:, None]


class Claimed(Mean):
    facts = Facts(causal="always", complexity="L")


class Leaky(Claimed):
    def forward(self, x):
        return super().forward(x) + 1e-6 * x.mean(1, keepdim=True)


class Shaped(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        return x.mean(1)


class Sized(Shaped):
    def __init__(self, dim, kernel):
        super().__init__(dim)


class Long(Shaped):
    def __init__(self, dim, max_len):
        super().__init__(dim)


class Nameless(Shaped):
    def __init__(self, d):
        super().__init__(d)


class Two(Shaped):
    def forward(self, x, context, keep):
        return x


class Words(Shaped):
    def forward(self, x):
        return {"out": x}


class Raising(Shaped):
    def forward(self, x):
        raise ValueError("only lengths of 48")
"""
D = 8
H = 2
X = torch.randn(2, 6, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
KEEP = torch.arange(6) < torch.tensor([[6], [4]])


@pytest.fixture
def layers(tmp_path, monkeypatch):
    (tmp_path / "layers.py").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)


def built(cls, config=None, **site):
    mixer = bare_mixer(cls)
    settings = mixer.Config(**(config or {}))
    return mixer(settings, Site(dim=D, num_heads=H, **site)).double().eval()


def by_hand(name, x, keep):
    """torch's own layers, called as their pages say."""
    module = {
        "GRU": lambda: nn.GRU(D, D, batch_first=True),
        "LSTM": lambda: nn.LSTM(D, D, batch_first=True),
        "MultiheadAttention": lambda: nn.MultiheadAttention(D, H, batch_first=True),
        "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(D, H, batch_first=True),
    }[name]()
    module = module.double().eval()
    if name in ("GRU", "LSTM"):
        return module, lambda: module(x)[0]
    if name == "MultiheadAttention":
        return module, lambda: module(x, x, x, key_padding_mask=~keep)[0]
    return module, lambda: module(x, src_key_padding_mask=~keep)


@pytest.mark.parametrize("name", ["GRU", "LSTM", "MultiheadAttention", "TransformerEncoderLayer"])
def test_a_layer_of_torch_gives_what_it_gives_by_hand(name, layers):
    resolved = resolve("mixer", f"./layers.py:{name}")
    mixer = make_mixer(resolved, resolved.plugin.config(), Site(dim=D, num_heads=H))
    mixer = mixer.double().eval()
    module, call = by_hand(name, X, KEEP)
    module.load_state_dict(mixer.module.state_dict())
    with torch.no_grad():
        got, expected = mixer(X, keep=KEEP), call()
    assert (got - expected)[KEEP].abs().max() <= 1e-12


@pytest.mark.parametrize("name", ["keep", "mask", "attention_mask", "input_mask", "keep_mask"])
@pytest.mark.parametrize("needed", [False, True])
def test_a_mask_of_real_tokens_is_passed_by_its_name(name, needed):
    default = "" if needed else "=None"
    mixer = built(
        module(f"x, {name}{default}", f"x if {name} is None else x * {name}[..., None]", init="dim")
    )
    assert torch.equal(mixer(X, keep=KEEP), X * KEEP[..., None])
    assert torch.equal(mixer(X), X)


@pytest.mark.parametrize("name", ["key_padding_mask", "src_key_padding_mask", "padding_mask"])
def test_a_mask_of_padding_is_passed_inverted(name):
    mixer = built(module(f"x, {name}=None", f"x.masked_fill({name}[..., None], 0)", init="dim"))
    assert torch.equal(mixer(X, keep=KEEP), X * KEEP[..., None])
    empty = torch.stack([KEEP[0], torch.zeros(6, dtype=torch.bool)])
    assert torch.equal(mixer(X, keep=empty), X)  # nothing is masked in a sample without tokens


def module(parameters, result, init):
    """A class of one expression."""
    space = {"nn": nn, "MixerOutput": MixerOutput}
    exec(
        f"class Made(nn.Module):\n"
        f"    def __init__(self, {init}):\n"
        f"        super().__init__()\n"
        f"        self.given = dict(locals())\n"
        f"    def forward(self, {parameters}):\n"
        f"        return {result}\n",
        space,
    )
    return space["Made"]


@pytest.mark.parametrize(
    ("width", "heads", "length"),
    [
        ("dim", "num_heads", "max_len"),
        ("d_model", "nhead", "max_length"),
        ("embed_dim", "heads", "max_seq_len"),
        ("hidden_size", "n_heads", "seq_len"),
    ],
)
def test_a_constructor_is_given_what_it_names(width, heads, length):
    init = f"{width}, {heads}=8, {length}=99, causal=True, batch_first=False"
    given = built(module("x", "x", init), max_len=6).module.given
    assert (given[width], given[heads], given[length]) == (D, H, 6)
    assert (given["causal"], given["batch_first"]) == (False, True)


def test_two_widths_without_defaults_are_both_given():
    given = built(module("x", "x", "input_size, hidden_size, width=3")).module.given
    assert (given["input_size"], given["hidden_size"], given["width"]) == (D, D, 3)


def test_queries_keys_and_values_are_the_tokens():
    mixer = built(module("query, key, value", "(query + key + value, None)", "dim"))
    assert torch.equal(mixer(X), X + X + X)


def test_a_full_output_is_handed_on():
    mixer = built(module("x", "MixerOutput(x, {'size': x.sum((1, 2))})", "dim"))
    assert torch.equal(mixer(X).losses["size"], X.sum((1, 2)))


def test_other_numbers_words_and_switches_are_parameters(layers):
    plugin = resolve("mixer", "./layers.py:Mean").plugin
    assert plugin.config(gate=2).gate == 2
    cls = module("x", "x", "dim, rank=4, rate=0.1, how='a', on=True, size=None, net=nn.Linear")
    config = bare_mixer(cls).Config
    assert list(config.model_fields) == ["rank", "rate", "how", "on", "size"]
    assert built(cls, {"size": 3}).module.given["size"] == 3
    with pytest.raises(ValueError, match="on"):
        config(on=3)


def test_without_facts_nothing_is_claimed(layers):
    plugin = resolve("mixer", "./layers.py:Mean").plugin
    assert plugin.summary == "Mean of all tokens so far."
    assert plugin.facts == Facts(complexity=None)
    assert resolve("mixer", "./layers.py:Long").plugin.facts.max_length == "site"
    assert resolve("mixer", "./layers.py:Claimed").plugin.facts.causal == "always"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "Nameless",
            "Nameless.__init__ takes no width: call it dim, d_model, embed_dim, hidden_size or "
            "input_size, or extend subquad.nn.TokenMixer",
        ),
        (
            "Two",
            "Two.forward needs context: a mixer is called with tokens (batch, length, width), and "
            "with a mask where it takes one of key_padding_mask, src_key_padding_mask, "
            "padding_mask, keep, mask, attention_mask, input_mask, keep_mask",
        ),
        (
            "Sized",
            "mixer.params: Sized.__init__ needs kernel and has no default: give it one, or a value "
            "with the mixer, as in kernel=1 (mixer ./layers.py:Sized)",
        ),
        (
            "Shaped",
            "Shaped.forward returns (2, 16) for tokens (2, 64, 16): a mixer returns a tensor of "
            "their shape (batch, length, width), or a tuple that starts with it",
        ),
        ("Words", "Words.forward returns a dict for tokens (2, 64, 16): a mixer returns a tensor"),
        (
            "Raising",
            "cannot be called with float64 tokens (2, 64, 16): ValueError: only lengths of 48 (",
        ),
    ],
)
def test_what_cannot_be_a_mixer_is_one_line(name, said, layers, capsys):
    assert main(["check", f"./layers.py:{name}"]) == 2
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    assert said in errors
    assert "./layers.py" in errors


def test_the_longest_sequence_must_be_known_where_it_is_needed(layers):
    resolved = resolve("mixer", "./layers.py:Long")
    with pytest.raises(UserError, match="Long needs max_len: give the longest sequence as max_len"):
        make_mixer(resolved, resolved.plugin.config(), Site(dim=D))


def test_check_finds_what_could_be_claimed(layers, capsys):
    main(["check", "./layers.py:Mean", "--exclude", "compiled=slow"])
    output = capsys.readouterr().out
    assert output.startswith("./layers.py:Mean: passed")
    facts = 'Facts(causal="always", permutation_equivariant=False, complexity="L")'
    assert f"could be claimed: facts = {facts}" in output
    assert "or as a package: subquad new mixer NAME --from ./layers.py:Mean" in output
    assert re.search("\nnot padding_invariant: padding-content: output at real tokens", output)


def test_a_planted_leak_is_found_once_causality_is_claimed(layers):
    only = ["causal-outputs", "causal-lengths"]
    assert certify("./layers.py:Claimed", only=only).holds
    assert certify("./layers.py:Leaky", only=only).count("failed") == 2


def test_a_package_claims_what_holds(layers, tmp_path, capsys):
    assert main(["new", "mixer", "so-far", "--from", "./layers.py:Mean"]) == 0
    written = (tmp_path / "so-far/so_far.py").read_text()
    assert written.startswith(LAYERS.rstrip())
    assert written.endswith(
        "class SoFar(Mean):\n"
        '    """Mean of all tokens so far."""\n\n'
        "    api = 1\n"
        "    # found by trying; `subquad check` tests these from now on\n"
        '    facts = Facts(causal="always", permutation_equivariant=False, complexity="L")\n'
    )
    assert 'so-far = "so_far:SoFar"' in (tmp_path / "so-far/pyproject.toml").read_text()
    facts = resolve("mixer", "./so-far/so_far.py:SoFar").plugin.facts
    assert facts == Facts(causal="always", permutation_equivariant=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task", "some"], "--from ./layers.py:Mean: only a mixer is made from ./FILE.py:CLASS"),
        (["mixer", "mean"], "NAME: got 'mean', whose class Mean is in ./layers.py already; choose"),
    ],
)
def test_what_no_package_can_be_made_of_is_one_line(words, said, layers, capsys):
    assert main(["new", *words, "--from", "./layers.py:Mean"]) == 2
    assert said in capsys.readouterr().err


def test_what_claims_itself_needs_no_package_for_it(layers, capsys):
    assert main(["new", "mixer", "other", "--from", "./layers.py:Claimed"]) == 2
    message = "--from ./layers.py:Claimed: it says itself what it claims; use it as it is"
    assert message in capsys.readouterr().err


def test_a_class_of_a_package_is_named_in_a_file():
    message = "put `from torch.nn import GRU` into a file, and write ./file.py:GRU"
    with pytest.raises(UserError, match=re.escape(message)):
        resolve("mixer", "torch.nn:GRU")


def test_a_base_is_told_what_is_handed_on():
    base = module("x, mask=None", "x if mask is None else x * mask[..., None]", "dim, rank=1")

    class Outer(base):
        def __init__(self, dim, **more):
            super().__init__(dim, **more)

        def forward(self, *tokens, **more):
            return super().forward(*tokens, **more)

    mixer = built(Outer, {"rank": 2})
    assert torch.equal(mixer(X, keep=KEEP), X * KEEP[..., None])
    assert mixer.module.given["rank"] == 2
