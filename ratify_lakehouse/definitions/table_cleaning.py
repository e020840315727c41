"""The job that removes what killed writers, and old versions, left in the storage of the tables."""

import dagster as dg

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.delta.table_clean import RETENTION, clean, may_clean_log
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDB
from ratify_lakehouse.errors import RatifyError, TableMissing, UnsafeTable
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.wording import counted


@dg.op
def clean_tables(context: dg.OpExecutionContext, catalog: UnityCatalog, duckdb: DuckDB) -> None:
    """Clean every declared table, its quarantine and the ledger; a table that cannot be read does not stop the others.

    Files of old versions go where a declaration says how long they stay; those of the log after its retention, as in Spark.
    """
    failed = list[str]()
    for table in (*declared_tables().declarations.values(), LANDED_FILES):
        full_name = table.full_name(catalog.connection.name)
        try:
            old_log = may_clean_log(catalog, full_name)
            files = clean(catalog, duckdb.log(full_name), old_versions=RETENTION in table.properties, old_log=old_log)
        except TableMissing:
            continue
        except UnsafeTable as error:
            context.log.warning("%s", error)
            continue
        except RatifyError:
            context.log.exception("%s", full_name)
            failed.append(full_name)
            continue
        context.log.info("%s: %s removed, %d bytes", full_name, counted(len(files), "file"), sum(f.size for f in files))
    if failed:
        raise dg.Failure(f"Not cleaned, for the reasons above: {', '.join(failed)}.", allow_retries=False)


@dg.job(name="clean", description="Remove files that no version of a table needs, such as those that killed writers left.")
def clean_job() -> None:
    """Clean the tables, one after the other."""
    clean_tables()
