"""The ledgers as assets: the assets of the tables that they are about write them, beside their own tables."""

from collections.abc import Iterable, Sequence

import dagster as dg

from components.checks.check_definitions import files_check
from components.stream.stream_ledger import STREAM_BATCHES
from components.table_asset import asset_key, table_spec
from ingest.file_source import Source
from ingest.ledger.file_ledger import LANDED_FILES


def landed_files_spec(sources: Iterable[Source]) -> dg.AssetSpec:
    """Return the ledger of landed files as an asset that others write."""
    return table_spec(LANDED_FILES, [asset_key(source.table) for source in sources])


def ledger_checks() -> Sequence[dg.AssetChecksDefinition]:
    """Return the check of every ledger's data files."""
    return [files_check(LANDED_FILES), files_check(STREAM_BATCHES)]
