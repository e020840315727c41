"""The passes of one run over a table: where another writer commits first, a pass begins again, and the last one reports."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import dagster as dg
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from ratify_lakehouse.components.landing_order import LANDING
from ratify_lakehouse.components.query_engines import DuckDBQueries, QueryEngine, SparkQueries, versions_of
from ratify_lakehouse.components.row_flow import IN_QUARANTINE, ROW_FLOW
from ratify_lakehouse.components.sql_table import ValidatedQuery, materialize
from ratify_lakehouse.components.table_asset import COMMITS
from ratify_lakehouse.delta.computed_inputs import FullRecompute
from ratify_lakehouse.engines.conflict_retries import retried
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import ExpectationFailed, Overtaken
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES

PassResult = dg.MaterializeResult[Any] | dg.AssetCheckResult

_SUMMED = ("rows added", "rows inserted", "rows updated", "rows deleted", *ROW_FLOW)


class PassResults:
    """The results of the last pass, and what those before it have committed: the run reports both as its own."""

    def __init__(self, table: ValidatedQuery) -> None:
        self.last = list[PassResult]()
        self._table = table
        self._earlier = list[dg.MaterializeResult[Any]]()
        self._overtaken = list[tuple[str, int]]()

    def make(self, engine: QueryEngine) -> None:
        """Make a pass."""
        self._earlier += [each for each in _materializations(self.last) if _versions(each)]
        self.last.clear()
        # One by one: where an expectation fails, its results come before the error.
        try:
            for result in materialize(engine, self._table):
                self.last.append(result)
        except Overtaken as error:
            self._overtaken += [error.committed] if error.committed else []
            raise

    @property
    def committed(self) -> bool:
        """Whether the last pass has committed."""
        return any(map(_versions, _materializations(self.last)))

    def reported(self) -> Iterator[PassResult]:
        """Yield the results of the last pass, with the versions and the rows of the commits before it.

        The page of a table also says how many rows its quarantine has by now.
        """
        made = _materializations(self.last)
        for result in self.last:
            if isinstance(result, dg.MaterializeResult):
                aside = [each.metadata or {} for each in made[1:] if result is made[0]]
                yield self._with_earlier(result, {IN_QUARANTINE: aside[0]["dagster/row_count"]} if aside else {})
            else:
                yield result

    def _with_earlier(self, result: dg.MaterializeResult[Any], shown: Mapping[str, Any]) -> dg.MaterializeResult[Any]:
        every = [*(each for each in self._earlier if each.asset_key == result.asset_key), result]
        name = ".".join(result.asset_key.path) if result.asset_key else ""
        overtaken = {version for table, version in self._overtaken if table == name}
        if len(every) == 1 and not overtaken and not shown:
            return result
        metadata = {**shown, **(result.metadata or {})}
        versions = sorted({*overtaken, *(version for each in every for version in _versions(each))})
        metadata[COMMITS] = dg.MetadataValue.json({"versions": versions})
        for added in _SUMMED:
            if added in metadata:
                metadata[added] = sum(cast("int", (each.metadata or {}).get(added, 0)) for each in every)
        return dg.MaterializeResult(asset_key=result.asset_key, metadata=metadata, data_version=result.data_version)


def _materializations(results: Iterable[PassResult]) -> list[dg.MaterializeResult[Any]]:
    return [result for result in results if isinstance(result, dg.MaterializeResult)]


def _versions(result: dg.MaterializeResult[Any]) -> list[int]:
    commits = cast("dict[str, Any]", cast("dg.JsonMetadataValue", (result.metadata or {})[COMMITS]).data)
    return list(commits["versions"])


def materialize_passes(
    spark: Spark,
    table: ValidatedQuery,
    begun: Callable[[], QueryEngine],
    whole: Callable[[str], QueryEngine] | None = None,
    *,
    follows_inputs: bool = False,
) -> Iterator[PassResult]:
    """Materialize a table by one pass; by another one if other writers committed first.

    Args:
        spark: The session.
        table: The table.
        begun: Returns a new pass.
        whole: Returns one that computes all rows, for a reason; for where those that changes affect cannot be computed.
        follows_inputs: Whether the table has to be as its inputs are now, whatever it was before: see `_followed`.

    Raises:
        As materialize.
    """
    passes = PassResults(table)

    def once() -> None:
        try:
            passes.make(begun())
        except FullRecompute as reason:
            if whole is None:
                raise reason.__cause__ or reason from None
            passes.make(whole(str(reason)))

    repeated = partial(retried, attempts=spark.attempts)
    yield from _followed(spark, table, passes, repeated, once, follows_inputs=follows_inputs)


def materialize_whole(spark: Spark, session: DuckDBSession | None, table: ValidatedQuery) -> Iterator[PassResult]:
    """Materialize a table of the strategy `full`; of two passes at once, the one that read older inputs does not win.

    Such a pass is overtaken by the other one's commit, and begins again.

    Args:
        spark: The session.
        session: Of DuckDB, where that computes the rows.
        table: The table.

    Raises:
        As materialize.
    """
    passes = PassResults(table)

    def once() -> None:
        by_duckdb = DuckDBQueries(session, spark, *table.written) if session else None
        passes.make(by_duckdb or SparkQueries(spark, table.query, *table.written))

    # At once: the writes wait for other commits, and this is after a pass that was quicker.
    retrying = Retrying(retry=retry_if_exception_type(Overtaken), stop=stop_after_attempt(spark.attempts), reraise=True)
    yield from _followed(spark, table, passes, retrying, once)


def _followed(
    spark: Spark,
    table: ValidatedQuery,
    passes: PassResults,
    repeated: Callable[[Callable[[], dict[str, int]]], dict[str, int]],
    once: Callable[[], None],
    *,
    follows_inputs: bool = True,
) -> Iterator[PassResult]:
    """Run a pass; once more if it has committed, and its inputs have got new versions meanwhile.

    Another pass that has read these, and to which the table was right already, has made no commit that would refuse this
    one: its rows were older.
    """
    name = spark.catalog.connection.name
    inputs = [each.full_name(name) for each in table.query.inputs] if follows_inputs else []
    if inputs and LANDING in table.query.text:
        inputs.append(LANDED_FILES.full_name(name))

    def run() -> dict[str, int]:
        read = versions_of(spark.catalog, inputs)
        once()
        return read

    try:
        read = repeated(run)
        if passes.committed and versions_of(spark.catalog, inputs) != read:
            repeated(run)
    except ExpectationFailed:
        yield from passes.last
        raise
    yield from passes.reported()
