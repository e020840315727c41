"""Load ids: the Delta `txn` app ids that keep a load from being in a table twice, and what their versions mean.

A `txn` version may only grow (Delta's PROTOCOL.md, "Transaction Identifiers"). The commit that brings the rows of a load
gives its id an odd version: the load is *loaded*. A commit that removes those rows gives it an even one: the load is
*withdrawn*, and may be loaded again. No other module knows this encoding.
"""

from collections.abc import Iterable, Mapping


def loaded_ids(versions: Mapping[str, int]) -> set[str]:
    """Return the ids of the loads whose rows are in the table, given the `txn` versions of a snapshot."""
    return {load for load, version in versions.items() if _is_loaded(version)}


def withdrawn_ids(versions: Mapping[str, int]) -> set[str]:
    """Return the ids of the loads whose rows were in the table and are not any more."""
    return set(versions) - loaded_ids(versions)


def as_loaded(versions: Mapping[str, int], loads: Iterable[str]) -> dict[str, int]:
    """Return the `txn` versions of a commit that brings the rows of these loads, also in place of earlier rows."""
    return {load: _next(versions.get(load, 0), loaded=True) for load in loads}


def as_withdrawn(versions: Mapping[str, int], loads: Iterable[str]) -> dict[str, int]:
    """Return the `txn` versions of a commit that removes the rows of these loads. The log may have forgotten their ids."""
    return {load: _next(versions.get(load, 1), loaded=False) for load in loads}


def _is_loaded(version: int) -> bool:
    return version % 2 == 1


def _next(version: int, *, loaded: bool) -> int:
    return version + (2 if _is_loaded(version) == loaded else 1)
