"""The GPU section is made of what `benchmarks/gpu_day.py` writes."""

import json

import gpu_page

from subquad.nn.kernels import REFERENCE
from subquad_tools.bench import clock
from subquad_tools.bench.kernels import time_kernels
from subquad_tools.bench.mixers import time_mixers
from subquad_tools.bench.rows import LeftOut, Protocol, SpeedSettings, choose_mixer

TINY = SpeedSettings(lengths=(8, 16), dim=8, heads=2, tokens=32, rounds=1, published=False)


def test_benches_of_a_day_are_shown(monkeypatch):
    monkeypatch.setattr(clock, "SHORTEST_BLOCK", 1e-6)
    monkeypatch.setitem(clock.ROOFS, "cpu", (32, 1 << 16))
    chosen = [choose_mixer(text) for text in ("agf:order=2", "softmax:kernel=standard")]
    mixers = {"what": "mixers", **time_mixers(chosen, TINY, LeftOut())}
    paper = Protocol.of("agf-table5").model_copy(update={"over": chosen[1].text, "columns": {}})
    table = {**mixers, "protocol": "agf-table5", "table": paper.table(mixers)}
    operations = {"what": "kernels", **time_kernels(chosen[:1], TINY, LeftOut())}
    benches = {"mixers": mixers, "operations": operations, "table": table}
    steps = [
        {"name": name, "status": "done", "seconds": 1, "found": found}
        for name, found in benches.items()
    ]
    steps.append({"name": "more", "status": "left out: no time", "seconds": 0})
    steps.append({"name": "tests", "status": "done", "tests": {"passed": 3}, "failed": []})
    day = {"date": "2026-01-01", "revision": "abc", "versions": {"torch": "2"}, "steps": steps}
    lines = "\n".join(gpu_page.section(json.loads(json.dumps(day))))
    for title in ("Layers", "Operations", "Protocol `agf-table5`", "Not measured"):
        assert f"### {title}" in lines
    assert "### Attention alone" not in lines
    assert "- tests: 3 passed." in lines
    assert "more (no time)." in lines
    assert f"| {REFERENCE} |" in lines
    assert "| `torch attention (math)` |" in lines
    assert gpu_page.verdict(day).startswith("Of 1 mixers, ")
