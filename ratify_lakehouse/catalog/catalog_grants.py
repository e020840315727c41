"""The grants on a securable, in the spelling of the server that has them.

The published API, and with it every open-source server, spells a privilege `USE CATALOG`, and Databricks `USE_CATALOG`.
databricks-sdk sends only the second, and drops from an answer what it does not know: so both are read and written here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from ratify_lakehouse.settings import Settings

if TYPE_CHECKING:
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

_PATH = "/api/2.1/unity-catalog/permissions"


@dataclass(frozen=True)
class Grant:
    """The privileges that a principal has on the securable itself, as the server spells them."""

    principal: str
    privileges: tuple[str, ...]

    @property
    def known(self) -> list[str]:
        """The names in SQL of the privileges that are known, sorted."""
        return sorted(one.upper().replace("_", " ") for one in self.privileges if is_privilege(one))

    @property
    def unknown(self) -> list[str]:
        """The other privileges, as they are."""
        return sorted(one for one in self.privileges if not is_privilege(one))


def is_privilege(text: str) -> bool:
    """Return whether a text names a privilege, in either spelling."""
    from databricks.sdk.service.catalog import Privilege

    return text.strip().upper().replace(" ", "_") in Privilege.__members__


def grants_on(catalog: "UnityCatalog", kind: str, name: str) -> list[Grant]:
    """Return the grants on a securable, by principal.

    Args:
        catalog: Where it is.
        kind: metastore, catalog, schema or table.
        name: Its full name; that of the metastore is its id.

    Raises:
        TableMissing: there is no such securable.
        CatalogDenied, CatalogUnavailable, CatalogBusy: as for every call.
    """
    found, query = list[Grant](), dict[str, str]()
    while True:
        page = _request(catalog, f"show the grants on {name}", "GET", kind, name, query=query)
        found += _grants(page)
        if not page.get("next_page_token"):
            return sorted(found, key=lambda grant: grant.principal)
        query = {"page_token": page["next_page_token"]}


def change_grants(
    catalog: "UnityCatalog", kind: str, name: str, principal: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()
) -> list[Grant]:
    """Grant and revoke privileges, named in either spelling; return the principal's grants on the securable after it.

    Raises:
        CatalogRejected: the server does not know a privilege, or not on such a securable.
        TableMissing: there is no such securable, or no such principal.
        CatalogDenied, CatalogUnavailable, CatalogBusy: as for every call.
    """
    space = "_" if is_databricks(catalog) else " "
    spelled = {"add": add, "remove": remove}
    change = {key: [one.replace("_", " ").replace(" ", space) for one in names] for key, names in spelled.items()}
    body = {"changes": [{"principal": principal, **change}]}
    return _grants(_request(catalog, f"change the grants on {name}", "PATCH", kind, name, body=body))


def _request(catalog: "UnityCatalog", what: str, method: str, kind: str, name: str, **request: Any) -> dict[str, Any]:
    do = cast("Callable[..., dict[str, Any]]", catalog.client.api_client.do)  # pyright: ignore[reportUnknownMemberType]
    return catalog.ask(what, lambda: do(method, f"{_PATH}/{kind}/{quote(name, safe='')}", **request))


def _grants(answer: dict[str, Any]) -> list[Grant]:
    assigned: list[dict[str, Any]] = answer.get("privilege_assignments") or []
    return [Grant(one.get("principal") or "", tuple(one.get("privileges") or ())) for one in assigned]


def is_databricks(catalog: "UnityCatalog") -> bool:
    """Whether it is a Databricks workspace: by its host, or because a SQL warehouse is named, which nothing else has."""
    from databricks.sdk.environments import ALL_ENVS

    host = urlsplit(catalog.connection.host).hostname or ""
    return bool(Settings().unity_warehouse_id) or any(host.endswith(known.dns_zone) for known in ALL_ENVS)
