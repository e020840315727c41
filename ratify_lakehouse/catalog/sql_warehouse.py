"""SQL on a Databricks workspace, run by one of its warehouses: the Statement Execution API, through databricks-sdk."""

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ratify_lakehouse.catalog.statement_rows import value_of
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.errors import CatalogError, NotConfigured, StatementFailed
from ratify_lakehouse.settings import Settings

if TYPE_CHECKING:
    from databricks.sdk.service.sql import StatementResponse, StatementState

logger = logging.getLogger(__name__)

_FIRST_POLL_S = 0.2
_POLL_S = 5.0
# For one statement, with the start of the warehouse.
_PATIENCE_S = 1800.0


class SqlWarehouse(dg.ConfigurableResource[Any]):
    """A SQL warehouse of a Databricks workspace."""

    catalog: dg.ResourceDependency[UnityCatalog]
    warehouse_id: str = Field(default="", description="Empty: UNITY_WAREHOUSE_ID")

    def run(self, statements: Sequence[str]) -> None:
        """Run statements one after the other.

        Each must be safe to run twice, because one whose reply is lost is sent again. A statement is cancelled if the wait
        for it ends early, as on Ctrl-C.

        Raises:
            StatementFailed: one failed, was cancelled or took longer than half an hour; those after it were not run.
            NotConfigured: no warehouse is named.
            CatalogDenied, CatalogUnavailable, CatalogBusy: as for every call of the workspace.
        """
        warehouse = self._id()
        for number, statement in enumerate(statements, 1):
            self._run(warehouse, statement, f"statement {number} of {len(statements)} ({_shown(statement)})", {})

    def rows(self, statement: str, parameters: Mapping[str, str | None] | None = None) -> list[dict[str, Any]]:
        """Run a statement as `run` does, and return its rows, of which there may be 25 MiB.

        Numbers, booleans, times with a zone, arrays, maps and structs are those of Python; other values are texts.

        Args:
            statement: It has a parameter as `:name`.
            parameters: Their values, which are of the type STRING.

        Raises:
            As `run`.
        """
        place = f"the statement {_shown(statement)}"
        ended = self._run(self._id(), statement, place, parameters or {})
        columns = (ended.manifest and ended.manifest.schema and ended.manifest.schema.columns) or []
        api, chunk, rows = self.catalog.client.statement_execution, ended.result, list[dict[str, Any]]()
        while chunk:
            rows += [
                {
                    column.name or "": value_of(column.type_text or "", text)
                    for column, text in zip(columns, row, strict=True)
                }
                for row in chunk.data_array or []
            ]
            following = chunk.next_chunk_index
            if following is None:
                break
            chunk = self.catalog.ask(
                f"read the rows of {place}",
                lambda number=following: api.get_statement_result_chunk_n(ended.statement_id or "", number),
            )
        return rows

    def _id(self) -> str:
        if not (warehouse := self.warehouse_id or Settings().warehouse):
            raise NotConfigured("No SQL warehouse: set UNITY_WAREHOUSE_ID to the id of one in the workspace.")
        return warehouse

    def _run(self, warehouse: str, statement: str, place: str, parameters: Mapping[str, str | None]) -> "StatementResponse":
        from databricks.sdk.service.sql import StatementParameterListItem, StatementState

        given = [StatementParameterListItem(name, "STRING", value) for name, value in parameters.items()]
        api = self.catalog.client.statement_execution
        # Without waiting for the end, because a statement can only be cancelled by its id; and in a thread, because Ctrl-C
        # must not lose the reply, which has the id.
        with ThreadPoolExecutor(1) as thread:
            reply = thread.submit(
                self.catalog.ask,
                f"begin {place}",
                lambda: api.execute_statement(statement, warehouse, parameters=given or None, wait_timeout="0s"),
            )
            try:
                ended = self._ended(reply.result(), place)
            except BaseException:
                # The first call waits for the reply.
                if reply.exception() is None:
                    self._cancel(reply.result().statement_id or "", place)
                raise
        # CLOSED is a success whose rows are no longer available.
        if _state(ended) not in {StatementState.SUCCEEDED, StatementState.CLOSED}:
            raise StatementFailed(f"The workspace could not run {place}: {_reason(ended)}")
        return ended

    def _ended(self, response: "StatementResponse", place: str) -> "StatementResponse":
        from databricks.sdk.service.sql import StatementState

        api, id_ = self.catalog.client.statement_execution, response.statement_id or ""
        pause, deadline = _FIRST_POLL_S, time.monotonic() + _PATIENCE_S
        while _state(response) in {StatementState.PENDING, StatementState.RUNNING}:
            if time.monotonic() > deadline:
                raise StatementFailed(
                    f"The workspace did not end {place} within {_PATIENCE_S:g} s, so it was cancelled. The warehouse's "
                    f"query history has it as {id_}."
                )
            time.sleep(pause)
            pause = min(_POLL_S, 1.5 * pause)
            response = self.catalog.ask(f"follow {place}", lambda: api.get_statement(id_))
        return response

    def _cancel(self, id_: str, place: str) -> None:
        api = self.catalog.client.statement_execution
        try:
            self.catalog.ask(f"cancel {place}", lambda: api.cancel_execution(id_))
        except CatalogError as error:
            # The error that ended the wait is raised; this one only means that the statement may continue.
            logger.warning("%s", error)


def _shown(statement: str) -> str:
    return statement.strip().splitlines()[0][:100]


def _state(response: "StatementResponse") -> "StatementState | None":
    return response.status.state if response.status else None


def _reason(response: "StatementResponse") -> str:
    state, status = _state(response), response.status
    if status is None or status.error is None:
        return f"it ended as {state.value if state else 'unknown'}."
    code = status.error.error_code.value if status.error.error_code else "no error code"
    sql_state = f", SQLSTATE {status.sql_state}" if status.sql_state else ""
    return f"{status.error.message} ({code}{sql_state})"
