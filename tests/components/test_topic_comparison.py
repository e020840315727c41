"""The check of offsets and a plain model of what it has to say, through transactions, compaction, retention and losses."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratify_lakehouse.components.checks.offset_checks import Accounted, Compared, Partition, each_offset_once
from tests.components.topic_model import STEPS, TopicModel

STEP = st.tuples(st.sampled_from([*STEPS, "refresh", "evaluate"]), st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=4, max_size=30))
@example([("commit", 2), ("ingest", 1), ("commit", 1), ("ingest", 1), ("evaluate", 1), ("lose", 1), ("expire", 3)])
@example([("plain", 3), ("expire", 2), ("ingest", 1), ("plain", 2), ("abort", 1), ("commit", 1), ("ingest", 1)])
@example([("open", 2), ("ingest", 1), ("evaluate", 1), ("close", 2), ("ingest", 1), ("lose", 1)])
@example([("commit", 1), ("ingest", 1), ("open", 3), ("ingest_open", 1), ("lose", 1), ("evaluate", 1), ("close", 2)])
@example([("commit", 3), ("ingest", 1), ("evaluate", 1), ("compact", 1), ("lose", 1), ("evaluate", 1), ("plain", 1)])
def test_a_loss_is_what_the_model_says(steps: list[tuple[str, int]]) -> None:
    check(steps)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None)
@given(steps=st.lists(STEP, min_size=4, max_size=30))
def test_a_loss_is_what_the_model_says_at_length(steps: list[tuple[str, int]]) -> None:
    check(steps)


def check(steps: list[tuple[str, int]]) -> None:
    model, known = TopicModel(), None
    for step, count in [*steps, ("evaluate", 1), ("lose", 2), ("delete", 1), ("evaluate", 1)]:
        if step == "refresh":
            model.refresh(count)
            known = None
        elif step == "delete":
            model.deleted = True
        elif step != "evaluate":
            STEPS[step](model, count)
        elif model.table:
            compared = model.compared(known)
            assert compared.lost(known, 0) == model.lost()
            known = compared.accounted(known, 0)


def test_acknowledged_removals_are_no_loss_and_hide_none() -> None:
    before = Compared(first=0, end=10, before=0, expired=0, empty=2, unread=3)
    assert (before.lost(None, 0), before.lost(None, 3), before.lost(None, 2)) == (3, 0, 1)
    known = before.accounted(None, 3)
    assert known == Accounted(0, 10, 5, 3)
    after = Compared(first=0, end=20, before=6, expired=0, empty=4, unread=0)
    assert (after.lost(known, 3), after.lost(known, 4)) == (1, 0)
    # What was lost stays so until it is acknowledged.
    assert after.accounted(known, 3) == Accounted(0, 20, 9, 3)


def test_rows_before_which_others_were_erased_are_counted_from_there() -> None:
    """The first two of five empty offsets are now before the first row."""
    known = Accounted(0, 10, 5, 0)
    after = Compared(first=3, end=10, before=3, expired=0, empty=0, unread=1)
    assert after.lost(known, 0) == 1
    assert after.accounted(known, 0) == Accounted(3, 10, 3, 0)


def test_the_finding_tells_losses_from_offsets_without_a_record() -> None:
    transactions, lost = Partition("t", 0, 8, 8, 0, 9), Partition("t", 1, 7, 7, 0, 9)
    found = each_offset_once([transactions], {}, {"t/0": 0})
    assert found.passed
    assert found.description == "Every offset is in the table once, but 2 offsets without a record in the topic."
    found = each_offset_once([transactions, lost], {}, {"t/0": 0, "t/1": 1})
    assert not found.passed
    assert found.description.endswith(": t/1: 7 rows, 7 offsets of 0 to 9, 1 record lost.")
    assert (found.numbers["missing"], found.numbers["without a record"]) == (1, 4)
