"""Landed files of every kind, good and bad, each with what must become of it."""

from tests.ingest.corpus_name_cases import NAME_CASES
from tests.ingest.corpus_number_cases import NUMBER_CASES
from tests.ingest.corpus_packed_cases import PACKED_CASES
from tests.ingest.corpus_text_cases import CSV_CASES
from tests.ingest.corpus_typed_cases import JSON_CASES, PARQUET_CASES

CASES = (*CSV_CASES, *PACKED_CASES, *JSON_CASES, *PARQUET_CASES, *NAME_CASES, *NUMBER_CASES)
