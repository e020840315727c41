"""Who may do what: the privileges, and the one rule that every route is validated by.

A privilege is held by a grant, and by whoever owns what it is asked on; grants and ownership count for everything
below (catalog, schema, table). The admin owns the metastore, and so may do all. Above that rule:

- To reach anything, a principal needs USE CATALOG and USE SCHEMA on what holds it, even to a table of its own.
- Each privilege is validated at its own level: EXTERNAL USE SCHEMA on the schema, for instance, so that the owner of a
  table cannot do without it, and the owner of its schema can. Those of the metastore (storage outside of the managed
  tables, new catalogs) are never implied by the ownership of a catalog.
- What does not exist is answered with 404 and what is not permitted with 403, as the reference server does
  (KeyMapper looks names up before UnityAccessEvaluator validates); lists leave out what may not be seen.

EXTERNAL USE SCHEMA is not in the Privilege enum of unity-catalog-2.1.yaml; it is Databricks' own (and databricks-sdk's)
condition for engines of other houses, all that this server has.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto

from embedded.catalog.api_errors import PermissionDeniedError

ADMIN = "admin"


class Privilege(Flag):
    """`A | B` in `RequiredPrivileges` asks for either."""

    CREATE_CATALOG = auto()
    CREATE_EXTERNAL_TABLE = auto()
    CREATE_MANAGED_STORAGE = auto()
    READ_FILES = auto()
    WRITE_FILES = auto()
    USE_CATALOG = auto()
    CREATE_SCHEMA = auto()
    USE_SCHEMA = auto()
    CREATE_TABLE = auto()
    EXTERNAL_USE_SCHEMA = auto()
    SELECT = auto()
    MODIFY = auto()
    OWNER = auto()

    @property
    def published(self) -> str:
        """The name in unity-catalog-2.1.yaml; databricks-sdk writes underscores for the spaces."""
        return " or ".join(str(one.name).replace("_", " ") for one in self)


# What a route asks for: all of these on its securable. () admits every principal.
RequiredPrivileges = tuple[Privilege, ...]

KINDS = ("metastore", "catalog", "schema", "table")
# Where a privilege is validated, as an index of KINDS: it can be granted there and, but for the metastore's, above.
# OWNER has none: it is validated at the securable itself, and not granted.
_LEVEL = {
    Privilege.CREATE_CATALOG: 0,
    Privilege.CREATE_EXTERNAL_TABLE: 0,
    Privilege.CREATE_MANAGED_STORAGE: 0,
    Privilege.READ_FILES: 0,
    Privilege.WRITE_FILES: 0,
    Privilege.USE_CATALOG: 1,
    Privilege.CREATE_SCHEMA: 1,
    Privilege.USE_SCHEMA: 2,
    Privilege.CREATE_TABLE: 2,
    Privilege.EXTERNAL_USE_SCHEMA: 2,
    Privilege.SELECT: 3,
    Privilege.MODIFY: 3,
}

# What a route asks for beyond its required privileges, by what the request says: here by the operation that credentials are
# for, on a table and on a path outside of the managed ones.
LEVEL: dict[str, RequiredPrivileges] = {"READ": (Privilege.SELECT,), "READ_WRITE": (Privilege.SELECT, Privilege.MODIFY)}
_READ_PATH, _WRITE_PATH = (Privilege.READ_FILES,), (Privilege.READ_FILES, Privilege.WRITE_FILES)
PATH_LEVEL: dict[str, RequiredPrivileges] = {
    "READ": _READ_PATH,
    "READ_WRITE": _WRITE_PATH,
    "PATH_READ": _READ_PATH,
    "PATH_READ_WRITE": _WRITE_PATH,
    "PATH_CREATE_TABLE": (Privilege.CREATE_EXTERNAL_TABLE,),
}


def to_place(table_type: str) -> RequiredPrivileges:
    """What a new table takes: managed ones are placed by the catalog, and any other place is for few to choose."""
    return (Privilege.CREATE_EXTERNAL_TABLE,) if table_type == "EXTERNAL" else ()


def to_root(storage_root: str | None) -> RequiredPrivileges:
    """What a new catalog or schema takes, by whether it brings a root of its own for managed tables."""
    return (Privilege.CREATE_MANAGED_STORAGE,) if storage_root else ()


def grantable(kind: str) -> dict[str, Privilege]:
    """The privileges that can be granted on a kind of securable, by both spellings of their names."""
    level = KINDS.index(kind)
    held = [one for one, own in _LEVEL.items() if (level == 0) == (own == 0) and level <= own]
    return {one.published: one for one in held} | {str(one.name): one for one in held}


@dataclass(frozen=True, slots=True)
class EffectivePrivileges:
    """A principal before one securable: the owners on the way down to it (the metastore's first), and the grants."""

    principal: str
    names: Sequence[str]
    securable_id: str
    owners: Sequence[str]
    granted: Sequence[Privilege]

    def has(self, wanted: Privilege) -> bool:
        """Whether the principal has one of these privileges."""
        return self.owners[0] == self.principal or any(self._has(one) for one in wanted)

    def _has(self, one: Privilege) -> bool:
        level = _LEVEL.get(one, len(self.owners) - 1)
        if level == 0:
            return one in self.granted[0]
        within = slice(1, level + 1)
        return self.principal in self.owners[within] or any(one in held for held in self.granted[within])

    @property
    def reach(self) -> RequiredPrivileges:
        """What it takes to reach the securable at all."""
        return (Privilege.USE_CATALOG, Privilege.USE_SCHEMA)[: len(self.names)]

    def lacks(self, required: Iterable[Privilege]) -> Privilege | None:
        """The first of `required` that the principal does not have."""
        return next((wanted for wanted in required if not self.has(wanted)), None)

    def require(self, required: RequiredPrivileges) -> None:
        """Raises PermissionDeniedError, which names the privilege."""
        missing = self.lacks((*self.reach, *required)) if required else None
        if missing is not None:
            where = ".".join(self.names) or "the metastore"
            raise PermissionDeniedError(f"{self.principal} needs {missing.published} on {where}, or on what holds it.")
