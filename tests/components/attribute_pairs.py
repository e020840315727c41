"""Declarations that hold every pair of values of a kind's attributes, each at least once, in few cases."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Pair = frozenset[tuple[str, int]]


def pairs_of(case: Mapping[str, int]) -> set[Pair]:
    """Return all pairs of attributes with their values, by the values' numbers."""
    return {frozenset(pair) for pair in itertools.combinations(case.items(), 2)}


def covering(values: Mapping[str, Sequence[Any]], refused: Callable[[Mapping[str, Any]], bool]) -> list[dict[str, Any]]:
    """Return cases that hold all pairs: each begins with one that is missing, and takes the values that add the most.

    Args:
        values: Of each attribute.
        refused: Whether some of these attributes do not go together. A pair that does has a case without such a pair: it
            is not refused for another reason.
    """

    def named(case: Mapping[str, int]) -> dict[str, Any]:
        return {name: values[name][i] for name, i in case.items()}

    missing = {
        frozenset([(one, i), (other, j)])
        for one, other in itertools.combinations(values, 2)
        for i, j in itertools.product(range(len(values[one])), range(len(values[other])))
    }
    cases = list[dict[str, Any]]()
    while missing:
        first = min(missing, key=sorted)
        case = dict(sorted(first))
        wrong = refused(named(case))
        for name in sorted(values.keys() - case.keys(), key=lambda each: (-len(values[each]), each)):
            fuller = [{**case, name: i} for i in range(len(values[name]))]
            case = max(
                (each for each in fuller if refused(named(each)) == wrong), key=lambda each: len(missing & pairs_of(each))
            )
        missing -= {first} if wrong else pairs_of(case)
        cases.append(named(case))
    return cases
