"""The order of landings, as the ledger's own rows have it."""

from collections.abc import Iterable

import duckdb

from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES, landing_place
from tests.ingest.model_contents import digest


def landing_order(session: DuckDBSession, table_name: str, contents: Iterable[str]) -> list[str]:
    """Return contents of a bronze table in the order of their last landings."""
    by_sha = {digest(content): content for content in contents}
    if not by_sha:
        return []
    log = session.log(LANDED_FILES)
    files = sorted(log.files(log.last or log.refresh()), key=lambda file: file.version or 0)
    names = [f"{log.storage.local}/{file.path}" for file in files]
    version, position = landing_place(LANDED_FILES.column_names)
    # Row ids grow from commit to commit, and within a file.
    entry = "list_position($1, filename), file_row_number"
    query = (
        f"SELECT sha256 FROM (SELECT *, row({version}, {position}, {entry}) AS landing "
        "FROM read_parquet($1, filename = true, file_row_number = true, union_by_name = true)) "
        "WHERE table_name = $2 AND status IN ('loaded', 'repeated') AND list_contains($3, sha256) "
        "GROUP BY sha256 ORDER BY max(landing)"
    )
    return [by_sha[sha256] for (sha256,) in duckdb.execute(query, [names, table_name, [*by_sha]]).fetchall()]
