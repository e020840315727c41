"""A column that is declared without a type has the type that it has in the table, or that its first file gives it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from ratify_lakehouse.components.landed_files_component import LandedFiles
from ratify_lakehouse.delta.declaration_drift import differences
from ratify_lakehouse.errors import UnsafeDeclaration, UnsafeTable
from ratify_lakehouse.ingest.file_source import RESERVED, Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, Status
from ratify_lakehouse.ingest.load.batch_loading import load_batch
from ratify_lakehouse.ingest.load.landed_table import ensure_landed_table, present_table
from ratify_lakehouse.landing.landing_zone import LandingZone
from tests.components.sparkless import Sparkless, sparkless

__all__ = ["sparkless"]

pytestmark = pytest.mark.server

UNTYPED = [{"name": "id"}, {"name": "address", "pii": True}, {"name": "amount", "type": "decimal(10,2)"}]
STRUCT = "struct<street:string,number:bigint>"
ROW = """SELECT 7 AS id, {'street': 'Hauptstraße', 'number': 5::BIGINT} AS address, '1.50' AS amount"""


def written(form: str, file: Path) -> None:
    """A file with one row: the address is a text in CSV, and a struct elsewhere."""
    options = {"csv": "(FORMAT csv, HEADER)", "jsonl": "(FORMAT json)", "parquet": "(FORMAT parquet)"}[form]
    address = "'Hauptstraße 5' AS address" if form == "csv" else "address"
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT id::BIGINT AS id, {address}, amount FROM ({ROW})) TO '{file}' {options}")


class DeclaredFiles:
    """A table of landed files that is declared several times."""

    def __init__(self, lake: Sparkless, root: Path, name: str) -> None:
        self.lake, self.root, self.name = lake, root, name
        self.zone = LandingZone(url=str(root / "landing"))
        (root / "landing" / name).mkdir(parents=True)

    def file(self, name: str) -> Path:
        return self.root / "landing" / self.name / name

    def source(self, columns: Sequence[Mapping[str, Any]], **more: Any) -> Source:
        attributes = {"description": "Of a test", "pattern": f"{self.name}/*", "columns": columns, **more}
        component = LandedFiles.resolve_from_yaml(yaml.safe_dump(attributes))
        component.place(self.root / "bronze" / self.name)
        return component.source

    def load(self, columns: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Status]:
        """Load all files, as a run of the table does; return how each ended."""
        source = self.source(columns, **more)
        files = self.zone.files(source.pattern)
        ensure_landed_table(self.lake.spark, self.lake.duckdb, self.zone, source, files)
        outcome = load_batch(self.lake.duckdb, self.zone, source, files) if files else None
        return {Path(file.path).name: file.status for file in outcome.files} if outcome else {}

    def types(self) -> dict[str, str]:
        with self.lake.duckdb.session() as session:
            found = session.columns(self.source([]).table)
        return {column.name: column.type for column in found if column.name not in RESERVED}

    def wrong(self, columns: Sequence[Mapping[str, Any]], **more: Any) -> list[str]:
        """In what the table is not as it is declared, which its checks and `ratify drift` say."""
        declared = self.source(columns, **more).table
        with self.lake.duckdb.session() as session:
            snapshot = session.log(declared).refresh()
        return [str(each) for each in differences(snapshot, declared)]


@pytest.fixture(scope="module")
def ledger(sparkless: Sparkless) -> Sparkless:
    sparkless.spark.ensure_table(LANDED_FILES)
    return sparkless


@pytest.fixture
def landed(ledger: Sparkless, tmp_path: Path) -> Callable[[str], DeclaredFiles]:
    return lambda name: DeclaredFiles(ledger, tmp_path, name)


@pytest.mark.parametrize("more", [{}, {"evolving": True}], ids=["declared", "evolving"])
@pytest.mark.parametrize(("form", "address"), [("csv", "string"), ("jsonl", STRUCT), ("parquet", STRUCT)])
def test_the_first_file_gives_the_type(
    landed: Callable[[str], DeclaredFiles], form: str, address: str, more: Mapping[str, Any]
) -> None:
    table = landed(f"first_{form}_{len(more)}")
    written(form, table.file(f"1.{form}"))
    assert table.load(UNTYPED, **more) == {f"1.{form}": Status.LOADED}
    assert table.types() == {"id": "bigint", "address": address, "amount": "decimal(10,2)"}
    assert table.wrong(UNTYPED, **more) == []
    with table.lake.duckdb.session() as session:
        present = present_table(session, table.source(UNTYPED, **more))
    assert present.personal == ("address",)


def test_a_table_keeps_its_types(landed: Callable[[str], DeclaredFiles]) -> None:
    """Of an earlier declaration, or of the time when no type meant text: the files that follow are loaded all the same."""
    table = landed("kept")
    typed = [{**column, "type": column.get("type", "string")} for column in UNTYPED]
    table.file("1.jsonl").write_text('{"id": "a", "address": "Here 1", "amount": "2.00"}\n')
    table.load(typed)
    written("jsonl", table.file("2.jsonl"))
    assert table.load(UNTYPED)["2.jsonl"] is Status.LOADED
    assert table.types() == {"id": "string", "address": "string", "amount": "decimal(10,2)"}
    assert table.wrong(UNTYPED) == []
    with table.lake.duckdb.session() as session:
        rows = session.rows("SELECT id, address FROM uc.bronze.kept ORDER BY _source_file")
    assert rows == [("a", "Here 1"), ("7", '{"street":"Hauptstraße","number":5}')]


def test_what_a_table_lacks_is_added(landed: Callable[[str], DeclaredFiles]) -> None:
    """Also to one whose columns are inferred: `rescue`, a typed column, and an untyped one as soon as a file has it."""
    table = landed("lacking")
    table.file("1.jsonl").write_text('{"id": 1}\n')
    table.load([])
    more = [{"name": "zip", "type": "string", "description": "Postal code"}, {"name": "address"}]
    assert table.load(more, evolving=True, rescue=True) == {"1.jsonl": Status.REPEATED}
    assert table.wrong(more, evolving=True, rescue=True) == []
    assert table.types() == {"id": "bigint", "zip": "string", "address": "string"}
    table = landed("later")
    table.file("1.jsonl").write_text('{"id": 1}\n')
    table.load([{"name": "id"}])
    table.file("1.jsonl").unlink()
    declared = [{"name": "id"}, {"name": "address"}]
    table.load(declared)
    assert table.types() == {"id": "bigint"}
    assert "address" in table.wrong(declared)[0]
    written("jsonl", table.file("2.jsonl"))
    declared.append({"name": "amount", "description": "In euros"})
    assert table.load(declared) == {"2.jsonl": Status.LOADED}
    assert table.wrong(declared) == []
    assert table.types() == {"id": "bigint", "address": STRUCT, "amount": "string"}


def test_what_cannot_be(landed: Callable[[str], DeclaredFiles]) -> None:
    table = landed("refused")
    written("jsonl", table.file("1.jsonl"))
    others = table.load([{"name": "id"}, {"name": "address"}])
    assert others == {"1.jsonl": Status.REFUSED}, "a column that is not declared"
    with pytest.raises(UnsafeTable, match="Declare it as nullable"):
        table.load([*UNTYPED[:2], {"name": "country", "type": "string", "nullable": False}])
    table = landed("subjects")
    table.file("1.jsonl").write_text('{"id": 1.5}\n')
    with pytest.raises(UnsafeDeclaration, match="no subject can be found by it"):
        table.load([{"name": "id", "subject": "user"}])
