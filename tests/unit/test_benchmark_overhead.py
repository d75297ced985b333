"""Plumbing of benchmarks/overhead.py, with few steps. No time is judged."""

import itertools
import json

from benchmark import benchmark

overhead = benchmark("overhead")


def test_the_engine_beside_a_bare_loop(capsys):
    overhead.main(["engine", "--rounds", "3", "--steps", "64", "--json"])
    found = json.loads(capsys.readouterr().out)
    figures = found["engine"]
    assert found == {"what": "overhead", "engine": {**figures, "rounds": 3, "steps": 64}}
    assert set(figures) == {"with_it", "without_it", "added", "rounds", "steps"}
    assert min(figures["with_it"], figures["without_it"]) > 0


def test_hooks_are_called_in_each_step_of_one_of_the_two_loops():
    looks = itertools.count()
    overhead.measure_engine(3, 64, lambda: next(looks) * 0)
    assert 4 * 64 <= next(looks) < 8 * 64
