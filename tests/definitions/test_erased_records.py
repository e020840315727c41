"""`ratify erase` and records: their tables, the tables of streams, the files that they came in, and what lands again."""

import bz2
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest

from ratify_lakehouse.components.checks.offset_checks import PARTITIONS, Partition, each_offset_once
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.definitions import project_tables
from ratify_lakehouse.engines.spark import stream_checkpoints
from ratify_lakehouse.errors import TableInUse
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS, ErasureKey
from ratify_lakehouse.ingest.records.erased_records import without_erased
from ratify_lakehouse.ingest.records.file_erasure import SubjectFiles
from ratify_lakehouse.ingest.records.file_records import FileSource
from ratify_lakehouse.ingest.records.record_source import SourceOptions
from ratify_lakehouse.settings import Settings
from ratify_lakehouse.sql.subject_match import VALUE, Match
from tests.cli.test_cli_restore import given, ratify
from tests.cli.test_erase import holders, listed_alone
from tests.components.test_yaml_tables import Shop, project, shop
from tests.definitions.member_clicks import MemberClicks
from tests.engines.lakehouse import Lakehouse, append, engines, lake

__all__ = ["engines", "given", "lake", "project", "shop"]

BY_KEY, BY_FIELD = Match("key", binary=True), Match("value", "by.id", binary=True)


