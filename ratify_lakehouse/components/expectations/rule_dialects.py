"""The SQL in which expectations are written and validated: where the words of Spark and of DuckDB differ."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.sql import duckdb_sql, spark_sql
from ratify_lakehouse.sql.table_query import Dialect
from ratify_lakehouse.sql.transpiled import template_by_duckdb


@dataclass(frozen=True)
class RuleDialect:
    """An engine's words for what the queries of expectations need.

    Attributes:
        parsed_as: sqlglot's name of the SQL.
        literal: Returns a string literal.
        identifier: Returns a quoted identifier.
        array: Template of an array of given items.
        compact: Template of an array without its NULLs.
        size: Function that gives the length of an array.
        first: Template of the first item of an array.
        distinct: Template of an array, whose items are in order, without its doubles.
        excluding: Keyword between `*` and the columns that it leaves out.
        hash: Function of several columns.
        entry: Template of an entry of a map, in which `{key}` and `{value}` stand for expressions.
        map: Template of a map of given entries.
        empty_map: Template of a map without entries from text to a type.
        field: Template of a field of a struct.
        struct: Template of a struct of given fields.
        text_array: Type of an array of texts.
        json: Template of the JSON text of a struct.
        row_json: Returns the JSON text of a row that is validated, without given columns.
        row_of: Returns a struct of columns, given with their types, of a row whose JSON text an expression gives.
        joined: Template of an array of texts as one text, given what is between two of them.
        sha256: Template of the hexadecimal SHA-256 of a text.
        whole: Template of a text that is cast to an integer: NULL where it is none.
        truncated: Template of a number that is cast to an integer, as Spark casts it: without its fraction.
        looks: Template of whether a text matches a regular expression.
        every: What follows in a call of `regexp_replace` to replace all matches.
        translated: Returns a query of our own, which is in Spark's words, in the engine's; `{name}` stands for a relation.
    """

    parsed_as: Dialect
    literal: Callable[[str], str]
    identifier: Callable[[str], str]
    array: str
    compact: str
    size: str
    first: str
    distinct: str
    excluding: str
    hash: str
    entry: str
    map: str
    empty_map: str
    field: str
    struct: str
    text_array: str
    json: str
    row_json: Callable[[Collection[str]], str]
    row_of: Callable[[str, Mapping[str, str]], str]
    joined: str
    sha256: str
    whole: str
    truncated: str
    looks: str
    every: str
    translated: Callable[[str], str]

    def array_of(self, items: Iterable[str]) -> str:
        """Return the array of these expressions that are not NULL."""
        # An array without any item would have no type.
        return self.compact.format(self.array.format(", ".join(items) or "CAST(NULL AS STRING)"))

    def map_of(self, values: Mapping[str, str], kind: str) -> str:
        """Return a map of texts, each with an expression; `kind` is the type of their values."""
        if not values:
            return self.empty_map.format(kind)
        entries = (self.entry.format(key=self.literal(name), value=value) for name, value in values.items())
        return self.map.format(", ".join(entries))

    def json_of(self, columns: Iterable[str]) -> str:
        """Return the JSON text of an object with these columns."""
        fields = (self.field.format(self.identifier(name)) for name in columns)
        return self.json.format(self.struct.format(", ".join(fields)))

    def listed(self, columns: Iterable[str]) -> str:
        """Return a list of columns, quoted."""
        return ", ".join(map(self.identifier, columns))

    def same(self, columns: Iterable[str], left: str, right: str) -> str:
        """Return the condition that two relations have the same values in these columns; NULL equals NULL."""
        names = map(self.identifier, columns)
        return " AND ".join(f"{left}.{name} IS NOT DISTINCT FROM {right}.{name}" for name in names) or "true"


def _row_json_by_spark(without: Collection[str]) -> str:
    columns = ", ".join(map(spark_sql.identifier, without))
    return f"to_json(struct(*{f' EXCEPT ({columns})' if without else ''}))"


def _row_json_by_duckdb(without: Collection[str]) -> str:
    # Of the table that `Expectations.validated` tests. A merge patch (RFC 7396) takes out what it has a null for.
    row = "to_json(ratify_decided)"
    patch = duckdb_sql.literal(json.dumps(dict.fromkeys(without)))
    return f"CAST({f'json_merge_patch({row}, {patch})' if without else row} AS VARCHAR)"


def _row_of_by_spark(text: str, types: Mapping[str, str]) -> str:
    fields = ", ".join(f"{spark_sql.identifier(name)} {type_}" for name, type_ in types.items())
    return f"from_json({text}, '{fields}')"


def _row_of_by_duckdb(text: str, types: Mapping[str, str]) -> str:
    # A path has a name in quotes, in which a quote is escaped as in JSON.
    values = (
        f"{duckdb_sql.identifier(name)} := CAST(json_extract_string({text}, {duckdb_sql.literal('$.' + json.dumps(name))}) "
        f"AS {sql_type(type_).sql})"
        for name, type_ in types.items()
    )
    return f"struct_pack({', '.join(values)})"


SPARK = RuleDialect(
    parsed_as="databricks",
    literal=spark_sql.literal,
    identifier=spark_sql.identifier,
    array="array({})",
    compact="array_compact({})",
    size="size",
    first="element_at({}, 1)",
    distinct="array_distinct({})",
    excluding="EXCEPT",
    hash="xxhash64",
    entry="{key}, {value}",
    map="map({})",
    empty_map="CAST(map() AS map<string,{}>)",
    field="{}",
    struct="struct({})",
    text_array="array<string>",
    json="to_json({})",
    row_json=_row_json_by_spark,
    row_of=_row_of_by_spark,
    joined="array_join({}, {})",
    sha256="sha2({}, 256)",
    whole="{}",
    truncated="{}",
    looks="{} RLIKE {}",
    every="",
    translated=str,
)

DUCKDB = RuleDialect(
    parsed_as="duckdb",
    literal=duckdb_sql.literal,
    identifier=duckdb_sql.identifier,
    array="[{}]",
    compact="list_filter({}, lambda item: item IS NOT NULL)",
    size="len",
    first="{}[1]",
    distinct="list_sort(list_distinct({}))",
    excluding="EXCLUDE",
    hash="hash",
    entry="{key}: {value}",
    map="MAP {{{}}}",
    empty_map="CAST(MAP {{}} AS MAP(VARCHAR, {}))",
    field="{0} := {0}",
    struct="struct_pack({})",
    text_array="VARCHAR[]",
    json="CAST(to_json({}) AS VARCHAR)",
    row_json=_row_json_by_duckdb,
    row_of=_row_of_by_duckdb,
    joined="array_to_string({}, {})",
    sha256="sha256({})",
    # DuckDB rounds the text of a fraction.
    whole="CASE WHEN regexp_full_match({0}, '\\s*[+-]?[0-9]+\\s*') THEN {0} END",
    # It would round.
    truncated="trunc({})",
    looks="regexp_full_match({}, {})",
    every=", 'g'",
    translated=template_by_duckdb,
)
