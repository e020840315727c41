"""Dropped tables know the id of their catalog, and end their bonds to a principal when it is deleted."""

from alembic import op

revision = "0003"
down_revision = "0002"

# A principal that was created after the drop is another one than the owner or the grantee of that name.
_SAME = "SELECT 1 FROM principals WHERE principals.name = {name} AND principals.created_at <= dropped_tables.dropped_at"


def upgrade() -> None:
    """Add what the tables know by ids; where that is not known any more, the owner and the admin are left."""
    op.execute("ALTER TABLE dropped_tables ADD COLUMN catalog_id VARCHAR NOT NULL DEFAULT ''")
    catalog = "SELECT catalog_id FROM schemas WHERE schemas.id = dropped_tables.schema_id"
    op.execute(f"UPDATE dropped_tables SET catalog_id = coalesce(({catalog}), '')")
    op.execute(f"UPDATE dropped_tables SET owner = 'admin' WHERE NOT EXISTS ({_SAME.format(name='owner')})")
    op.execute("UPDATE dropped_tables SET table_row = json_remove(table_row, '$.owner')")
    op.execute(
        """CREATE TABLE dropped_grants (
            principal VARCHAR NOT NULL, table_id VARCHAR NOT NULL, privilege VARCHAR NOT NULL,
            PRIMARY KEY (principal, table_id, privilege),
            FOREIGN KEY (principal) REFERENCES principals (name) ON DELETE CASCADE,
            FOREIGN KEY (table_id) REFERENCES dropped_tables (id) ON DELETE CASCADE
        ) WITHOUT ROWID"""
    )
    op.execute("CREATE INDEX dropped_grants_by_table ON dropped_grants (table_id)")
    grantee = "json_extract(each.value, '$.principal')"
    op.execute(
        f"""INSERT INTO dropped_grants SELECT {grantee}, dropped_tables.id, json_extract(each.value, '$.privilege')
        FROM dropped_tables, json_each(grant_rows) AS each WHERE EXISTS ({_SAME.format(name=grantee)})"""
    )
    op.execute("ALTER TABLE dropped_tables DROP COLUMN grant_rows")
