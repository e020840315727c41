"""Owners, principals, their credentials (hashed) and grants. Everything older belongs to the admin."""

from alembic import op

revision = "0002"
down_revision = "0001"

_LAYOUT = (
    """principals (
        name VARCHAR NOT NULL PRIMARY KEY, client_id VARCHAR NOT NULL UNIQUE, created_at BIGINT NOT NULL
    )""",
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
    op.execute("CREATE INDEX grants_by_securable ON grants (securable_id)")
    op.execute("INSERT INTO principals VALUES ('admin', 'admin', 0)")
    for table in ("catalogs", "schemas", "staging_tables", "tables"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN owner VARCHAR NOT NULL DEFAULT 'admin'")
    # Code without migrations looks here, and refuses what is not its 1.
    op.execute("PRAGMA user_version = 2")
