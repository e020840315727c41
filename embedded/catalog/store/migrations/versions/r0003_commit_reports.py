"""What writers report of their commits."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute(
        """CREATE TABLE commit_reports (
            id INTEGER NOT NULL PRIMARY KEY, table_id VARCHAR NOT NULL, reported_at BIGINT NOT NULL, report JSON NOT NULL,
            FOREIGN KEY (table_id) REFERENCES tables (id) ON DELETE CASCADE
        )"""
    )
    op.execute("CREATE INDEX commit_reports_by_table ON commit_reports (table_id)")
