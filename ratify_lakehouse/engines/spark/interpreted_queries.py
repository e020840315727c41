"""Queries over few rows, which Spark interprets.

Spark generates Java code for each query, and compiles it. That takes tenths of a second, and a pass over a table has dozens
of queries, with those by which Delta reads its log: over few rows a pass takes a third less time without it. Over many rows
the compiled code takes half the time or less.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_ROWS = 100_000
"""Up to so many rows are computed as soon by interpreted queries."""
FEW_ROWS_SEARCHED = 500_000
"""Up to so many rows are searched as soon for the few that are computed."""

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def interpreted(session: "SparkSession") -> Generator[None]:
    """Queries of a session in the block are interpreted, if its server permits it.

    Args:
        session: Of one thread: queries of others would be, too.
    """
    from pyspark.errors import PySparkException

    before = dict[str, str]()
    try:
        with suppress(PySparkException):
            for key, value in _INTERPRETED.items():
                if (found := str(session.conf.get(key))) != value:
                    session.conf.set(key, value)
                    before[key] = found
        yield
    finally:
        # A session that does not answer has no further queries; the error of the block says why.
        with suppress(Exception):
            for key, value in before.items():
                session.conf.set(key, value)
