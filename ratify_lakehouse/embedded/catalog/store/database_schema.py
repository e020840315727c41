"""The tables of the catalog's database, as the newest revision of `migrations` leaves them."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Join,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from ratify_lakehouse.embedded.catalog.object_names import folded

metadata = MetaData()


class Folded(TypeDecorator[str]):
    """A name without its case: names that differ only in case are one key, and any spelling finds it."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Fold what is stored, and what is compared with it."""
        return None if value is None else folded(value)


metastore = Table("metastore", metadata, Column("id", String, primary_key=True))

catalogs = Table(
    "catalogs",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("name_key", Folded, nullable=False, unique=True),
    Column("comment", Text),
    Column("properties", JSON, nullable=False),
    Column("storage_root", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

schemas = Table(
    "schemas",
    metadata,
    Column("id", String, primary_key=True),
    Column("catalog_id", String, ForeignKey("catalogs.id"), nullable=False),
    Column("name", String, nullable=False),
    Column("name_key", Folded, nullable=False),
    Column("comment", Text),
    Column("properties", JSON, nullable=False),
    Column("storage_root", String),
    Column("owner", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("catalog_id", "name_key"),
)

staging_tables = Table(
    "staging_tables",
    metadata,
    Column("id", String, primary_key=True),
    Column("schema_id", String, ForeignKey("schemas.id", ondelete="CASCADE"), nullable=False),
    Column("name", String, nullable=False),
    Column("location", String, nullable=False, unique=True),
    Column("finalized", Boolean, nullable=False),
    Column("owner", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# `columns` is a Delta struct. `protocol`, the versions and the timestamps are NULL where the catalog does not know them
# (external tables of other formats).
tables = Table(
    "tables",
    metadata,
    Column("id", String, primary_key=True),
    Column("schema_id", String, ForeignKey("schemas.id"), nullable=False),
    Column("name", String, nullable=False),
    Column("name_key", Folded, nullable=False),
    Column("table_type", String, nullable=False),
    Column("data_source_format", String, nullable=False),
    Column("location", String, nullable=False),
    Column("comment", Text),
    Column("columns", JSON, nullable=False),
    Column("partition_columns", JSON, nullable=False),
    Column("properties", JSON, nullable=False),
    Column("protocol", JSON(none_as_null=True)),
    Column("domains", JSON, nullable=False),
    Column("etag", String, nullable=False),
    Column("latest_version", BigInteger),
    Column("backfilled_version", BigInteger),
    Column("last_update_version", BigInteger),
    Column("last_commit_timestamp", BigInteger),
    Column("owner", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("schema_id", "name_key"),
    Index("tables_by_location", "location"),
)

# Arbitration: of two writers that propose one version, the second INSERT fails.
commits = Table(
    "commits",
    metadata,
    Column("table_id", String, ForeignKey("tables.id", ondelete="CASCADE"), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("timestamp", BigInteger, nullable=False),
    Column("file_name", String, nullable=False),
    Column("file_size", BigInteger, nullable=False),
    Column("file_modification_timestamp", BigInteger, nullable=False),
    PrimaryKeyConstraint("table_id", "version"),
    sqlite_with_rowid=False,
)

# Managed tables that were dropped, as long as they can be undropped: their rows of `tables` and `commits`. The ids of the
# parents decide who may undrop one. Where a parent is dropped, too, its last name only says where the table is listed.
dropped_tables = Table(
    "dropped_tables",
    metadata,
    Column("id", String, primary_key=True),
    Column("schema_id", String, nullable=False),
    Column("catalog_id", String, nullable=False),
    Column("catalog_key", Folded, nullable=False),
    Column("schema_key", Folded, nullable=False),
    Column("name", String, nullable=False),
    Column("location", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("dropped_at", BigInteger, nullable=False),
    Column("table_row", JSON, nullable=False),
    Column("commit_rows", JSON, nullable=False),
)

# Privileges that were granted on them: an undrop grants them again to the principals that are still the same.
dropped_grants = Table(
    "dropped_grants",
    metadata,
    Column("principal", String, ForeignKey("principals.name", ondelete="CASCADE"), nullable=False),
    Column("table_id", String, ForeignKey("dropped_tables.id", ondelete="CASCADE"), nullable=False),
    Column("privilege", String, nullable=False),
    PrimaryKeyConstraint("principal", "table_id", "privilege"),
    Index("dropped_grants_by_table", "table_id"),
    sqlite_with_rowid=False,
)

# Directories of managed tables that cannot be undropped any more, until they are deleted: a crash in between leaves no
# orphaned files.
purges = Table("purges", metadata, Column("location", String, primary_key=True))

# Owners and grants refer to a principal by its name, and end with it: a principal that is created with the name of a
# deleted one finds none. OAuth and databricks-sdk refer to it by its `client_id`.
principals = Table(
    "principals",
    metadata,
    Column("name", String, primary_key=True),
    Column("client_id", String, nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
)

# The principals of the server's settings that were created once: one that the admin has deleted stays deleted.
initial_principals = Table("initial_principals", metadata, Column("name", String, primary_key=True))

# A credential is of the kind `token`, `secret` (of an OAuth client) or `access` (a token that `secret_id` was exchanged
# for, and that is deleted with it). Only the SHA-256 digest is stored, which is enough for random values of 256 bits.
credentials = Table(
    "credentials",
    metadata,
    Column("id", String, primary_key=True),
    Column("principal", String, ForeignKey("principals.name", ondelete="CASCADE"), nullable=False),
    Column("kind", String, nullable=False),
    Column("digest", String, nullable=False, unique=True),
    Column("comment", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("secret_id", String, ForeignKey("credentials.id", ondelete="CASCADE")),
)

# Privileges by their published names. A securable is the metastore, a catalog, a schema or a table, by its id.
grants = Table(
    "grants",
    metadata,
    Column("principal", String, ForeignKey("principals.name", ondelete="CASCADE"), nullable=False),
    Column("securable_id", String, nullable=False),
    Column("privilege", String, nullable=False),
    PrimaryKeyConstraint("principal", "securable_id", "privilege"),
    Index("grants_by_securable", "securable_id"),
    sqlite_with_rowid=False,
)


def with_parents(table: Table) -> Join:
    """The rows of `tables` or `staging_tables`, with the schema and the catalog of each."""
    return table.join(schemas, table.c.schema_id == schemas.c.id).join(catalogs, schemas.c.catalog_id == catalogs.c.id)
