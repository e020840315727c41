"""Names of catalogs, schemas and tables, and the URLs of their storage."""

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from embedded.catalog.errors import InvalidParameterError, NotSupportedError

MAX_NAME_LENGTH = 255
# A dot would split a full name, a slash a path; spaces and control characters break SQL and file names.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f./\u2028\u2029]")
_MANAGED = "__unitystorage"


def check_name(name: str) -> str:
    """Return `name`, or raise ValueError saying what is wrong with it."""
    if not name:
        raise ValueError("a name cannot be empty")
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(f"a name has at most {MAX_NAME_LENGTH} characters, this one has {len(name)}")
    found = _FORBIDDEN.search(name)
    if found:
        raise ValueError(f"a name cannot contain {found[0]!r} (nor spaces, dots, slashes or control characters)")
    return name


def split_full_name(full_name: str, parts: int) -> list[str]:
    """The `parts` components of a dotted full name. Raises InvalidParameterError when there are more or fewer."""
    names = full_name.split(".")
    if len(names) != parts or not all(names):
        shape = ".".join(["catalog", "schema", "table"][:parts])
        raise InvalidParameterError(f"{full_name!r} is not a full name of the form {shape}.")
    return names


def normal_location(location: str) -> str:
    """`location` with `file:/x` and `file:///x` spelled one way, and no `..`, `//` or closing slash.

    Raises InvalidParameterError when it is not an absolute URL.
    """
    parts = urlsplit(location)
    if not parts.scheme or not parts.path.startswith("/") or (parts.scheme == "file" and parts.netloc):
        raise InvalidParameterError(f"Location {location!r} is not an absolute URL such as file:///lake/table.")
    path = posixpath.normpath("/" + parts.path.lstrip("/"))
    return f"{parts.scheme}://{parts.netloc}{path}"


def external_location(location: str) -> str:
    """The normal form of an external table's location.

    Raises InvalidParameterError inside storage that the catalog manages: a second name for a managed table would let
    writers commit to it behind the catalog.
    """
    normal = normal_location(location)
    if _MANAGED in unquote(normal).split("/"):
        raise InvalidParameterError(f"Location {normal} is managed by the catalog; choose one outside {_MANAGED}.")
    return normal


def storage_location(root: str, kind: str, identity: str) -> str:
    """Managed storage of a catalog or schema: `<root>/__unitystorage/<kind>/<id>`."""
    return f"{root}/{_MANAGED}/{kind}/{identity}"


def storage_root(root: str) -> str:
    """The normal form of a storage root. Raises NotSupportedError for anything but file: storage."""
    normal = normal_location(root)
    require_file(normal)
    return normal


def require_file(location: str) -> None:
    """Raise NotSupportedError unless `location` is on file: storage, which needs no credentials."""
    if not location.startswith("file:///"):
        raise NotSupportedError(f"{location}: only file: storage is supported by this server; use a file:/// URL.")


def managed_path(location: str) -> Path:
    """The directory of a managed table. Raises ValueError unless it is one, for it is about to be deleted."""
    path = Path(unquote(urlsplit(location).path))
    if not location.startswith("file:///") or _MANAGED not in path.parts or path.parent.name != "tables":
        raise ValueError(f"{location} is not the location of a managed table")
    return path
