"""`subquad check` in this process."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import pytest

import subquad_check
from subquad.cli.main import main
from subquad.registry import Found, resolve
from subquad_check import code
from subquad_check.command import FOR_CHECKS

MIXER = '''
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param

class Mean(TokenMixer):
    """The mean | of \\x1b[31mall\\x1b[0m tokens."""
    class Config(MixerConfig):
        scale: float = param(1.0, meaning="factor")
    facts = Facts(padding_invariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.value = torch.nn.Linear(site.dim, site.dim)
        self.scale = config.scale

    def forward(self, x, *, keep=None, carry=None):
        print("a line of the mixer's own")
        return self.value(x) + self.scale * x.mean(1, keepdim=True)

class Broken(Mean):
    """Fails."""
    def forward(self, x, *, keep=None, carry=None):
        raise ValueError("no such axis")
'''
FEW = ("--only", "shapes", "--only", "padding-content", "--only", "cross")


@pytest.fixture
def check(capfd, tmp_path):
    """Run `subquad check`: exit code, stdout, stderr. `MEAN` stands for the mixer of this test."""
    (tmp_path / "mean.py").write_text(MIXER)

    def run(*words):
        places = {"MEAN": f"{tmp_path}/mean.py:Mean", "BROKEN": f"{tmp_path}/mean.py:Broken"}
        return (main(["check", *(places.get(word, word) for word in words)]), *capfd.readouterr())

    return run


def lines(text):
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_mixer_that_keeps_its_word(check):
    code, out, err = check("identity", *FEW)
    assert code == 0
    assert lines(out)[0].startswith("identity: passed (2 passed, 1 excluded) in ")
    assert [line.rpartition(": ")[0] for line in lines(err)] == [
        "identity: default, causal: shapes",
        "identity: default, causal: padding-content",
    ]
    _, out, _ = check("identity", *FEW, "-v")
    assert "1 identity, default, causal" in lines(out)
    assert "shapes ok (2, 13, 16) in float64 and float32" in lines(out)
    assert "excluded: cross: cross not claimed" in lines(out)
    assert not any(line.startswith("cross") for line in lines(out))


def test_the_verdict_is_short_whatever_fails(check):
    code, out, _ = check("BROKEN", "--only", "shapes", "--only", "strides", "--only", "lengths")
    assert code == 1
    first, *others = lines(out)
    assert first.partition(" in ")[0].endswith("mean.py:Broken: failed (1 failed, 2 not proven)")
    assert len(others) < 12


def test_processes_of_checks_have_their_environment(check, monkeypatch):
    """But for what the user has set."""
    first, *others = FOR_CHECKS
    monkeypatch.setenv(first, "the user's")
    for name in others:
        monkeypatch.delenv(name, raising=False)
    assert check("MEAN", "--only", "shapes")[0] == 0
    assert {name: os.environ[name] for name in FOR_CHECKS} == {**FOR_CHECKS, first: "the user's"}


def test_a_mixer_that_does_not(check):
    code, out, _ = check("MEAN", *FEW)
    assert code == 1
    (failure,) = (line for line in lines(out) if line.startswith("failed: "))
    assert failure.startswith(
        "failed: padding-content: output at real tokens in evaluation, other "
        "content in the padding (right): differs by "
    )
    assert failure.endswith(
        "of the largest output, allowed 0, bit for bit (float64, 21 tokens, evaluation, role "
        "self); the largest of 21 differences in 28 comparisons"
    )
    assert (
        "not looked at: more than 1,100 tokens, but for growth; format bf16 autocast; role cross "
        "and decoder; sizes but width 16 and 2 heads; a GPU; -v shows each check"
    ) in lines(out)
    assert "Mean: failed (1 passed, 1 excluded, 1 failed) in " in out
    assert "a line of the mixer's own" not in out
    assert "\x1b" not in out


def test_an_exception_of_the_mixer_is_one_line_and_debug_shows_where(check):
    code, out, err = check("BROKEN", "--only", "shapes")
    assert code == 1
    assert "failed: shapes: ValueError: no such axis (" in out
    assert "Traceback" not in out + err
    assert "Traceback" in check("BROKEN", "--only", "shapes", "--debug")[2]


def test_parameters_belong_to_the_mixer_before_them(check):
    code, out, _ = check(
        "MEAN", "scale=0.0", "agf", "order=4", "identity", "--json", "--only", "padding-content"
    )
    found = json.loads(out)
    assert code == 0
    ways = [[way["parameters"] for way in mixer["subjects"]] for mixer in found["mixers"]]
    assert ways[0] == [{"scale": 0.0}]
    assert [way["order"] for way in ways[1]] == [4]
    assert [way["variant"] for way in found["mixers"][2]["subjects"]] == ["default"]


def test_json_says_all_of_it(check):
    code, out, _ = check("softmax", "--json", *FEW, "--exclude", "cross=no decoder here")
    found = json.loads(out)
    assert code == 0
    assert {"subquad", "torch", "python"} <= set(found["environment"])
    (mixer,) = found["mixers"]
    assert mixer["plugin"]["distribution"] == "subquad"
    assert len(mixer["plugin"]["sha256"]) == 64
    assert (
        mixer["passed"],
        mixer["excluded"],
        mixer["failed"],
        mixer["not_proven"],
        mixer["holds"],
    ) == (8, 4, 0, 0, True)
    assert [(way["name"], way["causal"]) for way in mixer["subjects"]] == [
        ("default", False),
        ("default, causal", True),
        ("standard", False),
        ("standard, causal", True),
    ]
    assert mixer["subjects"][0]["facts"]["complexity"] == "L^2"
    details = {row["detail"] for row in mixer["outcomes"] if row["status"] == "excluded"}
    assert details == {"by the user: no decoder here"}
    assert all(row["seconds"] >= 0 for row in mixer["outcomes"])


def test_markdown_goes_to_a_file_or_to_stdout(check, tmp_path):
    code, out, _ = check("MEAN", *FEW, "--markdown", str(tmp_path / "certificate.md"))
    assert code == 1
    assert "Mean: failed (1 passed" in out
    text = (tmp_path / "certificate.md").read_text()
    assert check("MEAN", *FEW, "--markdown", "-")[1] == text
    rows = text.splitlines()
    assert rows[0] == "# Certificate"
    assert "The mean \\| of \\\\x1b[31mall\\\\x1b[0m tokens." in rows
    assert "| 1 | default | defaults | causal never, padding_invariant True," in text
    assert any(row.startswith("| padding-content |") and "| **no** |" in row for row in rows)
    assert "Only 3 of " in text
    assert rows[-1].endswith("Mean: failed (1 passed, 1 excluded, 1 failed).")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which mixer? write a name, ./file.py:Class, or --all"),
        (
            ("agf", "--json", "--markdown", "-"),
            "--json and --markdown - would both write to stdout",
        ),
        (("agf", "--all"), "--all checks every mixer with its own variants"),
        (("order=3", "agf"), "order=3: write the mixer first, as in: subquad check MIXER width=4"),
        (("agf", "order=3", "order=4"), "agf: order is given twice"),
        (("agf", "order=99"), "order: got 99, must be a whole number >= 0 and <= 32"),
        (("agv",), "unknown mixer 'agv'; did you mean 'agf'"),
        (("agf", "--only", "shape"), "no check 'shape'; did you mean 'shapes'"),
        (
            ("agf", "--exclude", "cross"),
            "--exclude cross: give a reason, as in --exclude cross='why it does not apply'",
        ),
        (("agf", "--exclude", "cross=a", "--exclude", "cross=b"), "--exclude cross is given twice"),
        (
            ("agf", "--compiler", "inducto"),
            "--compiler inducto: torch has no such backend; did you mean 'inductor'",
        ),
        (
            ("agf", "--device", "cudo"),
            "--device cudo: not on this machine (Expected one of cpu, cuda",
        ),
        (("agf", "--device", "cuda:77"), "--device cuda:77: not on this machine ("),
        (
            ("identity", "--only", "shapes", "--markdown", "no/such/folder.md"),
            "--markdown no/such/folder.md: No such",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(check, words, message):
    code, _, err = check(*words)
    assert code == 2
    assert err.splitlines()[-1].startswith(f"subquad: {message}")
    assert err.count("subquad: ") == 1


def test_all_goes_on_after_a_plugin_that_is_broken(check, monkeypatch):
    monkeypatch.setattr("subquad_check.command._installed", lambda: ["identity", "nonsense"])
    code, out, _ = check("--all", "--only", "shapes")
    assert code == 1
    assert "identity: passed (1 passed) in " in out
    assert "nonsense: unknown mixer 'nonsense'" in out
    assert "1 of 2 mixers certified" in out
    assert out.rstrip().endswith("not certified: nonsense")


def test_all_means_every_installed_mixer():
    from subquad_check.command import _installed

    assert {"agf", "identity", "softmax"} <= set(_installed())


def test_a_failure_ends_with_the_command_that_repeats_it(check, tmp_path):
    code, out, _ = check("MEAN", "scale=0.5", *FEW, "--dim", "8", "--seed", "3")
    assert code == 1
    place = lines(out).index(next(line for line in lines(out) if line.startswith("failed: ")))
    again = lines(out)[place + 1].removeprefix("again: subquad ").split()
    assert (
        again
        == (
            f"check {tmp_path}/mean.py:Mean scale=0.5 --dim 8 --only padding-content --seed 3"
        ).split()
    )
    code, found, _ = check(*again[1:], "--json")
    (mixer,) = json.loads(found)["mixers"]
    (outcome,) = mixer["outcomes"]
    assert (code, outcome["status"], outcome["again"].split()[1:]) == (1, "failed", again)
    assert outcome["detail"] in " ".join(out.split())


def test_another_seed_gives_other_numbers(check):
    found = [
        check("agf", "order=3", "--only", "precision-fp32", "--json", "--seed", seed)[1]
        for seed in "011"
    ]
    first, other, same = (
        json.loads(output)["mixers"][0]["outcomes"][0]["figures"] for output in found
    )
    assert first != other == same


@pytest.fixture(
    params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"]
)
def _job(request):
    before = signal.signal(signal.SIGINT, request.param)
    yield
    assert signal.signal(signal.SIGINT, before) is request.param


@pytest.mark.usefixtures("_job")
def test_what_is_known_is_kept_and_gone_on_with(check, monkeypatch, tmp_path):
    """All of three mixers, stopped after two, whose document is cut in the second: one is taken
    over.
    """
    monkeypatch.setattr(
        "subquad_check.command._installed", lambda: ["identity", "softmax", "fourier"]
    )
    certify, checked = subquad_check.certify, []

    def counted(name, *arguments, **options):
        checked.append(name)
        if len(checked) == 3:
            signal.raise_signal(signal.SIGTERM)
        return certify(name, *arguments, **options)

    monkeypatch.setattr("subquad_check.certify", counted)
    words = ("--all", "--json", "--only", "shapes")
    code, out, err = check(*words)
    assert code == 143
    assert err.endswith("subquad: stopped; `--resume FILE` with what was printed goes on\n")
    stopped = json.loads(out)
    assert [mixer["plugin"]["name"] for mixer in stopped["mixers"]] == ["identity", "softmax"]
    assert stopped["complete"] is False
    cut = tmp_path / "cut.json"
    cut.write_text(out[: out.rindex('"outcomes"')])
    code, out, err = check(*words, "--resume", str(cut))
    whole = json.loads(out)
    assert (code, checked[3:], whole["complete"]) == (0, ["softmax", "fourier"], True)
    assert whole["mixers"][0] == stopped["mixers"][0]
    assert len(whole["mixers"]) == 3
    assert check(*words, "--seed", "1", "--resume", str(cut))[0] == 2
    assert check("identity", "--json", "--resume", str(cut))[0] == 2


def test_a_mixer_whose_code_has_changed_is_checked_again(check, monkeypatch, tmp_path):
    """As where a package is editable: its version stays."""
    names = ["identity", "softmax"]
    monkeypatch.setattr("subquad_check.command._installed", lambda: names)
    words = ("--all", "--json", "--only", "shapes")
    before = tmp_path / "before.json"
    before.write_text(check(*words)[1])
    first, second = before.read_text().split('"name": "softmax"')
    digest = code.code_digest(resolve("mixer", "softmax"))
    before.write_text(f'{first}"name": "softmax"{second.replace(digest, "of other code")}')
    certify, checked = subquad_check.certify, []

    def counted(name, *arguments, **options):
        checked.append(name)
        return certify(name, *arguments, **options)

    monkeypatch.setattr("subquad_check.certify", counted)
    assert check(*words, "--resume", str(before))[0] == 0
    assert checked == ["softmax"]


def test_code_is_that_of_a_mixers_package(tmp_path, monkeypatch):
    (tmp_path / "codeful").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    resolved = replace(
        resolve("mixer", "identity"),
        found=Found("mixer", "own", "codeful", "1", "codeful.mixer:Own"),
    )
    digests = set()
    for name in ("__init__.py", "mixer.py", "notes.txt"):
        (tmp_path / "codeful" / name).write_text("number = 1")
        code._digest.cache_clear()
        digests.add(code.code_digest(resolved))
    assert len(digests) == 2


def test_a_terminal_shows_each_check_on_one_line(check, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _, _, err = check("identity", *FEW)
    assert "\n" not in err
    shown = [line.removeprefix("\x1b[2K").rpartition(": ")[0] for line in err.split("\r")]
    assert shown == [
        "identity: default, causal: shapes",
        "identity: default, causal: padding-content",
        "",
    ]


def test_a_check_that_takes_too_long_is_not_tested(check, tmp_path):
    (tmp_path / "endless.py").write_text(
        MIXER.replace('raise ValueError("no such axis")', "while True: pass")
    )
    code, out, _ = check(f"{tmp_path}/endless.py:Broken", "--only", "shapes", "--seconds", "0.1")
    assert code == 1
    assert "not proven: shapes: not tested: too slow: more than 0.1 s of CPU time" in out
    assert "again:" not in out
    assert check("identity", "--seconds", "0")[0] == 2
