"""Dropped managed tables are kept for a time, so that they can be undropped."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the table; what was dropped before is deleted already, or noted in `purges`."""
    op.execute(
        """CREATE TABLE dropped_tables (
            id VARCHAR NOT NULL PRIMARY KEY, schema_id VARCHAR NOT NULL, catalog_key VARCHAR NOT NULL,
            schema_key VARCHAR NOT NULL, name VARCHAR NOT NULL, location VARCHAR NOT NULL, owner VARCHAR NOT NULL,
            dropped_at BIGINT NOT NULL, table_row JSON NOT NULL, commit_rows JSON NOT NULL, grant_rows JSON NOT NULL
        )"""
    )
