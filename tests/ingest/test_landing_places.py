"""The files of a batch landed in their order, whatever became of each: loaded, repeated, replaced, or left by a kill."""

import pytest

from ratify_lakehouse.ingest.file_source import Rewrite
from tests.ingest.landing_places import landing_order
from tests.ingest.test_ledger_model import LedgerMachine, machine

__all__ = ["machine"]

pytestmark = pytest.mark.server

A, B, C = "a.csv", "b.csv", "c.csv"
REFUSE, REPLACE = Rewrite.REFUSE, Rewrite.REPLACE
# What happens, and the contents of the table in the order in which they count. A dict lands files; a list is loaded as one
# batch; what is named is a seam at which that load dies, or what else happens.
STORIES = {
    "a repeated file between": (REFUSE, [{A: "one", B: "one", C: "two"}, [A, B, C]], ["one", "two"]),
    "a repeated file at the end": (REFUSE, [{A: "one", B: "two", C: "one"}, [A, B, C]], ["two", "one"]),
    "a file of an earlier batch before a new one": (
        REFUSE,
        [{A: "one"}, [A], {B: "one", C: "two"}, [B, C]],
        ["one", "two"],
    ),
    "nothing new, twice": (
        REFUSE,
        [{A: "one"}, [A], {B: "two"}, [B], {C: "two", A: "none", B: "one"}, [A], [B, C], {C: "one"}, [C], {C: "none"}, [C]],
        ["two", "one", "none"],
    ),
    "a replacement before a new file": (REPLACE, [{A: "one"}, [A], {A: "two", B: "none"}, [A, B]], ["two", "none"]),
    "two replacements": (
        REPLACE,
        [{A: "one", C: "none"}, [A, C], {A: "two", B: "one"}, [A, B], {A: "none", C: "two"}, [A, B, C]],
        ["one", "none", "two"],
    ),
    "a load that dies before its entries": (
        REFUSE,
        [{A: "one", B: "one", C: "two"}, "record", [A, B, C], {A: "none"}, {A: "one"}, [A, B, C]],
        ["one", "two"],
    ),
    "a load that dies, and another one meanwhile": (
        REFUSE,
        [{A: "one", B: "one"}, "record", [A, B], {C: "two"}, [C], [A, B]],
        ["one", "two"],
    ),
    "rows that are lost, and loaded again": (
        REFUSE,
        [{A: "one", B: "two", C: "one"}, [A, B, C], "lost", [A, B, C]],
        ["two", "one"],
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_the_order_of_a_batch_is_that_of_its_files(story: str, machine: type[LedgerMachine]) -> None:
    policy, steps, wanted = STORIES[story]
    lake, seam = machine(), ""
    lake.start((policy, policy))
    for step in steps:
        match step:
            case dict():
                for path, content in step.items():
                    lake.land(path, content, False)
            case list():
                lake.load(0, step, (seam, 1, None) if seam else None)
                seam = ""
            case "lost":
                lake.lose_a_file(0, 0, dies=False)
            case _:
                seam = step
    with lake.engine() as engine, engine.session() as session:
        found = landing_order(session, lake.source(0).table_name, lake.models[0].held)
    assert found == wanted == lake.models[0].in_order()
