"""Load ids: what the versions of a `txn` app id say, against a plain model of a load that comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.delta.load_ids import as_loaded, as_withdrawn, loaded_ids, withdrawn_ids


@given(st.lists(st.sampled_from(["load", "withdraw"]), max_size=20))
def test_a_load_is_what_the_last_commit_made_it(commits: list[str]) -> None:
    versions: dict[str, int] = {}
    for commit in commits:
        before = versions.get("a", 0)
        versions |= (as_loaded if commit == "load" else as_withdrawn)(versions, ["a"])
        assert versions["a"] > before, "a txn version may only grow"
        assert loaded_ids(versions) == ({"a"} if commit == "load" else set())
        assert withdrawn_ids(versions) == (set() if commit == "load" else {"a"})


def test_ids_that_the_log_does_not_know() -> None:
    assert (loaded_ids({}), withdrawn_ids({})) == (set(), set())
    assert as_loaded({}, ["a"]) == {"a": 1}
    # It was loaded once, for its rows are to be removed.
    assert as_withdrawn({}, ["a"]) == {"a": 2}
