"""`python -m ratify_lakehouse.embedded.catalog SETTINGS.json`: run the catalog server until it is stopped.

`ServerSettings` names what the file holds. The server prints one line of JSON to stdout when it is ready.
"""

import logging
import sys
from pathlib import Path

from ratify_lakehouse.embedded.catalog.api_errors import ApiError
from ratify_lakehouse.embedded.catalog.catalog_server import PortTakenError, serve
from ratify_lakehouse.embedded.catalog.server_settings import ServerSettings


def main() -> int:
    """Return the exit code: 0 after a stop, 2 when the server cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # At each start they log that there was nothing to migrate, and where keys were found.
    for name in ("alembic", "botocore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if len(sys.argv) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    try:
        serve(ServerSettings.model_validate_json(Path(sys.argv[1]).read_text()))
    except (PortTakenError, ApiError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
