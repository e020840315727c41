"""Names of catalogs, schemas and tables, and the URLs of their storage."""

import re
from pathlib import Path
from urllib.parse import quote, unquote

from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError

MAX_NAME_LENGTH = 255
# A dot would split a full name, a slash a path; spaces and control characters break SQL and file names.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\x9f./\u2028\u2029]")
_MANAGED = "__unitystorage"
# In a decoded path: control characters, `%` (a second decoding), and the separators of URLs and Windows.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\%?#]")
# A bucket and keys of plain characters: no `*`, `?` or `$`, which are patterns in the policies of AWS, and no `//`.
_S3 = re.compile(r"(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9!_.'()=@:,+&; -]+)*)/?")


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


def folded(name: str) -> str:
    """What is equal for names that differ only in case, which are one name, in every script."""
    return name.casefold()


def split_full_name(full_name: str, parts: int) -> list[str]:
    """The `parts` components of a dotted full name. Raises InvalidParameterError when there are more or fewer."""
    names = full_name.split(".")
    if len(names) != parts or not all(names):
        shape = ".".join(["catalog", "schema", "table"][:parts])
        raise InvalidParameterError(f"{full_name!r} is not a full name of the form {shape}.")
    return names


def normal_location(location: str) -> str:
    """The one spelling of a storage URL: `/x` and `file:/x` as `file:///x`, symbolic links resolved, no trailing slash.

    Raises InvalidParameterError for storage other than file: and s3:, for a relative URL, and for spellings that two
    programs could read as two locations: `..` in any form, encoded slashes, control characters.
    """
    if location.startswith("/") and not location.startswith("//"):
        # A bare path has no escapes: its `%` is a character.
        return _normal_file(location, quote(location))
    scheme, colon, rest = location.partition(":")
    if not colon or not rest.startswith("/"):
        raise InvalidParameterError(f"Location {location!r} is not an absolute URL such as file:///lake/table.")
    if scheme == "file":
        return _normal_file(location, rest)
    if scheme == "s3":
        return _normal_s3(location)
    raise InvalidParameterError(f"Location {location!r}: only file: and s3: storage is supported by this server.")


def _normal_file(location: str, rest: str) -> str:
    path = rest.removeprefix("//")  # an empty host, which is this one
    try:
        decoded = unquote(path, errors="strict")
        safe = not _UNSAFE.search(decoded) and decoded.count("/") == path.count("/") and not {"?", "#"} & set(path)
        segments = [segment for segment in decoded.split("/") if segment]
        if safe and path.startswith("/") and segments and not {".", ".."} & set(segments):
            # A link could lead into another table, or out of the root.
            resolved = Path("/", *segments).resolve()
            return "file://" + quote(str(resolved), safe="/!$&'()*+,;=:@")
    except (ValueError, OSError, RuntimeError):  # not UTF-8, or links in a circle
        pass
    raise InvalidParameterError(f"Location {location!r} is not a plain absolute path; give one such as file:///lake/table.")


def _normal_s3(location: str) -> str:
    found = _S3.fullmatch(location)
    if not found or {".", ".."} & set(location.split("/")):
        raise InvalidParameterError(
            f"Location {location!r} is not of the form s3://bucket/prefix, in letters, digits and !_.'()=@:,+&; only."
        )
    return found[1]


def external_location(location: str) -> str:
    """The normal form of an external table's location.

    Raises InvalidParameterError inside managed storage, because a second name for a managed table would let writers
    bypass the catalog, and for a whole bucket, which always contains other data.
    """
    normal = storage_root(location)
    if normal.count("/") < 3:
        raise InvalidParameterError(f"Location {normal} is a whole bucket; choose a prefix in it.")
    return normal


def storage_root(location: str) -> str:
    """The normal form of a storage root. Raises InvalidParameterError, also inside managed storage."""
    normal = normal_location(location)
    if _MANAGED in unquote(normal).split("/"):
        raise InvalidParameterError(f"Location {normal} is managed by the catalog; choose one outside {_MANAGED}.")
    return normal


def storage_location(root: str, kind: str, identity: str) -> str:
    """Managed storage of a catalog or schema: `<root>/__unitystorage/<kind>/<id>`."""
    return f"{root}/{_MANAGED}/{kind}/{identity}"


def ancestors(location: str) -> list[str]:
    """`location` and every directory above it, up to the root of its storage."""
    scheme, _, path = location.partition("://")
    parts = path.split("/")
    return [f"{scheme}://" + "/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def check_managed(location: str) -> None:
    """Raise InvalidParameterError unless `location` is that of a managed table.

    Called before files are created or deleted there: nothing below the storage root may be a link.
    """
    root, found, below = location.partition(f"/{_MANAGED}/")
    if (
        not found
        or below.split("/")[-2:-1] != ["tables"]
        or normal_location(location) != normal_location(root) + found + below
    ):
        raise InvalidParameterError(f"{location} is not the location of a managed table, or leads elsewhere by a link.")


def file_path(location: str) -> Path:
    """The directory of a location on file: storage."""
    return Path(unquote(location.removeprefix("file://")))
