"""`python -m embedded.catalog`: run the catalog server until it is told to stop."""

import argparse
import logging
import sys
from pathlib import Path

from embedded.catalog.access_rules import Privilege
from embedded.catalog.api_errors import ApiError
from embedded.catalog.catalog_server import HOST, PortTakenError, ServerSettings, serve
from embedded.catalog.managed_storage import S3
from embedded.catalog.object_names import check_name
from embedded.catalog.store.catalog_database import ACCESS_TOKEN_SECONDS


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to 65535")
    return int(text)


def _principal(text: str) -> tuple[str, list[Privilege]]:
    name, _, privileges = text.partition("=")
    try:
        return check_name(name), [Privilege[one] for one in privileges.split(",") if one]
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=PRIVILEGE,…, such as etl=USE_CATALOG,SELECT ({error})"
        ) from error


def _settings() -> ServerSettings:
    parser = argparse.ArgumentParser(
        prog="python -m embedded.catalog",
        description=f"A Unity Catalog server on {HOST}. Prints one line of JSON to stdout when it is ready.",
    )
    parser.add_argument("--state-dir", type=Path, required=True, help="directory of the catalog's database")
    parser.add_argument("--storage-root", required=True, help="directory of the managed tables, or s3://bucket/prefix")
    parser.add_argument(
        "--port",
        type=_port,
        default=8080,
        help="port to listen on; 0 chooses a free one (default 8080)",
    )
    parser.add_argument("--catalog", default="ratify", help="catalog to create when it is missing (default ratify)")
    parser.add_argument(
        "--token-file", type=Path, required=True, help="the admin's bearer token; created when it is missing"
    )
    parser.add_argument(
        "--principal",
        dest="principals",
        type=_principal,
        action="append",
        default=[],
        metavar="NAME=PRIVILEGE,…",
        help="service principal with a token in NAME.token beside --token-file; when it is made it is granted these "
        "privileges on the catalog",
    )
    parser.add_argument(
        "--access-token-seconds",
        type=int,
        default=ACCESS_TOKEN_SECONDS,
        help=f"life of the tokens that OAuth clients are given (default {ACCESS_TOKEN_SECONDS})",
    )
    parser.add_argument("--s3-role-arn", help="role to assume for storage on S3, with the keys that boto3 finds")
    parser.add_argument("--s3-endpoint", help="URL of S3 and STS, where they are not those of AWS")
    parser.add_argument("--s3-region", default=S3.region, help=f"region of S3 and STS (default {S3.region})")
    parser.add_argument(
        "--s3-credential-seconds",
        type=int,
        default=S3.credential_seconds,
        help=f"life of the credentials that clients are given for S3, 900 or more (default {S3.credential_seconds})",
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when stdin reaches its end")
    given = vars(parser.parse_args())
    s3 = S3(**{name.removeprefix("s3_"): given.pop(name) for name in list(given) if name.startswith("s3_")})
    return ServerSettings(s3=s3, **given)


def main() -> int:
    """The exit code: 0 after a stop, 2 when the server cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # They tell of each start that there was nothing to migrate, and where keys were found.
    for name in ("alembic", "botocore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        serve(_settings())
    except (PortTakenError, ApiError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
