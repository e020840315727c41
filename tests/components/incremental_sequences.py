"""Random sequences over incremental tables: passes, changes of inputs, kills, passes that others overtake, other code."""

import random
from collections import Counter
from uuid import uuid4

import pytest

from tests.components.incremental_tables import (
    IncrementalTable,
    IncrementalTables,
    KilledPass,
    killed,
    moved,
    share,
    without_pictures,
)
from tests.components.sparkless import Sparkless
from tests.engines.lakehouse import Lakehouse


def sequence(
    lake: Lakehouse | Sparkless,
    patch: pytest.MonkeyPatch,
    seed: str,
    number: int,
    passes: int,
    kind: type[IncrementalTables] = IncrementalTables,
    *,
    compared: bool = True,
) -> list[IncrementalTable]:
    """Passes over tables of random queries, each after random changes, and with random kills.

    `compared`: after each pass; otherwise after the last one alone.
    """
    without_pictures(patch)
    chance = random.Random(f"{seed}/passes")  # noqa: S311 changes, not keys
    queries = [kind.random_query(f"{seed}/{position}", chance.choice((0, 1, 1, 2))) for position in range(number)]
    tables = kind(lake, f"s_{uuid4().hex[:10]}", seed, queries)
    for done in range(1, passes + 1):
        if done > 1:
            tables.change(chance.choice((0, 1, 1, 2, 3)))
            for table in chance.sample(tables.tables, max(number // 8, 1)):
                if chance.random() < 0.5:
                    tables.recode(table)
        # First all of them: an input that moves is one of other tables, too.
        for table in tables.tables:
            disturb(tables, table, chance, patch)
        for table in tables.tables:
            tables.checked_pass(table)
        if compared or done == passes:
            tables.compare(tables.tables)
    return tables.tables


def disturb(tables: IncrementalTables, table: IncrementalTable, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Sometimes another pass comes first, that is killed or overtaken by a change of an input."""
    what = chance.random()
    if what > 0.25:
        return
    owner, name = chance.choice(tables.steps)
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
        table.excuses.add("none of its latest commits records its input versions")
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
    assert passes["incremental"] >= passes["full"] * 0.8
