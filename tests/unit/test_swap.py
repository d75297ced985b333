"""What a swap measures, on mixers whose operators are known, and the parameters that it tries."""

import math

import pytest
import torch
from torch import nn

from subquad.nn import Backbone, ModelOutput, TokenMixer
from subquad.registry import resolve
from subquad_tools.swap.compare import combinations, output_errors
from subquad_tools.swap.show import draw_swaps, print_swaps


class Scaled(TokenMixer):
    """Multiplies all tokens by one number, and the first by another one."""

    def __init__(self, factor: float, first: float):
        super().__init__()
        self.factor, self.first = factor, first

    def forward(self, x, *, keep=None, carry=None):
        return torch.cat([self.first * x[:, :1], self.factor * x[:, 1:]], 1)


class Net(Backbone):
    def __init__(self, *mixers):
        super().__init__()
        self.blocks = nn.ModuleList(mixers)

    def forward(self, batch):
        x = batch["inputs"]
        for block in self.blocks:
            x = block(x, keep=batch["keep"])
        return ModelOutput(x)


def batch(samples, length=4):
    keep = torch.ones(samples, length, dtype=torch.bool)
    keep[:, -1] = False
    inputs = torch.ones(samples, length, 3, dtype=torch.float64)
    inputs[:, -1] = 1e6  # padding, which no error may see
    return {"inputs": inputs, "keep": keep}


def test_errors_of_known_mixers_over_batches_of_unequal_size():
    first, second = output_errors(
        Net(Scaled(2, 2), Scaled(1, 1)), Net(Scaled(3, 2), Scaled(1, 2)), [batch(5), batch(2)]
    )
    assert (first.layer, second.layer) == ("blocks.0", "blocks.1")
    assert (first.absolute, first.relative, first.first_token) == pytest.approx((2 / 3, 1 / 3, 0))
    # The second layer's error has the first one's in it: (|2*2 - 2| + |3 - 2| + |3 - 2|) / 3
    # tokens.
    assert (second.absolute, second.relative, second.first_token) == pytest.approx(
        (4 / 3, 2 / 3, 1)
    )


def test_errors_are_those_of_evaluation():
    class Dropping(Net):
        def forward(self, batch):
            return super().forward(
                {**batch, "inputs": nn.functional.dropout(batch["inputs"], 0.5, self.training)}
            )

    (error,) = output_errors(
        Dropping(Scaled(1, 1)).train(), Dropping(Scaled(1, 1)).train(), [batch(4)]
    )
    assert error.absolute == 0


def test_all_combinations_of_what_has_an_effect():
    choices = {"selection": ["step", "abs"], "force_class": ["always", "never"], "num_indices": 4}
    assert combinations(resolve("mixer", "cur").plugin.config, choices) == [
        {"selection": "step", "num_indices": 4},
        {"selection": "abs", "force_class": "always", "num_indices": 4},
        {"selection": "abs", "force_class": "never", "num_indices": 4},
    ]
    assert combinations(resolve("mixer", "cur").plugin.config, {}) == [{}]


def found(swaps):
    error = {"layer": "blocks.0.mixer", "absolute": 0.5, "relative": 0.25, "first_token": 0.125}
    rows = [
        {
            "params": params,
            "kept": {"function": "laplace", "rotary": True},
            "lost": {"qk_norm": {"value": "rms", "reason": "there is no such setting"}},
            "metrics": {"accuracy": score},
            "untrained": ["u.weight"],
            "left_out": [],
            "errors": [error],
        }
        for params, score in swaps
    ]
    fields = {
        "mixer": "cur",
        "protocol": "validation part of TRAIN",
        "samples": 1234,
        "metric": "accuracy",
    }
    fields["staying"] = ["mixers[0], softmax in layers 1"]
    return {
        **fields,
        "metrics": {"accuracy": {"unit": "%"}},
        "original": {"accuracy": 0.9},
        "swaps": rows,
    }


def test_the_table_names_what_was_tried_and_the_layers_of_the_best(capsys):
    print_swaps(found([({"m": 16}, 0.25), ({"m": 32}, 0.5)]))
    out = capsys.readouterr().out
    assert "1,234 samples: validation part of TRAIN; no training after the swap" in out
    assert [line.split() for line in out.splitlines() if line.startswith(("original", "cur"))] == [
        ["original", "90.00"],
        ["cur", "16", "25.00", "0.2500", "0.1250", "0.5000"],
        ["cur", "32", "50.00", "0.2500", "0.1250", "0.5000"],
    ]
    assert "layers with m 32" in out
    assert out.count("kept: function laplace, rotary true\n") == 1
    assert "not kept: qk_norm rms (there is no such setting)\n" in out
    assert "not swapped: mixers[0], softmax in layers 1\n" in out
    assert out.count("in the original, and are drawn anew (u.weight)") == 1


@pytest.mark.parametrize(
    ("swaps", "names"),
    [
        ([({}, 0.5)], ["errors.png"]),
        ([({"selection": "abs"}, 0.5), ({"selection": "sum"}, math.nan)], ["errors.png"]),
        ([({"m": m, "s": s}, 0.5) for m in (1, 2) for s in "ab"], ["errors.png", "scores.png"]),
    ],
)
def test_pictures(swaps, names, tmp_path):
    assert [path.name for path in draw_swaps(found(swaps), tmp_path)] == names
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in names)
