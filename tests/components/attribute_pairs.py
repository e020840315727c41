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
        values: Of each attribute; the first is its default.
        refused: Whether some of these attributes do not go together. A pair that does has a case without such a pair. Beside
            one that does not are values that go with each of the two, by default the defaults, so that nothing else is a
            reason to refuse it. A value that is refused by itself is in one case, with what another one goes with.
    """

    def named(case: Mapping[str, int]) -> dict[str, Any]:
        return {name: values[name][i] for name, i in case.items()}

    def beside(case: Mapping[str, int], *parts: Mapping[str, int]) -> dict[str, int]:
        """Complete a case by values that go with each of these parts."""
        rest = dict[str, int]()
        for name in (each for each in values if each not in case):
            goes = (
                i for i in range(len(values[name])) if not any(refused(named({**part, **rest, name: i})) for part in parts)
            )
            rest[name] = next(goes, 0)
        return {**case, **rest}

    missing = {
        frozenset([(one, i), (other, j)])
        for one, other in itertools.combinations(values, 2)
        for i, j in itertools.product(range(len(values[one])), range(len(values[other])))
    }
    cases = list[dict[str, Any]]()
    for name, given in values.items():
        for i, value in enumerate(given):
            if refused({name: value}):
                other = next((j for j in range(1, len(given)) if not refused(named({name: j}))), 0)
                cases.append(named(beside({name: i}, {name: other})))
                missing = {pair for pair in missing if (name, i) not in pair}
    while missing:
        first = min(missing, key=sorted)
        case = dict(sorted(first))
        wrong = refused(named(case))
        if wrong:
            case = beside(case, *({name: i} for name, i in case.items()))
        for name in sorted(values.keys() - case.keys(), key=lambda each: (-len(values[each]), each)):
            fuller = [{**case, name: i} for i in range(len(values[name]))]
            case = max((each for each in fuller if not refused(named(each))), key=lambda each: len(missing & pairs_of(each)))
        missing -= {first} if wrong else pairs_of(case)
        cases.append(named(case))
    return cases
