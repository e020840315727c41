"""Values that no partition column can have, because an engine makes others of them, or has no folder for them.

Delta reads an empty text as NULL (PROTOCOL.md, "Partition Value Serialization"), and Spark writes as NULL the name that the
folders of Hive have for it. Spark names a folder by each value, escaped, and on most disks a name has 255 bytes at most. The
text of a date beyond the years with four digits is none for every engine.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ratify_lakehouse.sql import duckdb_sql, spark_sql

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MOST_BYTES = 255
# As Spark escapes them (ExternalCatalogUtils), each by three letters.
_ESCAPED = r"[\x00-\x1F\x7F\x22\x23\x25\x27\x2A\x2F\x3A\x3D\x3F\x5C\x5B\x5D\x5E\x7B]"
_NULL = "which is NULL in a partition column"


@dataclass(frozen=True)
class PartitionDialect:
    """An engine's words.

    Attributes:
        literal: Returns a string literal.
        bytes: Template of the number of bytes of a text.
        escaped: Template of a text in which each character of a pattern has become three; the pattern is the second part.
        text: Name of the type of texts.
    """

    literal: Callable[[str], str]
    bytes: str
    escaped: str
    text: str


IN_SPARK = PartitionDialect(spark_sql.literal, "octet_length({})", "regexp_replace({}, {}, '%XX')", "STRING")
IN_DUCKDB = PartitionDialect(duckdb_sql.literal, "strlen({})", "regexp_replace({}, {}, '%XX', 'g')", "VARCHAR")


def unusable(sql: PartitionDialect, name: str, type_: str, value: str) -> str:
    """Return an expression: what is wrong with a value of a partition column, or NULL; empty if its type has no such values.

    Args:
        sql: The engine's words.
        name: The column's name.
        type_: Its type in Spark SQL.
        value: An expression of the value.
    """
    if type_ == "date":
        outside = f"{value} NOT BETWEEN DATE '0001-01-01' AND DATE '9999-12-31'"
        text = f"concat(CAST({value} AS {sql.text}), {sql.literal(', a date that not every engine reads there')})"
        return f"CASE WHEN {outside} THEN {text} END"
    if type_ != "string":
        return ""
    size = sql.bytes.format(sql.escaped.format(value, sql.literal(_ESCAPED)))
    most = MOST_BYTES - len(f"{name}=".encode())
    long = sql.literal(f" characters, for which the name of a folder, of {MOST_BYTES} bytes at most, has no room")
    return (
        f"CASE WHEN {value} = '' THEN {sql.literal(f'an empty text, {_NULL}')} "
        f"WHEN {value} = {sql.literal(HIVE_NULL)} THEN {sql.literal(f'{HIVE_NULL}, {_NULL}')} "
        f"WHEN {size} > {most} THEN concat('a text of ', CAST(length({value}) AS {sql.text}), {long}) END"
    )
