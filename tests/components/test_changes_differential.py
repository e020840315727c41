"""Strategy `changes`: whatever happens to the inputs and to a pass, a table equals its query after the next pass."""

import random
from collections import Counter
from uuid import uuid4

import pytest

from components.strategies.query_inputs import QueryInputs
from resources.spark.spark_engine import Spark
from tests.components.incremental_tables import (
    IncrementalTable,
    IncrementalTables,
    KilledPass,
    killed,
    moved,
    share,
    without_pictures,
)
from tests.components.random_queries import QueryGrammar
from tests.resources.lakehouse import Lakehouse

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("quick_creation")]

_STEPS = ((QueryInputs, "create_views"), (Spark, "computed"), (Spark, "ensure_table"), (Spark, "merge_following"))
"""Where a pass dies or an input moves, before the call or after it: the last is each commit but that of a rebuild."""


def sequence(lake: Lakehouse, patch: pytest.MonkeyPatch, seed: str, number: int, passes: int) -> list[IncrementalTable]:
    """Passes over tables of random queries, each after random changes, and with random kills."""
    without_pictures(patch)
    chance = random.Random(f"{seed}/passes")  # noqa: S311 changes, not keys
    queries = [QueryGrammar(f"{seed}/{position}").query(chance.choice((0, 1, 1, 2))) for position in range(number)]
    tables = IncrementalTables(lake, f"s_{uuid4().hex[:10]}", seed, queries)
    for _ in range(passes):
        # First all of them: an input that moves is one of other tables, too.
        for table in tables.tables:
            disturb(tables, table, chance, patch)
        for table in tables.tables:
            tables.checked_pass(table)
        tables.compare(tables.tables)
        tables.change(chance.choice((0, 1, 1, 2, 3)))
        for table in chance.sample(tables.tables, max(number // 8, 1)):
            if chance.random() < 0.5:
                tables.recode(table)
    return tables.tables


def disturb(tables: IncrementalTables, table: IncrementalTable, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Sometimes another pass comes first, that is killed or overtaken by a change of an input."""
    what = chance.random()
    if what > 0.25:
        return
    owner, name = chance.choice(_STEPS)
    calls = chance.choice((1, 1, 2))
    if what < 0.15:
        with killed(patch, owner, name, after=chance.random() < 0.5, calls=calls) as made:
            try:
                tables.run(table)
            except KilledPass:
                pass
            else:
                assert len(made) < calls
        if table.quarantined:
            table.excuses.add("its quarantine is not as the last pass left it")
        # The table may exist, without a commit that says of what it is.
        table.excuses.add("none of its latest commits says from which versions of the inputs it is")
        return
    with moved(patch, owner, name, lambda: tables.change(1)):
        tables.run(table)
    return


def report(tables: list[IncrementalTable]) -> None:
    """Tables whose query allows it are computed by what changed; most queries do."""
    derivable = [table for table in tables if not table.never]
    passes = share(derivable)
    kinds = Counter(table.query.kind for table in derivable)
    print(f"{len(tables)} cases, {len(derivable)} derivable: {dict(passes)} {dict(kinds)}")
    assert len(derivable) >= len(tables) * 0.5
    assert passes["changes"] >= passes["full"] * 0.8


# A set operation, groups of a join, and an as-of join whose first pass is killed.
@pytest.mark.parametrize("seed", ["short 9", "short 31", "short 15"])
def test_they_equal_their_queries(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    report(sequence(lake, monkeypatch, seed, 1, 2))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_they_equal_their_queries_at_length(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    report(sequence(lake, monkeypatch, str(seed), 20, 3))
