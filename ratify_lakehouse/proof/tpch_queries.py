"""The 22 queries of TPC-H, by DuckDB's text, in Spark and in DuckDB.

Spark reads the text unchanged, except for the semicolon at its end: bare table names have to resolve in the catalog.
"""

import csv
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDBSession
from ratify_lakehouse.engines.duckdb.extension_loading import load_extension
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.proof.proof_tables import TABLES
from ratify_lakehouse.settings import TPCH

Rows = Sequence[Sequence[str]]

# Spark's division of decimals and its averages have at least six digits, DuckDB's are doubles.
_CLOSE = 1e-6
_EXACT = 1e-9


QUERY_OF_EACH_KIND = (1, 13, 14, 15, 16, 20, 21, 22)
"""Aggregates of decimals; an outer join; CASE over LIKE; a CTE with a scalar subquery; NOT IN and DISTINCT; nested
correlated subqueries; EXISTS and NOT EXISTS over joins; substrings."""


def tpch_answers(spark: Spark, session: DuckDBSession, scale_factor: float | None, *, quick: bool = False) -> Finding:
    """Check whether both engines give the known answers, or the same where none are known.

    They are known for the scale factors 0.01, 0.1 and 1. `quick`: Spark runs one query of each kind only.
    """
    load_extension(session.con, "tpch")
    known = _known(session, scale_factor)
    queries = {
        number: text.strip().rstrip(";") for number, text in session.rows("SELECT query_nr, query FROM tpch_queries()")
    }
    by_duckdb = _by_duckdb(session, queries)
    by_spark = _by_spark(spark, {number: queries[number] for number in QUERY_OF_EACH_KIND} if quick else queries)
    wrong = [
        f"{engine} {number}"
        for engine, answers in (("DuckDB", by_duckdb), ("Spark", by_spark))
        for number in answers
        if not alike(answers[number], (known or by_duckdb)[number])
    ]
    against = "the known answers" if known else "each other's answers: none are known for this scale factor"
    numbers = {"queries": len(queries), "answers known": len(known), "different": len(wrong)}
    if wrong:
        return Finding(False, f"Not {against}: {', '.join(wrong)}.", numbers)
    return Finding(True, f"{len(queries)} queries in DuckDB, {len(by_spark)} in Spark: {against}.", numbers)


def _known(session: DuckDBSession, scale_factor: float | None) -> dict[int, Rows]:
    rows = session.rows("SELECT query_nr, answer FROM tpch_answers() WHERE scale_factor = ?", [scale_factor])
    return {
        number: list(csv.reader(answer.splitlines()[1:], delimiter="|", quoting=csv.QUOTE_NONE)) for number, answer in rows
    }


def _by_duckdb(session: DuckDBSession, queries: Mapping[int, str]) -> dict[int, Rows]:
    session.attach()
    for name in TABLES:
        session.rows(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {ALIAS}.{TPCH}.{name}")
    return {number: _texts(session.rows(text)) for number, text in queries.items()}


def _by_spark(spark: Spark, queries: Mapping[int, str]) -> dict[int, Rows]:
    for name, table in TABLES.items():
        spark.table(table).createOrReplaceTempView(name)
    try:
        return {
            number: _texts([tuple(row.values()) for row in spark.rows(spark.sql(text))]) for number, text in queries.items()
        }
    finally:
        for name in TABLES:
            spark.session.catalog.dropTempView(name)


def _texts(rows: Sequence[Sequence[Any]]) -> Rows:
    return [["" if value is None else str(value) for value in row] for row in rows]


def alike(found: Rows, wanted: Rows) -> bool:
    """Return whether two answers have the same rows. Order is not compared: it is undefined among rows that sort alike."""
    # The answer that is one NULL is an empty line.
    wanted = [row or [""] for row in wanted]
    pairs = zip(sorted(found, key=_sorting), sorted(wanted, key=_sorting), strict=False)
    return len(found) == len(wanted) and all(len(one) == len(other) and all(map(_same, one, other)) for one, other in pairs)


def _sorting(row: Sequence[str]) -> tuple[list[str], list[float]]:
    """By what is exact first: numbers may differ in their last digits."""
    fractions = {at: float(value) for at, value in enumerate(row) if _is_fraction(value)}
    return [value for at, value in enumerate(row) if at not in fractions], list(fractions.values())


def _is_fraction(value: str) -> bool:
    with suppress(ValueError):
        return math.isfinite(float(value))
    return False


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    return (
        _is_fraction(one) and _is_fraction(other) and math.isclose(float(one), float(other), rel_tol=_EXACT, abs_tol=_CLOSE)
    )
