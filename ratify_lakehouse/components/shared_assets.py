"""Assets that several tables share: the topics that they read, and the ledgers that they write beside their rows."""

from collections.abc import Collection, Sequence

import dagster as dg

from ratify_lakehouse.components.checks.check_definitions import ledger_check
from ratify_lakehouse.components.stream.event_stream import EventStream
from ratify_lakehouse.components.stream.record_table import RecordTable, topic_spec
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.components.table_asset import asset_key, table_spec
from ratify_lakehouse.ingest.file_source import Source
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES


def shared_definitions(
    sources: Sequence[Source],
    records: Sequence[RecordTable],
    streams: Sequence[EventStream],
    published: Collection[str] = (),
    read: Collection[str] = (),
) -> dg.Definitions:
    """Return the topics and the ledgers of these tables as assets that others write, and the ledgers' checks.

    Args:
        sources: Kinds of landed files.
        records: Tables of records.
        streams: Streams from tables of records.
        published: Topics that are assets of their own.
        read: Topics that other tables read.
    """
    of_records = [topic for table in records for topic in table.source.topics]
    topics = dict.fromkeys(topic for topic in (*of_records, *read) if topic not in published)
    writers = [
        (LANDED_FILES, [asset_key(source.table) for source in sources]),
        (STREAM_BATCHES, [asset_key(stream.table) for stream in streams]),
    ]
    ledgers = [(ledger, keys) for ledger, keys in writers if keys]
    return dg.Definitions(
        assets=[*map(topic_spec, topics), *(table_spec(ledger, keys) for ledger, keys in ledgers)],
        asset_checks=[ledger_check(ledger) for ledger, _ in ledgers],
    )
