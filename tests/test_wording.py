"""Numbers in messages."""

import pytest

from ratify_lakehouse.wording import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows")])
def test_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "row") == text
