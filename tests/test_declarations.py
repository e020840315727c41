"""Table declarations: what is refused, and the DDL of what is not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratify_lakehouse.column_types import PLAIN_TYPES, split_parts
from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.errors import UnsafeDeclaration
from ratify_lakehouse.table_layout import Layout

FIVE = tuple(Column(f"c{number}", "int") for number in range(5))


def declare(*columns: Column, **changes: Any) -> TableDeclaration:
    values: dict[str, Any] = {
        "layer": "bronze",
        "name": "t",
        "columns": columns or (Column("id", "bigint"), Column("v", "string")),
        "comment": "c",
        "writer": Engine.DUCKDB,
        "operations": frozenset({"WRITE"}),
    }
    return TableDeclaration(**values | changes)


def of_type(type_: str) -> TableDeclaration:
    return declare(Column("c", type_))


@pytest.mark.parametrize(
    "type_",
    [
        *sorted(PLAIN_TYPES),
        "BIGINT",
        "decimal(10,2)",
        "DECIMAL(10, 2)",
        "decimal",
        "numeric(5)",
        "array<string>",
        "array<decimal(10,2)>",
        "map<string,array<decimal(10,2)>>",
        "struct<a:array<decimal(10,2)>>",
        "struct<a:int,b:map<string,array<double>>>",
        "STRUCT<a: INT, b: STRING>",
        "array<struct<a:int>>",
    ],
)
def test_types_that_every_engine_knows(type_: str) -> None:
    assert f"`c` {type_}" in of_type(type_).ddl("ratify")


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_NTZ(6)", "TIMESTAMP_NTZ"),
        ("timestamp without time zone", "TIMESTAMP_NTZ"),
        ("array<timestamp_ntz>", "TIMESTAMP_NTZ"),
        ("struct<a:int,at:timestamp_ntz>", "TIMESTAMP_NTZ"),
        ("map<string,struct<at:timestamp_ntz>>", "TIMESTAMP_NTZ"),
        ("variant", "VARIANT"),
        ("array<variant>", "VARIANT"),
        ("struct<a:variant>", "VARIANT"),
        ("struct<a:decimal(10,2)>", "DECIMAL inside a struct"),
        ("struct<a:int,b:decimal(10,2)>", "DECIMAL inside a struct"),
        ("struct<a: decimal(10, 2)>", "DECIMAL inside a struct"),
        ("array<struct<a:decimal(10,2)>>", "DECIMAL inside a struct"),
        ("map<string,decimal(10,2)>", "DECIMAL inside a map"),
        ("map<decimal(10,2),string>", "DECIMAL inside a map"),
        ("array<map<string,decimal(10,2)>>", "DECIMAL inside a map"),
        ("struct<a:array<map<int,decimal(10,2)>>>", "DECIMAL inside a map"),
        ("map<string,struct<a:dec>>", "DECIMAL inside a struct"),
        ("struct<a:struct<b:map<string,numeric(3)>>>", "DECIMAL inside a map"),
        ("array<array<struct<x:array<struct<y:decimal(1,0)>>>>>", "DECIMAL inside a struct"),
        ("struct<é:int>", "'é' is not a plain identifier"),
        ("struct<`a:b`:int>", "'`a' is not a plain identifier"),
        ("array<struct<a:int,`b c`:int>>", "'`b' is not a plain identifier"),
        ("interval day", "Spark, DuckDB and Delta"),
        ("uuid", "Spark, DuckDB and Delta"),
        ("varchar(10)", "Spark, DuckDB and Delta"),
        ("array<>", "Spark, DuckDB and Delta"),
        ("array<string", "Spark, DuckDB and Delta"),
        ("", "Spark, DuckDB and Delta"),
    ],
)
def test_types_that_are_refused(type_: str, message: str) -> None:
    with pytest.raises(UnsafeDeclaration, match=message) as refused:
        of_type(type_)
    assert "bronze.t, column 'c'" in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "a.b", "é", "a`", "a" * 256, "a;drop", "a\n"])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(UnsafeDeclaration, match="plain identifier"):
        declare(Column(name, "int"))
    with pytest.raises(UnsafeDeclaration, match="plain identifier"):
        declare(name=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer": "information_schema"}, "that schema is the catalog's own"),
        ({"layer": "my schema"}, "'my schema' is not a plain identifier"),
        ({"columns": ()}, "without columns"),
        ({"columns": (Column("a", "int"), Column("A", "string"))}, "'a' is declared twice"),
        ({"keys": ("nope",)}, "'nope' is a key"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "column mapping 'name'"),
        ({"properties": {"delta.columnMapping.mode": "id"}}, "column mapping 'id'"),
        ({"properties": {"delta.constraints.positive": "id > 0"}}, "delta.constraints.positive"),
        ({"properties": {"delta.generationExpression": "id + 1"}}, "delta.generationExpression"),
        ({"properties": {"delta.identity.start": "1"}}, "delta.identity.start"),
        ({"layout": Layout(("nope",))}, "'nope' is not a column of id"),
        ({"layout": Layout(cluster_by=("id", "id"))}, "'id' is there twice"),
        ({"layout": Layout(("id",), ("id",))}, "both partitioned and clustered"),
        ({"columns": FIVE[:1], "layout": Layout(("c0",))}, "at least one column has to be in the files"),
        (
            {"columns": (Column("a", "int"), Column("at", "timestamp")), "layout": Layout(("at",))},
            "'at' is timestamp; partition by bigint, boolean",
        ),
        ({"columns": (Column("a", "array<int>"),), "layout": Layout(cluster_by=("a",))}, "array<int> 'a' has no order"),
        ({"columns": FIVE, "layout": Layout(cluster_by=tuple(each.name for each in FIVE))}, "by 4 columns at most"),
        ({"columns": FIVE, "layout": Layout(("c1",)), "writer": Engine.DUCKDB}, "DuckDB writes it"),
    ],
)
def test_declarations_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsafeDeclaration, match=message):
        declare(**changes)


def test_ddl() -> None:
    table = declare(
        Column("id", "bigint", nullable=False),
        Column("note", "string", "the writer's \\ own"),
        keys=("id",),
        properties={"delta.setTransactionRetentionDuration": "interval 30 days"},
        comment="it's one",
        owner="team",
    )
    assert table.ddl("main") == (
        "CREATE TABLE IF NOT EXISTS main.bronze.t (\n"
        "  `id` bigint NOT NULL,\n"
        "  `note` string COMMENT 'the writer\\'s \\\\ own'\n"
        ") USING DELTA\n"
        "COMMENT 'it\\'s one'\n"
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'none', 'delta.isolationLevel' = 'Serializable', "
        "'delta.setTransactionRetentionDuration' = 'interval 30 days', 'ratify.owner' = 'team')"
    )
    days = Column("id", "bigint"), Column("day", "date")
    partitioned = declare(*days, layout=Layout(("day",)), writer=Engine.SPARK)
    assert ") USING DELTA\nPARTITIONED BY (`day`)\nCOMMENT " in partitioned.ddl("main")
    clustered = declare(*days, layout=Layout(cluster_by=("day", "id")))
    assert ") USING DELTA\nCLUSTER BY (`day`, `id`)\nCOMMENT " in clustered.ddl("main")
    assert (table.full_name("main"), table.key_path("main")) == ("main.bronze.t", ["main", "bronze", "t"])


def test_append_only_tables_get_no_isolation_level() -> None:
    assert "isolationLevel" not in declare().ddl("ratify")


simple = st.sampled_from(["int", "string", "timestamp", "decimal(10,2)"])
types = st.recursive(
    simple,
    lambda inner: st.one_of(
        inner.map(lambda t: f"array<{t}>"),
        inner.map(lambda t: f"map<string,{t}>"),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: f"struct<{','.join(f'f{i}:{t}' for i, t in enumerate(ts))}>"),
    ),
    max_leaves=6,
)


@given(st.lists(types, min_size=1, max_size=4))
@settings(max_examples=100, database=None)
def test_split_finds_the_parts_that_were_joined(parts: list[str]) -> None:
    assert split_parts(",".join(parts)) == parts


@given(types)
@settings(max_examples=100, database=None)
def test_a_decimal_is_refused_just_where_a_struct_or_a_map_is_next_around_it(type_: str) -> None:
    depth, wrong, at = list[str](), False, 0
    while at < len(type_):
        for opening in ("struct<", "array<", "map<", "decimal"):
            if type_.startswith(opening, at):
                depth += [opening] if opening.endswith("<") else []
                wrong |= opening == "decimal" and depth[-1:] in (["struct<"], ["map<"])
                at += len(opening) - 1
                break
        if type_[at] == ">":
            depth.pop()
        at += 1
    if wrong:
        with pytest.raises(UnsafeDeclaration, match=r"DECIMAL inside a (struct|map)"):
            of_type(type_)
    else:
        assert of_type(type_).columns[0].type == type_
