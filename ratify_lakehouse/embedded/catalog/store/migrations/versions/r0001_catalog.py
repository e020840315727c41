"""The layout of 0.1.0: catalogs, schemas, tables, commits, principals, credentials and grants.

It does not import `database_schema`, which later revisions will change; a test compares the two.
"""

from alembic import op

revision = "0001"
down_revision = None

_LAYOUT = (
    "metastore (id VARCHAR NOT NULL PRIMARY KEY)",
    """catalogs (
        id VARCHAR NOT NULL PRIMARY KEY, name VARCHAR NOT NULL, name_key VARCHAR NOT NULL UNIQUE, comment TEXT,
        properties JSON NOT NULL, storage_root VARCHAR NOT NULL, owner VARCHAR NOT NULL, created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL
    )""",
    """schemas (
        id VARCHAR NOT NULL PRIMARY KEY, catalog_id VARCHAR NOT NULL REFERENCES catalogs (id), name VARCHAR NOT NULL,
        name_key VARCHAR NOT NULL, comment TEXT, properties JSON NOT NULL, storage_root VARCHAR, owner VARCHAR NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, UNIQUE (catalog_id, name_key)
    )""",
    """staging_tables (
        id VARCHAR NOT NULL PRIMARY KEY, schema_id VARCHAR NOT NULL, name VARCHAR NOT NULL,
        location VARCHAR NOT NULL UNIQUE, finalized BOOLEAN NOT NULL, owner VARCHAR NOT NULL, created_at BIGINT NOT NULL,
        FOREIGN KEY (schema_id) REFERENCES schemas (id) ON DELETE CASCADE
    )""",
    """tables (
        id VARCHAR NOT NULL PRIMARY KEY, schema_id VARCHAR NOT NULL REFERENCES schemas (id), name VARCHAR NOT NULL,
        name_key VARCHAR NOT NULL, table_type VARCHAR NOT NULL, data_source_format VARCHAR NOT NULL,
        location VARCHAR NOT NULL, comment TEXT,
        columns JSON NOT NULL, partition_columns JSON NOT NULL, properties JSON NOT NULL, protocol JSON,
        domains JSON NOT NULL, etag VARCHAR NOT NULL, latest_version BIGINT, backfilled_version BIGINT,
        last_update_version BIGINT, last_commit_timestamp BIGINT, owner VARCHAR NOT NULL, created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL, UNIQUE (schema_id, name_key)
    )""",
    """commits (
        table_id VARCHAR NOT NULL, version BIGINT NOT NULL, timestamp BIGINT NOT NULL, file_name VARCHAR NOT NULL,
        file_size BIGINT NOT NULL, file_modification_timestamp BIGINT NOT NULL, PRIMARY KEY (table_id, version),
        FOREIGN KEY (table_id) REFERENCES tables (id) ON DELETE CASCADE
    ) WITHOUT ROWID""",
    "purges (location VARCHAR NOT NULL PRIMARY KEY)",
    """principals (
        name VARCHAR NOT NULL PRIMARY KEY, client_id VARCHAR NOT NULL UNIQUE, created_at BIGINT NOT NULL
    )""",
    "initial_principals (name VARCHAR NOT NULL PRIMARY KEY)",
    """credentials (
        id VARCHAR NOT NULL PRIMARY KEY, principal VARCHAR NOT NULL, kind VARCHAR NOT NULL,
        digest VARCHAR NOT NULL UNIQUE, comment TEXT, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
        secret_id VARCHAR, FOREIGN KEY (principal) REFERENCES principals (name) ON DELETE CASCADE,
        FOREIGN KEY (secret_id) REFERENCES credentials (id) ON DELETE CASCADE
    )""",
    """grants (
        principal VARCHAR NOT NULL, securable_id VARCHAR NOT NULL, privilege VARCHAR NOT NULL,
        PRIMARY KEY (principal, securable_id, privilege),
        FOREIGN KEY (principal) REFERENCES principals (name) ON DELETE CASCADE
    ) WITHOUT ROWID""",
)


def upgrade() -> None:
    for table in _LAYOUT:
        op.execute(f"CREATE TABLE {table}")
    op.execute("CREATE INDEX tables_by_location ON tables (location)")
    op.execute("CREATE INDEX grants_by_securable ON grants (securable_id)")
    op.execute("INSERT INTO principals VALUES ('admin', 'admin', 0)")
