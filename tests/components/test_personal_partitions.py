"""What runs and checks of a table with partitions, or of changed rows, show of personal data."""

import pytest

from ratify_lakehouse.components.strategies.incremental_pass import not_computed
from ratify_lakehouse.components.strategies.stale_partitions import StalePartitions, outside_described

WHO = ("Ann", "Bö", "Cy")


@pytest.mark.parametrize("hidden", [False, True])
def test_partitions_are_named_unless_they_are_personal(hidden: bool) -> None:
    changed = {WHO[0]: {"silver.orders": (3, 7)}}
    found = StalePartitions(changed, uncomputed=WHO[1:2], forgotten=WHO[2:], hidden=hidden).finding()
    outside = outside_described({"rows": 4, "nulls": 1, "least": "Di", "greatest": "Eve"}, "who", hidden=hidden)
    assert "3 changed rows of silver.orders since version 7" in found.description
    assert "3 with a who" in outside
    for value in WHO:
        assert (value in found.description) == (not hidden)
    for value in ("Di", "Eve"):
        assert (value in outside) == (not hidden)


@pytest.mark.parametrize("hides", [False, True])
def test_why_all_rows_are_computed_quotes_no_personal_value(hides: bool) -> None:
    error = Exception("[CAST_INVALID_INPUT] The value 'Ann' of the type \"STRING\" cannot be cast.\nat org.apache.spark")
    reason = str(not_computed("keys", error, hides=hides))
    assert ("'Ann'" in reason, "[CAST_INVALID_INPUT]" in reason, "org.apache" in reason) == (not hides, True, False)
