"""Spark reads the tables that the tests' own statements write, and the other way round."""

from typing import Any

import pytest

from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.stack

TYPES = "id INT NOT NULL, v STRING, d DECIMAL(6,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>, st STRUCT<x: INT, y: STRING>"
ROW = """({id}, 'it\\'s', 1.25, TIMESTAMP '2026-03-29 01:00:00.123456Z', DATE '2026-03-29', array('a'),
  named_struct('x', 1, 'y', 'z'))"""


def test_spark_reads_what_they_write(lake: Lakehouse, fresh_schema: str) -> None:
    lake.catalog.ensure_schemas((fresh_schema,))
    name = f"ratify.{fresh_schema}.t"
    feed = "TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'delta.enableChangeDataFeed' = 'true')"
    lake.quick(f"CREATE TABLE {name} ({TYPES}) USING DELTA {feed}")
    lake.quick(f"INSERT INTO {name} VALUES {', '.join(ROW.format(id=id_) for id_ in range(1, 6))}")
    lake.quick(f"INSERT INTO {name} (id, v) VALUES (6, NULL)")
    lake.quick(f"UPDATE {name} SET v = concat(v, '!'), d = d + 1 WHERE id = 2 OR v IS NULL")
    lake.quick(f"DELETE FROM {name} WHERE id = 3")
    lake.quick(f"ALTER TABLE {name} SET TBLPROPERTIES ('test.step' = '1')")
    lake.quick(f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE id <> 4")
    columns = "id, v, CAST(d AS STRING) AS d, unix_micros(at) AS at, CAST(day AS STRING) AS day, tags, st"
    rows = f"SELECT {columns} FROM {name} ORDER BY id"

    def both() -> list[tuple[Any, ...]]:
        by_spark, quick = ([tuple(row.values()) for row in read(rows)] for read in (lake.run, lake.quick))
        assert by_spark == quick
        return quick

    assert [row[:3] for row in both()] == [(1, "it's", "1.25"), (2, "it's!", "2.25"), (5, "it's", "1.25"), (6, None, None)]
    changes = f"SELECT _commit_version, _change_type, id, v FROM table_changes('{name}', 1) ORDER BY ALL"
    found = [tuple(row.values()) for row in lake.run(changes)]
    assert found[6:] == [
        (3, "update_postimage", 2, "it's!"),
        (3, "update_postimage", 6, None),
        (3, "update_preimage", 2, "it's"),
        (3, "update_preimage", 6, None),
        (4, "delete", 3, "it's"),
        *((6, "delete", id_, v) for id_, v in ((1, "it's"), (2, "it's!"), (4, "it's"), (5, "it's"), (6, None))),
        *((6, "insert", id_, v) for id_, v in ((1, "it's"), (2, "it's!"), (5, "it's"), (6, None))),
    ]
    # With a deletion vector.
    lake.run(f"DELETE FROM {name} WHERE id = 5")
    assert [row[0] for row in both()] == [1, 2, 6]
    # The vector goes, and comes back.
    for version, ids in ((6, [1, 2, 5, 6]), (7, [1, 2, 6])):
        lake.quick(f"RESTORE TABLE {name} TO VERSION AS OF {version}")
        assert [row[0] for row in both()] == ids
    restored = "SELECT _commit_version, _change_type, id FROM table_changes('{}', 8) ORDER BY ALL"
    found = [tuple(row.values()) for row in lake.run(restored.format(name))]
    assert found == [(8, "insert", 5), (9, "delete", 5)]
    with pytest.raises(NotImplementedError):
        lake.quick(f"RESTORE TABLE {name} TO VERSION AS OF 1")
    lake.quick(f"DROP TABLE {name}")
    lake.quick(f"CREATE TABLE {name} {feed} AS SELECT 1L AS id, 2.5D AS n FROM range(2)")
    assert lake.run(f"SELECT * FROM {name}") == [{"id": 1, "n": 2.5}] * 2
    with pytest.raises(NotImplementedError):
        lake.quick(f"OPTIMIZE {name}")
