"""The options of a stream of records, as the configuration of an asset's run."""

import dagster as dg

from ingest.records.record_source import SourceOptions


class StreamConfig(SourceOptions, dg.Config):
    """What records are read, and how. What is empty is as the settings say."""
