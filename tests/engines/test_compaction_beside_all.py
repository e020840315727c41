"""A table of very many small files is compacted while DuckDB's writers append, Spark merges and a stream reads."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.engines.duckdb import feed_reading
from ratify_lakehouse.engines.duckdb.table_compaction import CompactedBin
from ratify_lakehouse.errors import CommitConflict
from tests.engines.lakehouse import Lakehouse, append, pairs
from tests.engines.test_table_clean import log_of
from tests.engines.test_table_compaction import FEED, ROW_TRACKING, compacted_by

pytestmark = pytest.mark.stack

WRITERS = 4
ROWS_OF_A_FILE = 10


class Beside:
    """What goes on beside a compaction, until `stop` is set: what it wrote is in `appended` and `merged`."""

    def __init__(self, lake: Lakehouse, table: TableDeclaration, rows: int) -> None:
        self.lake, self.table, self.rows = lake, table, rows
        self.stop = threading.Event()
        self.appended, self.merged = list[tuple[int, str]](), set[int]()

    def append(self, writer: int) -> None:
        with closing(self.lake.another_duckdb(threads=1)) as duckdb:
            for commit in range(200):
                id_ = self.rows + writer * 1000 + commit
                append(duckdb, self.table, f"SELECT {id_}::BIGINT, 'appended'", f"{writer}-{commit}")
                self.appended.append((id_, "appended"))
                # All writers at once, for four seconds of twenty: a MERGE of a table whose isolation is serializable fails
                # where rows were appended meanwhile.
                if self.stop.wait(0.2 if time.time() % 20 < 4 else 20 - time.time() % 20):
                    return

    def merge(self) -> None:
        """Rows of two files each time; a conflict is what Delta gives beside any OPTIMIZE, and changes nothing."""
        for number in range(200):
            chosen = (number, self.rows // 2 + number)
            keys = f"(SELECT explode(array({chosen[0]}L, {chosen[1]}L)) AS id) AS s"
            try:
                self.lake.run(
                    f"MERGE INTO {self.lake.full(self.table)} AS t USING {keys} ON t.id = s.id "
                    "WHEN MATCHED THEN UPDATE SET v = 'merged'"
                )
                self.merged.update(chosen)
            except CommitConflict:
                pass
            if self.stop.wait(1):
                return

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(WRITERS + 1) as pool:
            going = [pool.submit(self.append, writer) for writer in range(WRITERS)] + [pool.submit(self.merge)]
            try:
                yield
            finally:
                self.stop.set()
            for future in going:
                future.result()


def compacted_beside(lake: Lakehouse, files: int, folder: Path) -> None:
    table, seen = pairs(properties={FEED: "true", ROW_TRACKING: "false"}), pairs(properties={ROW_TRACKING: "false"})
    for each in (table, seen):
        lake.create(each)
    full_name, rows = lake.full(table), files * ROWS_OF_A_FILE
    lake.run(f"INSERT INTO {full_name} SELECT /*+ REPARTITION({files}) */ id, 'old' FROM range({rows})")
    log = log_of(lake, table)
    assert len(log.files(log.refresh())) == files
    reader = lake.spark.session.readStream.option("skipChangeCommits", "true").option(
        "startingVersion", log.refresh().version
    )
    writer = (
        reader.table(full_name).filter("v = 'appended'").writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    )
    stream = writer.trigger(processingTime="2 seconds").toTable(lake.full(seen))
    beside, done = Beside(lake, table, rows), list[CompactedBin]()
    try:
        with beside.running(), closing(lake.another_duckdb(threads=1)) as duckdb:
            while not done or len(beside.merged) < 4 or len(log.files(log.refresh())) > files // 10:
                try:
                    done += compacted_by(duckdb, full_name)
                except CommitConflict:
                    # Ten plans, before each of which the merge had changed files: as its message says, once more.
                    continue
        stream.processAllAvailable()
    finally:
        stream.stop()
    with closing(lake.another_duckdb(threads=1)) as duckdb:
        done += compacted_by(duckdb, full_name)
    assert len(log.files(log.refresh())) < 5
    appended = sorted(beside.appended)
    assert len({(id_ - rows) // 1000 for id_, _ in appended}) == WRITERS
    wanted = [(id_, "merged" if id_ in beside.merged else "old") for id_ in range(rows)] + appended
    assert lake.rows(table) == wanted
    assert lake.rows(seen) == appended
    versions = {bin_.version for bin_ in done}
    with lake.duckdb.session() as session:
        assert session.rows(f"SELECT id, v FROM uc.bronze.{table.name} ORDER BY id") == wanted
        changes = feed_reading.read_changes(session, lake.duckdb.log(full_name))
        found = changes.select("_commit_version").distinct().fetchall()
    assert not versions & {version for (version,) in found}


@pytest.mark.long
@pytest.mark.parametrize("files", [100, 9000])
def test_nothing_is_lost_or_doubled_and_no_reader_sees_a_change(lake: Lakehouse, files: int, tmp_path: Path) -> None:
    compacted_beside(lake, files, tmp_path)