@pytest.fixture
def clicks(given: Shop, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[MemberClicks]:
    clicks = MemberClicks(given, getattr(request, "param", "rewrite"))
    monkeypatch.setattr(project_tables, "declared_tables", lambda: given.project.tables)
    monkeypatch.setenv("LANDING_URL", str(given.landing))
    listed_alone(given.project, monkeypatch)
    yield clicks
    if clicks.validated:
        clicks.lake.run(f"DELETE FROM {clicks.lake.full(STREAM_BATCHES)} WHERE stream LIKE '%{clicks.project.id}%'")


@pytest.mark.stack
@pytest.mark.parametrize(
    "streamed", [pytest.param(False, id="put"), pytest.param(True, id="streamed", marks=pytest.mark.long)]
)
def test_an_erased_member_is_in_no_table_and_no_file_and_is_not_read_again(clicks: MemberClicks, streamed: bool) -> None:
    gone, other = f"gone-{uuid4().hex[:8]}", f"öther-{uuid4().hex[:8]}"
    clicks.land("a.json", "x", gone, other, gone, "y", broken=gone)
    clicks.land("b.json.gz", gone, other, by=gone)
    clicks.land("c.json", gone)
    clicks.land("d.json", other)
    if streamed:
        clicks.read()
        clicks.validate()
        clicks.assert_reconciled()
    else:
        clicks.put()
    tables = (clicks.raw, *clicks.stream.tables)
    folders = [clicks.shop.lake.folder(clicks.lake.full(table)) for table in tables]
    assert [bool(holders(folder, gone)) for folder in folders] == [True, True, True, False], "the ledger has no values"

    plan = json.loads(ratify("erase", "--subject", f"member={gone}", "--plan", "--json"))
    assert sorted(row["of the subject"] for row in plan["tables"]) == [1, 4, 6]
    assert {each["file"]: each["why it stays"] for each in plan["landed files"]} == dict.fromkeys(
        ("a.json", "b.json.gz", "c.json"), ""
    )
    with stream_checkpoints.exclusive(clicks.raw), pytest.raises(AssertionError, match=TableInUse.__name__):
        clicks.erase(gone)
    report = clicks.erase(gone)
    assert len(report["landed files rewritten"]) == 3
    assert clicks.held() == clicks.expected()
    assert not (clicks.folder / "c.json").exists(), "it had no other records"
    assert not (clicks.folder / "b.json.gz").exists()
    assert (clicks.folder / "a.json").read_text() == "".join(
        f"{line}\n" for members, line in clicks.landed["a.json"] if gone not in members
    )
    # What removed offsets between others is known.
    rows = clicks.lake.spark.rows(clicks.lake.spark.sql(PARTITIONS, raw=clicks.lake.spark.table(clicks.raw)))
    table_id = clicks.lake.catalog.table(clicks.lake.full(clicks.raw)).table_id
    removed = clicks.look(f"SELECT rows_removed FROM uc.ops.acknowledged_commits WHERE table_id = '{table_id}'")
    assert removed == [({"files:a.json/0": 3},)]
    assert not each_offset_once([Partition(**row) for row in rows]).passed
    assert each_offset_once([Partition(**row) for row in rows], removed[0][0]).passed

    # The same bytes in files that land later, in one that was read, and after the stream has forgotten all. Beside the
    # random tests, whose stream goes on from where it was, and rebuilds its table by itself.
    clicks.write("a.json", [line for _, line in clicks.landed["a.json"]])
    clicks.land("e.json", other, gone, by="")
    clicks.land("f.json", gone)
    if streamed:
        stream_checkpoints.forget(clicks.lake.spark, clicks.raw)
        clicks.read()
        assert clicks.held() == clicks.expected()
    clicks.read(full_refresh=True, force=True)
    assert clicks.held() == clicks.expected()
    if streamed:
        clicks.validate(full_refresh=True)
        clicks.assert_reconciled()
    assert gone not in clicks.users(clicks.stream.quarantine)


STEPS = {"land": 5, "read": 4, "validate": 3, "erase": 2, "again": 2, "forget": 1, "refresh": 1}


def sequence(clicks: MemberClicks, chance: random.Random, steps: Sequence[str], *, validated: bool) -> None:
    """Files land, are read and validated, members are erased, and checkpoints are lost, at random.

    `validated`: at the end, too.
    """
    members = [f"{name}-{uuid4().hex[:6]}" for name in ("ann", "bö", "cy", "dee", "eve")]
    clicks.land("0.json", *members)
    clicks.read()
    for number, step in enumerate(steps, 1):
        match step:
            case "land":
                name = f"{number}.json{chance.choice(['', '.gz'])}"
                some = [chance.choice(members) for _ in range(chance.randrange(1, 6))]
                clicks.land(name, *some, broken=chance.choice(["", *members]), by=chance.choice(["", "", *members]))
            case "read":
                clicks.read()
                assert clicks.held() == clicks.expected(), (steps, number)
            case "validate":
                clicks.read()
                clicks.validate()
                clicks.assert_reconciled()
            case "erase":
                clicks.erase(chance.choice(members))
                held = clicks.held()
                assert held == held & clicks.expected(), (steps, number)
            case "again":
                # A file that was rewritten comes again as it was.
                name = chance.choice([*clicks.landed])
                clicks.write(name, [line for _, line in clicks.landed[name]])
            case "forget":
                stream_checkpoints.forget(clicks.lake.spark, clicks.raw)
            case _:
                for name, lines in clicks.landed.items():
                    clicks.write(name, [line for _, line in lines])
                clicks.read(full_refresh=True, force=True)
                clicks.validate(full_refresh=True)
                clicks.assert_reconciled()
    clicks.read()
    assert clicks.held() == clicks.expected(), steps
    if validated:
        clicks.validate()
        clicks.assert_reconciled()


# One sequence that is chosen is above.
@pytest.mark.long
@pytest.mark.stack
@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("clicks", ["keep"], indirect=True)
def test_records_and_erasures_at_random(clicks: MemberClicks, validated: bool) -> None:
    sequence(clicks, random.Random(51), ["land", "erase", "again"], validated=validated)  # noqa: S311


@pytest.mark.long
@pytest.mark.stack
@pytest.mark.parametrize("seed", range(100, 106))
@pytest.mark.parametrize("clicks", ["keep", "rewrite"], indirect=True)
def test_records_and_erasures_at_random_at_length(clicks: MemberClicks, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    sequence(clicks, chance, ["validate", *chance.choices([*STEPS], [*STEPS.values()], k=24), "refresh"], validated=True)


@pytest.mark.stack
@pytest.mark.parametrize("seed", range(12))
def test_lines_of_files_at_random(seed: int, lake: Lakehouse, tmp_path: Path) -> None:
    """The lines that are removed are those that Python finds; the others have the bytes that they had."""
    chance = random.Random(seed)  # noqa: S311
    form, packing = chance.choice(["json", "kcat"]), chance.choice(["", ".gz", ".bz2"])
    value = chance.choice(["7", "ann", "Größe", 'a"b', "x\\y"])
    lines, expected, removed = list[bytes](), list[bytes](), 0
    for number in range(chance.randrange(1, 30)):
        user = chance.choice([value, value + "7", "other", ""])
        by = chance.choice([value, "other", None])
        record: Any = {"user": user, "n": number} | ({"by": {"id": by}} if by else {})
        payload = json.dumps(record, ensure_ascii=chance.random() < 0.5)
        line, mine = payload, value in (user, by)
        if form == "kcat":
            envelope = {"topic": "t", "partition": 0, "offset": number, "key": user, "payload": payload}
            if chance.random() < 0.2:
                # Without an offset it is no envelope, and a record of its own.
                del envelope["offset"]
                mine = False
            line = json.dumps(envelope, ensure_ascii=chance.random() < 0.5)
        if chance.random() < 0.15:
            line, mine = chance.choice([("", False), (f"no JSON {value}", False), (line[:-2], False)])
        data = line.encode() + chance.choice([b"\n", b"\r\n"])
        if chance.random() < 0.1:
            data, mine = b"\xff" + data, False
        lines.append(data)
        removed += mine
        if not mine:
            expected.append(data)
    if chance.random() < 0.5 and lines[-1].strip():
        if lines[-1] == (expected or [b""])[-1]:
            expected[-1] = expected[-1].rstrip(b"\r\n")
        lines[-1] = lines[-1].rstrip(b"\r\n")
    codecs = {"": (bytes, bytes), ".gz": (gzip.compress, gzip.decompress), ".bz2": (bz2.compress, bz2.decompress)}
    pack, unpack = codecs[packing]
    (tmp_path / f"f.json{packing}").write_bytes(pack(b"".join(lines)))
    (tmp_path / "other.json").write_bytes(b'{"user": "other"}\n')
    (tmp_path / "f.json.zst").write_bytes(value.encode())
    source = FileSource(SourceOptions(source="files", files=str(tmp_path), format=form, key="user"))
    files = SubjectFiles(source, lake.duckdb, [BY_KEY, BY_FIELD], value)
    found = {file.path: stays for file, stays in files.holding()}
    assert found.pop("f.json.zst") == "files packed as .zst are not searched"
    assert found == ({f"f.json{packing}": ""} if removed else {})
    if removed:
        assert files.rewrite(f"f.json{packing}") == removed
        left = tmp_path / f"f.json{packing}"
        assert (unpack(left.read_bytes()) if left.exists() else b"") == b"".join(expected)
        assert f"f.json{packing}" not in {file.path for file, _ in files.holding()}
    assert files.rewrite("missing.json") is None


def test_engines_know_the_same_records() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t (key BLOB, value BLOB)")
    values = [b"ann", b"\xff", None, "Größe".encode(), b'{"by": {"id": "ann"}}', b'{"by": {"id": 7}}', b"{", b"[1]"]
    con.executemany("INSERT INTO t VALUES (?, ?)", [(value, value) for value in values])

    def found(match: Match, value: str) -> list[bytes]:
        return [row[0] for row in con.execute(f"SELECT value FROM t WHERE {match.duckdb}", {VALUE: value}).fetchall()]

    assert found(BY_KEY, "ann") == [b"ann"]
    assert found(BY_KEY, "Größe") == ["Größe".encode()]
    assert found(BY_FIELD, "ann") == [values[4]]
    assert found(BY_FIELD, "7") == [values[5]]
    assert BY_FIELD.spark("t", "v") == "(get_json_object(CAST(t.`value` AS STRING), '$.by.id') = v)"


@pytest.mark.stack
def test_the_key_of_the_hashes_is_not_in_the_plan(clicks: MemberClicks) -> None:
    spark, key = clicks.lake.spark, ErasureKey.stored(Settings().home, create=True)
    digest = key.digest("member", f"gone-{uuid4().hex[:8]}")
    append(clicks.lake.duckdb, ERASED_SUBJECTS, f"SELECT 'member', '{digest}', '{key.id}', '', now(), 'request 7'", digest)
    explained = without_erased(spark, clicks.raw, spark.table(clicks.raw))._explain_string(extended=True)
    inner, outer = key.pads
    assert "inner_pad" in explained
    assert not any(pad.hex() in explained.lower() or str(pad) in explained for pad in (inner, outer))
