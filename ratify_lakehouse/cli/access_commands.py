"""`ratify principal …`, `grant`, `revoke` and `grants`: principals, their credentials and their privileges.

They work on Databricks too (there, name a service principal by its application id); an open-source server has grants and no
service principals. On the embedded stack it is done as the admin.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ratify_lakehouse.catalog.catalog_grants import Grant, change_grants, grants_on, is_privilege
from ratify_lakehouse.cli.terminal_output import Json, out, progress, show
from ratify_lakehouse.errors import TableMissing, TerminalError

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from databricks.sdk.service.iam import ServicePrincipal

    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

T = TypeVar("T")

principal_app = typer.Typer(no_args_is_help=True, help="Service principals, their tokens and their OAuth secrets.")

Name = Annotated[str, typer.Argument(help="Name of the service principal.")]
Days = Annotated[int, typer.Option(min=1, max=730, help="Days until it expires.")]
Words = Annotated[list[str], typer.Argument(metavar="PRIVILEGE[,PRIVILEGE…] on SECURABLE to|from PRINCIPAL")]

_DAY_S = 24 * 60 * 60
_KINDS = ("catalog", "schema", "table")
_SENTENCE = re.compile(
    r"(?P<what>.+?) +on +((?P<kind>metastore|catalog|schema|table)\b *)?(?P<name>\S*) +(?P<word>to|from) +(?P<whom>\S+)",
    re.I,
)


class NotUnderstood(TerminalError):
    """The words are not a sentence that this command understands."""


class NotThere(TerminalError):
    """No principal, credential or securable of that name."""


class NoSuchApi(TerminalError):
    """The catalog's server has no service principals."""


@principal_app.command("create")
def create(name: Name, as_json: Json = False) -> None:
    """Create a service principal. It can do nothing until it has a token or secret, and grants."""
    created = _principals(f"create the principal {name}", lambda client: client.service_principals.create(display_name=name))
    show("Created", [_principal(created)], as_json=as_json)


@principal_app.command("list")
def list_all(as_json: Json = False) -> None:
    """List the service principals."""
    found = _principals("list the principals", lambda client: list(client.service_principals.list()))
    show("Service principals", [_principal(item) for item in found], as_json=as_json)


@principal_app.command("delete")
def delete(name: Name) -> None:
    """Delete a principal with its tokens, secrets and grants; the admin becomes the owner of what it owned."""
    identity = str(_found(name).id)
    _asked(f"delete the principal {name}", lambda client: client.service_principals.delete(identity))
    out.print(f"deleted {name}", highlight=False)


@principal_app.command("token")
def token(name: Name, days: Days = 90, comment: str | None = None, as_json: Json = False) -> None:
    """Create a bearer token and print it, only once: for UNITY_TOKEN."""
    application = str(_found(name).application_id)
    created = _asked(
        f"create a token of {name}",
        lambda client: client.token_management.create_obo_token(
            application, comment=comment, lifetime_seconds=days * _DAY_S
        ),
    )
    identity = created.token_info.token_id if created.token_info else None
    _show_secret({"id": identity, "token": created.token_value}, "token", as_json=as_json)


@principal_app.command("secret")
def secret(name: Name, days: Days = 730, as_json: Json = False) -> None:
    """Create an OAuth client id and secret and print them, only once: for UNITY_CLIENT_ID and UNITY_CLIENT_SECRET."""
    found = _found(name)
    created = _asked(
        f"create a secret of {name}",
        lambda client: client.service_principal_secrets_proxy.create(str(found.id), lifetime=f"{days * _DAY_S}s"),
    )
    shown = {"id": created.id, "client_id": found.application_id, "client_secret": created.secret}
    _show_secret(shown, "client_secret", as_json=as_json)


@principal_app.command("credentials")
def credentials(name: Name, as_json: Json = False) -> None:
    """List the tokens and secrets of a principal: their ids, and when they expire."""
    found = _found(name)
    tokens = _asked("list the tokens", lambda client: list(client.token_management.list()))
    secrets = _asked(
        f"list the secrets of {name}", lambda client: list(client.service_principal_secrets_proxy.list(str(found.id)))
    )
    rows = [
        {"kind": "token", "id": item.token_id, "expires": _time(item.expiry_time), "comment": item.comment or ""}
        for item in tokens
        if item.created_by_username in (found.display_name, found.application_id)
    ]
    rows += [{"kind": "secret", "id": item.id, "expires": item.expire_time, "comment": ""} for item in secrets]
    show(f"Credentials of {name}", rows, as_json=as_json)


@principal_app.command("revoke")
def revoke_credential(
    name: Name, credential: Annotated[str, typer.Argument(help="Its id: `ratify principal credentials NAME`.")]
) -> None:
    """Revoke a token, or a secret with all tokens that were issued for it, at once."""
    from databricks.sdk.errors import NotFound

    identity = str(_found(name).id)

    def delete_credential(client: "WorkspaceClient") -> None:
        try:
            client.service_principal_secrets_proxy.delete(identity, credential)
        except NotFound:
            client.token_management.delete(credential)

    _asked(f"revoke {credential}", delete_credential)
    out.print(f"revoked {credential}", highlight=False)


