"""The database's layouts, one alembic revision each, and the migration from any of them to the newest."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection


def migrate(tx: Connection, revision: str = "head") -> None:
    """Migrate the database to the layout of this code, or to an earlier one: completely, or not at all, for it is
    one transaction of the caller's.

    Raises ValueError when a newer version of the catalog wrote the database: its layout is unknown here.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = tx
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise ValueError(
            f"the database was written by a newer version of the catalog ({error}); start that version, or choose "
            "another state directory"
        ) from error
