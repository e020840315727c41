"""The seams of a load: where a test lets it die, or lets something else happen."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.ledger.ledger_access import FileLedger
from ratify_lakehouse.landing.landing_zone import LandingZone

SEAMS = ("propose", "answer", "publish", "record", "fetch")


class LoadKilled(BaseException):
    """The process ends here: nothing after this line runs."""


@contextmanager
def dying_at(seam: str, number: int, table: str, meanwhile: Callable[[], None] | None) -> Iterator[Counter[str]]:
    """Count what a load reaches; at the `number`th pass of a seam, run `meanwhile`, or die.

    `propose`: before a version of the bronze table is proposed. `answer`: after it was ratified. `publish`: before it is
    published. `record`: before the ledger's entries are appended. `fetch`: before a file is read.
    """
    passed = Counter[str]()
    ask, publish, append = UnityCatalog.update_table, DeltaLog._publish, FileLedger._append
    fetch = LandingZone.fetch

    def reached(name: str, *, ours: bool = True) -> None:
        passed[name] += ours
        if ours and name == seam and passed[name] == number:
            if meanwhile is None:
                raise LoadKilled
            meanwhile()

    def update_table(self: UnityCatalog, full_name: str, *more: Any) -> Any:
        ours = full_name.endswith(f".{table}")
        reached("propose", ours=ours)
        answer = ask(self, full_name, *more)
        passed["commits"] += ours
        reached("answer", ours=ours)
        if full_name.endswith(f".{LANDED_FILES.name}"):
            # They are in the ledger now, even if the process dies before it hears of it.
            passed["notes"] += passed.pop("notes proposed", 0)
        return answer

    def publishing(self: DeltaLog, commits: Any) -> None:
        reached("publish")
        publish(self, commits)

    def appending(self: FileLedger, rows: Any, loads: Any) -> None:
        reached("record")
        passed["notes proposed"] = any(row["status"] in ("repeated", "refused") for row in rows)
        append(self, rows, loads)

    def fetching(self: LandingZone, path: str, folder: Path) -> Any:
        reached("fetch")
        return fetch(self, path, folder)

    with (
        patch.object(UnityCatalog, "update_table", update_table),
        patch.object(DeltaLog, "_publish", publishing),
        patch.object(FileLedger, "_append", appending),
        patch.object(LandingZone, "fetch", fetching),
    ):
        yield passed
