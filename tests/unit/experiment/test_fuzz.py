"""Random files and overrides: a plan or a one-line refusal, never another exception; and a
plan's text loads again.
"""

from __future__ import annotations

import random

import pytest

from subquad.errors import ConfigError, DataError, PluginError
from subquad.experiment import load_study
from subquad.experiment.canonical import to_yaml
from subquad.experiment.key_names import known_keys
from subquad.experiment.schema import Experiment
from subquad.experiment.settings import dotted
from subquad.experiment.strict_yaml import parse_yaml
from subquad.registry import Kind, resolve
from subquad.registry.allowed import schema_at

STUDY = """\
name: study
task: classification
dataset: {name: uea, params: {problem: ERing, path: data}}
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 4}}
train: {epochs: 20, batch_size: 16}
matrix:
  mixer:
    - {name: agf, beside: {seed1: {mixer.params.order: 2, train.lr: 0.5}}}
    - {name: softmax, label: soft, only: [seed1]}
  change: [base, {label: low, only: [seed0, agf], set: {train.lr: 0.1}}]
  seed: [0, 1]
"""
ODD = [
    "", "~", "0", "-1", "1e-3", "1e308", "-1e308", "9223372036854775807", "-9223372036854775808",
    "0.5", "010", ".nan", ".inf", "true", "no", "null", "x", "'1'", "[]", "{}", "[1, 2]",
    "[[[[]]]]", "{a: 1}", "{name: agf}", "&a x", "*a", "!!python/object:os.system x", "${HOME}",
    "../../x", "/etc/passwd", "\\", '"\\u0000"', '"\\ud800"', "é", "🙂", "a: b", "- x", "|\n  x",
    "1:30", "agf", "softmax", "uea", "encoder", "./f.py:X", "a:b", ":", "subquad:agf", "con",
    "paper", "fixed", "4294967296", "x" * 300, "'\t'", '"\\e[31m"', "\u202e", "[.nan]", "1_000",
    "%", "@", "`", "#",
]  # fmt: skip
CHARACTERS = "\n\t :-[]{}&*!|>'\"%@`#,?~\\0159abcxyz._=\x00\x1b\x85\ufeff\u2028é"


NAMES: dict[Kind, str] = {
    "mixer": "agf",
    "backbone": "encoder",
    "dataset": "uea",
    "task": "classification",
}
CONFIGS = {kind: resolve(kind, name).plugin.config for kind, name in NAMES.items()}


def every_key():
    keys = dict(known_keys(Experiment))
    for kind, config in CONFIGS.items():
        keys |= known_keys(config, (kind, "params"))
    return [(*parent, key) for parent, found in keys.items() for key in found]


KEYS = every_key()


def random_bytes(rng, text):
    return rng.randbytes(rng.randrange(300))


def mutated_text(rng, text):
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice([0, 0, 1, 1, 3, 20]))
        text = text[:at] + "".join(rng.choices(CHARACTERS, k=rng.randint(0, 3))) + text[end:]
    return text.encode("utf-8", "surrogatepass")


def shuffled_lines(rng, text):
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 4)):
        action, at = rng.randrange(4), rng.randrange(len(lines))
        if action == 0:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif action == 1 and len(lines) > 1:
            lines.pop(at)
        elif action == 2:
            lines[at] = "  " + lines[at]
        else:
            lines[at] = lines[at].lstrip()
    return "".join(lines).encode()


def odd_value(rng, text):
    path = rng.choice(KEYS)
    lines = [
        "".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(path)).rstrip("\n")
        + " "
        + rng.choice(ODD)
    ]
    kept = [line for line in text.splitlines() if not line.startswith(path[0])]
    return "\n".join([*kept, *lines, ""]).encode("utf-8")


def random_tree(rng, text):
    """Known keys with random values, nested where they should not be."""
    data = parse_yaml(text, "text").data
    for _ in range(rng.randint(1, 5)):
        path, place = rng.choice(KEYS), data
        for key in path[:-1]:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        place[path[-1]] = random_value(rng, 0)
    return to_yaml(data).encode()


def random_value(rng, depth):
    choice = rng.randrange(9 if depth < 24 else 7)
    if choice == 7:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if choice == 8:
        return {rng.choice(["name", "params", "lr", "x", "only"]): random_value(rng, depth + 1)}
    return [
        None,
        True,
        rng.randint(-(2**63), 2**63 - 1),
        rng.randint(0, 64),
        rng.uniform(-2, 2),
        "x",
        "agf",
    ][choice]


def plausible(rng, text):
    """Settings whose values are of the right type."""
    data = parse_yaml(text, "text").data
    for path in rng.sample(KEYS, rng.randint(1, 2)):
        place = data
        for key in path[:-1]:
            before = place.get(key) or {}
            place[key] = {"name": before} if isinstance(before, str) else before
            place = place[key]
        place[path[-1]] = typed_value(rng, path, place.get(path[-1]))
    return to_yaml(data).encode()


def typed_value(rng, path, before):
    schema = (
        schema_at(Experiment, path) or schema_at(CONFIGS.get(path[0], Experiment), path[2:]) or {}
    )
    option = rng.choice(schema.get("anyOf", [schema]))
    numbers = {
        "integer": [1, 2, 4],
        "number": [0.5, 1, 0.0],
        "boolean": [True, False],
        "null": [None],
    }
    return rng.choice(option.get("enum") or numbers.get(option.get("type"), [before]))


def random_overrides(rng):
    heads = [dotted(path) for path in KEYS] + [
        "matrix.seed",
        "matrix.mixer",
        "matrix",
        "runs",
        "matrix.change",
        "",
        "a.b",
    ]
    return [f"{rng.choice(heads)}={rng.choice(ODD)}" for _ in range(rng.choice([0, 0, 0, 0, 1, 2]))]


MUTATIONS = [random_bytes, mutated_text, shuffled_lines, odd_value, random_tree, plausible]


def outcome(folder, base_text, seed):
    """ "accepted" or "refused"; anything but a plan or a one-line refusal raises."""
    rng = random.Random(seed)
    content = MUTATIONS[seed % len(MUTATIONS)](rng, rng.choice([base_text, STUDY]))
    (folder / "exp.yaml").write_bytes(content)
    try:
        plan = load_study("exp.yaml", random_overrides(rng), cwd=folder)
    except (ConfigError, PluginError, DataError) as error:
        message = str(error)
        assert message.isprintable(), message
        assert 10 < len(message) <= 600
        return "refused"
    (folder / "again.yaml").write_text(plan.text, encoding="utf-8")
    again = load_study("again.yaml", cwd=folder)
    assert again.runs == plan.runs
    assert again.text == plan.text
    return "accepted"


def run(folder, base_text, seeds):
    found = [outcome(folder, base_text, seed) for seed in seeds]
    return found.count("accepted"), found.count("refused")


@pytest.mark.ci
def test_500_random_experiments(tmp_path, base_text):
    accepted, refused = run(tmp_path, base_text, range(500))
    assert accepted > 25
    assert refused > 250


@pytest.mark.extended
def test_20000_random_experiments(tmp_path, base_text, capsys):
    accepted, refused = run(tmp_path, base_text, range(1000, 21_000))
    with capsys.disabled():
        print(f"\n{accepted} accepted, {refused} refused")
    assert accepted + refused == 20_000
