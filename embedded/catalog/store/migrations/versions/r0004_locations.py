"""Tables by location, which must not overlap."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("CREATE INDEX tables_by_location ON tables (location)")
