"""What orders the rows of a series: numbers, dates of one form, text that sorts by time;
anything else is refused.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from subquad_datasets.table.times import OddTime, ordered

START = datetime(2023, 12, 30, 22, 30)
GOOD = {
    "whole numbers": ([str(n - 5) for n in range(30)], "numbers"),
    "numbers": ([f"{n / 7:.6g}" for n in range(30)], "numbers"),
    "nanoseconds": ([str(1_700_000_000_000_000_000 + n) for n in range(30)], "numbers"),
    "days": ([(START + timedelta(days=n)).date().isoformat() for n in range(30)], "dates"),
    "hours": ([(START + timedelta(hours=n)).isoformat() for n in range(30)], "dates"),
    "parts of seconds": (
        [str(START + timedelta(milliseconds=250 * n)) for n in range(30)],
        "dates",
    ),
    "zones": (
        [f"{(START + timedelta(hours=n + n % 3)).isoformat()}+0{n % 3}:00" for n in range(9)],
        "dates",
    ),
    "hours of a day": ([f"{n // 4:02}:{15 * (n % 4):02}" for n in range(30)], "text"),
    "padded steps": ([f"step{n:02}" for n in range(30)], "text"),
    "quarters": ([f"2023Q{n}" for n in range(1, 5)], "text"),
}


@pytest.mark.parametrize("name", GOOD)
def test_cells_of_one_kind_are_put_in_order_of_time(name: str):
    cells, kind = GOOD[name]
    shuffled = random.Random(0).sample(cells, len(cells))
    keys, found = ordered(shuffled)
    assert found == kind
    assert [cell for _, cell in sorted(zip(keys.tolist(), shuffled, strict=True))] == cells


NUMBERS = [str(n) for n in range(20)]
DAYS = [f"2024-01-{n:02}" for n in range(1, 21)]
ODD = [
    (NUMBERS, "x", "'x' is text, and 20 others are a number"),
    (NUMBERS, "1,000", "'1,000' is text"),
    (NUMBERS, "1_000", "'1_000' is text"),
    (NUMBERS, "\uff11\uff12", "'\uff11\uff12' is text"),
    (NUMBERS, "\u0663", "'\u0663' is text"),
    (NUMBERS, "2024-01-05", "'2024-01-05' is a date like 0000-00-00, and 20 others are a number"),
    (NUMBERS, "nan", "'nan' is missing"),
    (NUMBERS, "NA", "'NA' is missing"),
    (NUMBERS, "inf", "'inf' is not finite"),
    (NUMBERS, "1e999", "'1e999' is not finite"),
    (DAYS, "2024-01-05T10:00", "'2024-01-05T10:00' is a date like 0000-00-00T00:00, and 20 others"),
    (DAYS, "2024-02-30", "'2024-02-30' is text"),
    (DAYS, "5", "'5' is a number"),
    (DAYS, "NaT", "'NaT' is missing"),
    (["a", "b", "c"], "7", "'7' is a number, and 3 others are text"),
    (["Mon", "Tue"], "Wed", "'Tue' and 'Mon' differ in more than their numbers"),
    (["a", "b"], "c", "'b' and 'a' differ in more than their numbers, so their order is not known"),
    (["before 1", "before 2"], "after 1", "'before 1' and 'after 1' differ in more than"),
    (["\uff11", "\uff12"], "\uff13", "'\uff12' and '\uff11' differ in more than their numbers"),
    ([f"t{n}" for n in range(9)], "t10", "as text 't10' comes before 't2'"),
    (["9:00", "11:00"], "10:30", "as text '10:30' comes before '9:00'"),
    (["2024-9-1", "2024-9-2"], "2024-10-1", "as text '2024-10-1' comes before"),
    (["01.02.2024", "02.02.2024"], "03.01.2024", "'01.02.2024' does not sort by time as text"),
    (["12/31/2023"], "01/01/2024", "'12/31/2023' does not sort by time as text"),
    (["09:00 AM", "11:00 AM"], "01:00 PM", "'09:00 AM' does not sort by time as text"),
    (["5 Jan 2024", "6 Jan 2024"], "1 Feb 2024", "'5 Jan 2024' does not sort by time as text"),
]


@pytest.mark.parametrize(("cells", "odd", "message"), ODD)
@pytest.mark.parametrize("place", [0, 2, -1])
def test_what_does_not_sort_by_time_is_refused(cells, odd, message, place):
    given = [*cells]
    given.insert(place % (len(cells) + 1), odd)
    with pytest.raises(OddTime) as refused:
        ordered(given)
    if message.startswith(f"'{odd}' is "):
        assert message in str(refused.value)
        assert given[refused.value.row] == odd
    else:
        assert message.split("'")[1] in given
        assert str(refused.value).startswith(message[: message.index("'")])
