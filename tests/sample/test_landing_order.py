"""Of several landed rows of an airport the last good one counts, by the order of landings and by no clock."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratify_lakehouse.components.landing_order import landed_rows, with_landing
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.ingest.load import batch_loading
from tests.engines.lakehouse import Lakehouse
from tests.ingest.test_batch_loading import Landing, new_source
from tests.sample.sample_tables import query_of, source_of, split

pytestmark = pytest.mark.stack

LANDED_AIRPORTS = source_of("bronze.airports")
NEW_YORK, CHICAGO, DENVER, PHOENIX = (f"America/{city}" for city in ("New_York", "Chicago", "Denver", "Phoenix"))
IMPOSSIBLE = "Mars/Phobos"


class Airports(Landing):
    """Files of airports, and what silver must hold: a plain list of landings, in their order."""

    def __init__(self, lake: Lakehouse, root: Path) -> None:
        super().__init__(lake, root, new_source(*LANDED_AIRPORTS.header))
        self.landings = list[dict[str, str]]()
        self.moments = list[tuple[tuple[int, int], tuple[dict[str, str], set[str]]]]()

    def write(self, name: str, zones: dict[str, str]) -> None:
        lines = [f"{faa},{faa} airport,0,0,0,0,A,{zone}" for faa, zone in zones.items()]
        self.put(name, "\n".join([",".join(LANDED_AIRPORTS.header), *lines, ""]))

    def land(self, name: str, **zones: str) -> Status:
        self.write(name, zones)
        self.landings.append(zones)
        (file,) = self.load(name).files
        return file.status

    def wanted(self) -> tuple[dict[str, str], set[str]]:
        """Of each airport the zone of its last good row; the codes of bad rows."""
        effective, bad = dict[str, str](), set[str]()
        for zones in self.landings:
            effective |= {faa: zone for faa, zone in zones.items() if zone != IMPOSSIBLE}
            bad |= {faa for faa, zone in zones.items() if zone == IMPOSSIBLE}
        return effective, bad

    def note(self) -> tuple[dict[str, str], set[str]]:
        """Note the versions that tables have by now, and return what silver must hold as of these."""
        versions = self.lake.version(self.source.table), self.lake.version(LANDED_FILES)
        self.moments.append((versions, self.wanted()))
        return self.wanted()

    def check(self) -> None:
        """Compare all moments in one query, in which an airport's code begins with the number of its moment."""
        spark, full_name = self.lake.spark, self.lake.full(self.source.table)
        of_moments = (
            f"SELECT * EXCEPT (faa), concat('{number}', faa) AS faa FROM ({landed_rows(spark, full_name, *versions)})"
            for number, (versions, _) in enumerate(self.moments)
        )
        # Otherwise Spark would plan and read all of it for the rows, and again for the quarantine.
        landed = spark.computed(spark.sql(" UNION ALL ".join(of_moments)))
        airports, quarantine = split(self.lake, query_of("silver.airports"), airports=landed)
        both = (
            "SELECT faa, zone, NULL AS rule, NULL AS row FROM {airports} UNION ALL SELECT NULL, NULL, rule, row FROM {bad}"
        )
        rows = spark.rows(spark.sql(both, airports=airports, bad=quarantine))
        assert {row["rule"] for row in rows} <= {"zone_exists", None}
        good, bad = ([row for row in rows if (row["rule"] is None) == passes] for passes in (True, False))
        found = {row["faa"]: row["zone"] for row in good}, {json.loads(row["row"])["faa"] for row in bad}
        wanted = [
            ({f"{number}{faa}": zone for faa, zone in zones.items()}, {f"{number}{faa}" for faa in codes})
            for number, (_, (zones, codes)) in enumerate(self.moments)
        ]
        assert found == (
            {faa: zone for zones, _ in wanted for faa, zone in zones.items()},
            set().union(*(b for _, b in wanted)),
        )


def backwards() -> Iterator[dt.datetime]:
    """A clock that jumps back by 31 days at each look."""
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    while True:
        yield now
        now -= dt.timedelta(days=31)


@pytest.mark.parametrize("each_moment", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_last_good_landing_counts_whatever_the_clocks_say(
    lake: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, each_moment: bool
) -> None:
    airports, clock = Airports(lake, tmp_path), backwards()
    # Rows of the last two moments show what the others do, too.
    note = airports.note if each_moment else airports.wanted
    frozen = SimpleNamespace(now=lambda _: next(clock))
    monkeypatch.setattr(batch_loading, "dt", SimpleNamespace(**vars(dt) | {"datetime": frozen}))

    assert airports.land("z.csv", BOS=NEW_YORK, LAX=DENVER, JFK=NEW_YORK, DEN=PHOENIX) is Status.LOADED
    assert airports.land("b.csv", BOS=CHICAGO, ORD=CHICAGO) is Status.LOADED
    # One impossible zone stops nothing, and the airport stays as it was: JFK to the end.
    impossible = {"BOS": IMPOSSIBLE, "JFK": IMPOSSIBLE}
    assert airports.land("a.csv", **impossible, LAX=PHOENIX, SEA=DENVER, ORD=PHOENIX) is Status.LOADED
    good = {"BOS": CHICAGO, "LAX": PHOENIX, "SEA": DENVER, "ORD": PHOENIX, "JFK": NEW_YORK, "DEN": PHOENIX}
    assert note() == (good, {"BOS", "JFK"})
    # Old bytes that land again add no rows, and count again: under another name, seen in LAX, and under their own, in ORD.
    assert airports.land("y.csv", BOS=NEW_YORK, LAX=DENVER, JFK=NEW_YORK, DEN=PHOENIX) is Status.REPEATED
    assert airports.land("b.csv", BOS=CHICAGO, ORD=CHICAGO) is Status.REPEATED
    assert note() == (good | {"LAX": DENVER, "ORD": CHICAGO}, {"BOS", "JFK"})

    # A load that dies before its entry landed after what was loaded before, seen in DEN, and before what is loaded next,
    # seen in BOS, also once its entry is written.
    airports.write("d.csv", {"BOS": DENVER, "DEN": DENVER})
    airports.landings.append({"BOS": DENVER, "DEN": DENVER})

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt("killed before the ledger was written")

    with monkeypatch.context() as patch:
        patch.setattr(FileLedger, "_append", dies)
        with pytest.raises(KeyboardInterrupt):
            airports.load("d.csv")
    note()
    assert airports.land("c.csv", BOS=PHOENIX) is Status.LOADED
    airports.note()
    assert [file.status for file in airports.load("d.csv").files] == [Status.REPEATED]
    airports.note()
    airports.check()


def test_of_a_batch_the_last_file_counts(lake: Lakehouse, tmp_path: Path) -> None:
    airports = Airports(lake, tmp_path)
    # The third repeats the first, and adds no rows.
    for name, zone in (("1.csv", DENVER), ("2.csv", PHOENIX), ("3.csv", DENVER), ("4.csv", CHICAGO)):
        airports.write(name, {"BOS": zone})
        airports.landings.append({"BOS": zone})
    airports.load()
    airports.note()
    airports.check()
    # As `ratify sql` reads the column.
    newest = f"SELECT {LANDED_AIRPORTS.header[-1]} AS zone FROM {airports.source.table_name} ORDER BY _landing DESC LIMIT 1"
    assert lake.spark.rows(lake.spark.sql(with_landing(lake.spark, newest))) == [{"zone": CHICAGO}]
