"""The assets that load landed files into bronze, and the ledger that they share."""

from assets.bronze.landed_sources import SOURCES
from components.landed_files import bronze_table, landing_spec
from components.table_asset import asset_key, table_spec
from ingest.ledger.file_ledger import LANDED_FILES

landed_files = table_spec(LANDED_FILES, [asset_key(source.table) for source in SOURCES])
"""The ledger of landed files, written by every bronze asset beside its own table."""

bronze_assets = [bronze_table(source) for source in SOURCES]
landing_assets = [landing_spec(source) for source in SOURCES]
