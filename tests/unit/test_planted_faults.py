"""Each planted fault can be planted: its text stands once in the file, and tests run for it."""

from benchmark import benchmark

faults = benchmark("planted_faults")


def test_every_fault_has_its_place_and_tests():
    planted = faults.faults([])
    assert len({fault["name"] for fault in planted}) == len(planted) == 80
    for fault in planted:
        assert (faults.ROOT / fault["file"]).read_text().count(fault["before"]) == 1, fault["name"]
        assert fault["after"] != fault["before"]
        assert fault.get("tests") or faults.relevant(fault["file"], faults.ROOT), fault["name"]