def grant(words: Words, as_json: Json = False) -> None:
    """Grant privileges on a catalog, schema, table or the metastore: `ratify grant SELECT on ratify.bronze to bob`."""
    _change("add", "to", words, as_json=as_json)


def revoke(words: Words, as_json: Json = False) -> None:
    """Revoke privileges: `ratify revoke SELECT on ratify.bronze from bob`."""
    _change("remove", "from", words, as_json=as_json)


def grants(
    securable: Annotated[str, typer.Argument(help="catalog, catalog.schema, catalog.schema.table, or metastore.")],
    as_json: Json = False,
) -> None:
    """Show the privileges that are granted on a catalog, schema, table or the metastore itself."""
    kind, name = _securable(None, securable)
    catalog = _catalog()
    found = _there(lambda: grants_on(catalog, kind, name or _metastore(catalog)))
    _show_grants(securable, found, as_json=as_json)


def _change(verb: str, word: str, words: list[str], *, as_json: bool) -> None:
    sentence = _SENTENCE.fullmatch(" ".join(words))
    if sentence is None or sentence["word"].lower() != word:
        raise NotUnderstood(
            f"{' '.join(words)!r} is not of the form PRIVILEGE[,PRIVILEGE…] on SECURABLE {word} PRINCIPAL. "
            f"For instance: USE CATALOG, SELECT on ratify {word} bob"
        )
    kind, name = _securable(sentence["kind"], sentence["name"])
    privileges = [one.strip().upper() for one in sentence["what"].split(",")]
    for one in privileges:
        if not is_privilege(one):
            raise NotUnderstood(f"There is no privilege {one!r}. Use one such as SELECT, MODIFY or USE SCHEMA.")
    catalog = _catalog()
    found = _there(lambda: change_grants(catalog, kind, name or _metastore(catalog), sentence["whom"], **{verb: privileges}))
    _show_grants(name or kind, found, as_json=as_json)


def _securable(kind: str | None, name: str) -> tuple[str, str]:
    """Return the kind and the full name; the metastore's name is empty."""
    if (kind or name).lower() == "metastore":
        return "metastore", ""
    dots = name.count(".")
    if not all(name.split(".")) or dots >= len(_KINDS) or (kind and kind.lower() != _KINDS[dots]):
        raise NotUnderstood(f"{kind or ''} {name!r} is not a catalog, catalog.schema, catalog.schema.table or metastore.")
    return _KINDS[dots], name


def _metastore(catalog: "UnityCatalog") -> str:
    return str(catalog.ask("read the metastore", catalog.client.metastores.summary).metastore_id)


def _found(name: str) -> "ServicePrincipal":
    for item in _principals("list the principals", lambda client: list(client.service_principals.list())):
        if name in (item.display_name, item.application_id):
            return item
    raise NotThere(f"There is no principal {name}: `ratify principal create {name}` makes it, `… list` shows all.")


def _catalog() -> "UnityCatalog":
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

    return UnityCatalog(admin=True)


def _asked(what: str, ask: "Callable[[WorkspaceClient], Any]") -> Any:
    catalog = _catalog()
    return _there(lambda: catalog.ask(what, lambda: ask(catalog.client)))


def _there(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except TableMissing as error:
        raise NotThere(f"{error} `ratify principal list` shows the principals.") from error


def _principals(what: str, ask: "Callable[[WorkspaceClient], Any]") -> Any:
    """Ask for what does not depend on a name, so that "not found" is said of the API itself."""
    catalog = _catalog()
    try:
        return catalog.ask(what, lambda: ask(catalog.client))
    except TableMissing as error:
        raise NoSuchApi(
            f"The catalog at {catalog.connection.host} could not {what}: it has no API for service principals, as the "
            "open-source Unity Catalog server has none. Manage users and tokens with that server's own tools; `ratify "
            "grant` works there."
        ) from error


def _principal(item: "ServicePrincipal") -> dict[str, Any]:
    return {"name": item.display_name, "client id": item.application_id}


def _time(milliseconds: int | None) -> str:
    return datetime.fromtimestamp((milliseconds or 0) / 1000, UTC).isoformat(timespec="seconds")


def _show_secret(created: dict[str, Any], value: str, *, as_json: bool) -> None:
    """Show a secret, which is shown only once; without --json, stdout holds the bare value, for scripts."""
    if as_json:
        show("Created", [created], as_json=True)
        return
    for name, text in created.items():
        if name != value:
            progress(f"{name}: {text}")
    progress(f"{value}, which is not shown again:")
    out.print(str(created[value]), highlight=False, soft_wrap=True)


def _show_grants(name: str, found: list[Grant], *, as_json: bool) -> None:
    rows = [{"principal": item.principal, "privileges": ", ".join([*item.known, *item.unknown])} for item in found]
    show(f"Grants on {name}", rows, as_json=as_json)
