"""Load ids: the Delta `txn` app ids that keep a load from being in a table twice."""

from collections.abc import Mapping


def loads_in(versions: Mapping[str, int]) -> set[str]:
    """Loads whose rows are in the table. A `txn` version can only grow: it is odd from the commit that brings the rows, and
    even from one that takes them out again."""
    return {load for load, version in versions.items() if version % 2 == 1}
