"""By which columns a subject is found, against a model that computes random tables of random queries from a few rows."""

import random
from dataclasses import dataclass, field

import pytest

from ratify_lakehouse.components.subject_columns import SubjectTable, computed_table, subject_columns
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.sql.subject_match import Match
from ratify_lakehouse.sql.table_query import TableName, TableQuery

PERSON = "Ann"


@dataclass
class LineageModel:
    """A table, its one row of the person, and whether each column holds something of a person."""

    name: str
    row: dict[str, str]
    personal: dict[str, bool]
    sources: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    table: SubjectTable = field(default_factory=lambda: SubjectTable(""))


def landed(name: str, chance: random.Random) -> LineageModel:
    has = chance.random() < 0.7
    columns = (Column("who", "string", subject="user" if has else ""), Column("note", "string", pii=chance.random() < 0.5))
    return LineageModel(
        name,
        {"who": PERSON if has else "?", "note": "?"},
        {"who": has, "note": columns[1].pii},
        table=SubjectTable(name, columns),
    )


def computed(name: str, inputs: list[LineageModel], chance: random.Random) -> LineageModel:
    """Each column is one of a column of an input: as it is, with another type, in other words, or computed.

    Some are declared to have no personal data, whatever they are computed from.
    """
    free, of = list[Column](), chance.choice(inputs)
    selected, row, personal, sources = list[str](), dict[str, str](), dict[str, bool](), dict[str, tuple[str, str]]()
    for number in range(chance.randrange(1, 4)):
        source, column = chance.choice([*of.row]), f"c{number}"
        how = chance.choice(["{0}", "CAST({0} AS STRING)", "({0})", "upper({0})", "{0} || '!'"])
        selected.append(f"{how.format(f't.{source}')} AS {column}")
        row[column] = of.row[source] if how.startswith(("{0}", "CAST", "(")) and "!" not in how else f"{of.row[source]}!"
        personal[column], sources[column] = of.personal[source], (of.name, source)
        if chance.random() < 0.15:
            free.append(Column(column, "", pii=False))
            row[column], personal[column] = "?", False
    inside = chance.choice([of.name, f"(SELECT * FROM {of.name} WHERE true)"])
    query = TableQuery.parsed(f"SELECT {', '.join(selected)} FROM {inside} AS t", "databricks", name)
    known = {TableName(*of.name.split(".")): [*of.row]}
    return LineageModel(name, row, personal, sources, computed_table(name, free, query, known))


@pytest.mark.parametrize("seed", range(30))
def test_tables_at_random(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    tables = [landed(f"bronze.t{number}", chance) for number in range(3)]
    for number in range(8):
        tables.append(computed(f"silver.t{number}", tables, chance))
    shuffled = chance.sample([table.table for table in tables], k=len(tables))
    found = subject_columns(shuffled, "user")
    assert {name: [each.column for each in ways] for name, ways in found.matches.items()} == {
        table.name: columns for table in tables if (columns := sorted(c for c, v in table.row.items() if v == PERSON))
    }
    assert {*found.unfound} == {t.name for t in tables if any(t.personal.values()) and PERSON not in t.row.values()}
    order = [*found.matches]
    for table in tables:
        for source, _ in table.sources.values():
            if table.name in order and source in order:
                assert order.index(source) < order.index(table.name)
    assert subject_columns(shuffled, "order").matches == {}


def test_what_personal_data_is_computed_from_is_personal() -> None:
    """A table of records, a table of it that declares the subject, and its quarantine."""
    records = TableName("bronze", "raw")
    query = TableQuery.parsed("SELECT value ->> 'u' AS User, 1 AS n FROM bronze.raw", "databricks", "q")
    events = computed_table("silver.events", [Column("User", "string", subject="user")], query, {records: ["value"]})
    follow = TableQuery.parsed("SELECT USER AS Who FROM SILVER.events", "databricks", "q")
    gold = computed_table("gold.who", [], follow, {TableName("SILVER", "events"): ["User", "n"]})
    tables = [SubjectTable("silver.events_quarantine", rows_of="silver.events"), gold, events, SubjectTable("bronze.raw")]
    found = subject_columns(tables, "user")
    assert found.matches["silver.events"] == [Match("User")]
    assert found.matches["silver.events_quarantine"] == [Match("row", "User")]
    assert [each.column for each in found.matches["gold.who"]] == ["who"]
    assert list(found.unfound) == ["bronze.raw"]
    assert "value" in found.unfound["bronze.raw"]
    other = subject_columns([SubjectTable("a.b", [Column("d", "string", pii=True, subject="driver")])], "user")
    assert "Its subjects are of the kind driver." in other.unfound["a.b"]


def test_a_type_whose_text_differs_between_engines() -> None:
    with pytest.raises(UnsafeDeclaration, match="no subject can be found by it"):
        TableDeclaration("bronze", "t", (Column("at", "timestamp", subject="user"),), "", Engine.SPARK, frozenset())


def test_records_say_where_a_subject_is() -> None:
    """Its column is passed on where the bytes are only checked; a field of its JSON is not."""
    key, field = Match("key", binary=True), Match("value", "user.id", binary=True)
    raw = SubjectTable("bronze.raw", fields={"user": [key, field], "device": [Match("value", "device", binary=True)]})
    text = "SELECT try_validate_utf8(CAST(key AS STRING)) AS who, upper(CAST(key AS STRING)) AS shown, value FROM bronze.raw"
    query = TableQuery.parsed(text, "databricks", "q")
    events = computed_table("silver.events", [], query, {TableName("bronze", "raw"): ["key", "value"]})
    refused = SubjectTable("silver.events_quarantine", fields={"user": [key]}, set_aside=True)
    found = subject_columns([raw, refused, events], "user")
    assert found.matches == {"bronze.raw": [key, field], "silver.events": [Match("who")], "silver.events_quarantine": [key]}
    assert found.set_aside == {"silver.events_quarantine"}
    other = subject_columns([raw, SubjectTable("a.b", [Column("c", "string", pii=True)])], "device")
    assert [*other.matches] == ["bronze.raw"]
    driver = subject_columns([raw, computed_table("a.b", [Column("value", "", pii=True)], query, {})], "driver")
    assert "Its subjects are of the kind device, user." in driver.unfound["bronze.raw"]
