"""Who may do what: the privileges, and the one rule that every route applies.

A route declares the privileges that it requires on a securable; a principal has effective privileges there. Grants and
ownership are inherited downwards (catalog, schema, table). The admin owns the metastore, and so has every privilege.
In addition:

- To reach a securable, a principal needs USE CATALOG and USE SCHEMA on its parents, even for a table that it owns.
- Each privilege applies at its own level. EXTERNAL USE SCHEMA applies at the schema: the owner of a table still needs it,
  the owner of the schema does not. Owning a catalog never implies a privilege of the metastore (storage outside of the
  managed tables, new catalogs).
- A dropped table stays below the catalog and the schema that it was dropped from, by their ids: where these are dropped,
  too, its owner and the admin are left. To undrop it, a principal must own it, and may create tables where it comes back.
- A missing securable is answered with 404, a missing privilege with 403, as by the reference server (KeyMapper looks
  names up before UnityAccessEvaluator decides). Lists leave out what the principal may not see.

EXTERNAL USE SCHEMA is not in the Privilege enum of unity-catalog-2.1.yaml. Databricks and databricks-sdk require it for
external engines, and this server has no others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Flag, auto

from ratify_lakehouse.embedded.catalog.api_errors import PermissionDeniedError

ADMIN = "admin"


class Privilege(Flag):
    """`A | B` in `RequiredPrivileges` requires one of the two."""

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
        """The name in unity-catalog-2.1.yaml."""
        return " or ".join(str(one.name).replace("_", " ") for one in self)


# What a route requires on its securable: all of these. () admits every principal.
RequiredPrivileges = tuple[Privilege, ...]

KINDS = ("metastore", "catalog", "schema", "table")
# The level at which a privilege applies, as an index of KINDS. It can be granted at that level and above; those of the
# metastore only there. OWNER has no level: it applies to the securable itself, and cannot be granted.
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

# What a request requires beyond its route: for credentials it depends on the operation, on a table and on a path outside
# of managed storage.
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
    """What a new table requires: only an external one has a location that the client chooses."""
    return (Privilege.CREATE_EXTERNAL_TABLE,) if table_type == "EXTERNAL" else ()


def to_root(storage_root: str | None) -> RequiredPrivileges:
    """What a new catalog or schema requires: more when the client chooses its storage root."""
    return (Privilege.CREATE_MANAGED_STORAGE,) if storage_root else ()


def grantable(kind: str) -> dict[str, Privilege]:
    """The privileges that can be granted on a kind of securable, by their published names."""
    level = KINDS.index(kind)
    return {one.published: one for one, own in _LEVEL.items() if (level == 0) == (own == 0) and level <= own}


@dataclass(frozen=True, slots=True)
class EffectivePrivileges:
    """What a principal has on one securable: owners and grants from the metastore down to it."""

    principal: str
    names: Sequence[str]
    securable_id: str
    owners: Sequence[str | None]
    granted: Sequence[Privilege]

    def has(self, wanted: Privilege) -> bool:
        """Whether the principal has one of these privileges."""
        return self.owners[0] == self.principal or any(self._has(one) for one in wanted)

    def _has(self, one: Privilege) -> bool:
        level = _LEVEL.get(one, len(self.owners) - 1)
        if level == 0:
            return one in self.granted[0]
        within = slice(1, level + 1)
        return self.principal in self.owners[within] or any(one in granted for granted in self.granted[within])

    @property
    def reach(self) -> RequiredPrivileges:
        """The privileges required to reach the securable at all."""
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
