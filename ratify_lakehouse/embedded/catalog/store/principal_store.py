"""Principals and their credentials in the store. Every function runs in the given transaction."""

import hashlib
import secrets
from dataclasses import dataclass, fields

from sqlalchemy import Connection, bindparam, delete, exists, insert, or_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from ratify_lakehouse.embedded.catalog.access_rules import ADMIN
from ratify_lakehouse.embedded.catalog.api_errors import AlreadyExistsError, FailedPreconditionError, NoSuchPrincipalError
from ratify_lakehouse.embedded.catalog.store.catalog_database import new_id, now_ms
from ratify_lakehouse.embedded.catalog.store.database_schema import (
    catalogs,
    credentials,
    dropped_tables,
    initial_principals,
    principals,
    schemas,
    staging_tables,
    tables,
)


@dataclass(frozen=True, slots=True)
class Principal:
    """A row of `principals`."""

    name: str
    client_id: str
    created_at: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A row of `credentials`, without the digest."""

    id: str
    principal: str
    kind: str
    comment: str | None
    created_at: int
    expires_at: int


# Built once, because every request runs it: constructing a statement costs more than running it.
_CLIENT_ID = select(principals.c.client_id).where(principals.c.name == bindparam("of_name"))
_SHOWN = [credentials.c[field.name] for field in fields(Credential)]


def digest_of(value: str | bytes) -> str:
    """The stored form of a token or secret. Random values of 256 bits need neither salt nor stretching."""
    return hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


def create_principal(tx: Connection, name: str) -> Principal:
    """Raises AlreadyExistsError, also for the id of another one: whoever is named by it must be one principal."""
    if tx.scalar(select(exists().where(or_(principals.c.name == name, principals.c.client_id == name)))):
        raise AlreadyExistsError(f"Principal already exists: {name}")
    created = Principal(name, new_id(), now_ms())
    tx.execute(insert(principals).values(name=created.name, client_id=created.client_id, created_at=created.created_at))
    return created


def create_initial(tx: Connection, name: str) -> bool:
    """Create a principal of the settings at its first start ever; False later, also when the admin has deleted it."""
    created = tx.execute(upsert(initial_principals).values(name=name).on_conflict_do_nothing()).rowcount == 1
    if created and not is_principal(tx, name):
        create_principal(tx, name)
        return True
    return False


def list_principals(tx: Connection) -> list[Principal]:
    """All but the admin, who has no credentials here, by name."""
    rows = tx.execute(select(principals).where(principals.c.name != ADMIN).order_by(principals.c.name))
    return [Principal(*row) for row in rows]


def get_principal(tx: Connection, name_or_id: str) -> Principal:
    """A principal by its name or its client id. Raises NoSuchPrincipalError."""
    chosen = select(principals).where(or_(principals.c.name == name_or_id, principals.c.client_id == name_or_id))
    row = tx.execute(chosen).first()
    if row is None:
        raise NoSuchPrincipalError(f"Principal not found: {name_or_id}")
    return Principal(*row)


def client_id_of(tx: Connection, name: str) -> str | None:
    """The id of the principal that has that name now."""
    return tx.scalar(_CLIENT_ID, {"of_name": name})


def is_principal(tx: Connection, name: str) -> bool:
    """Whether a principal has that name."""
    return client_id_of(tx, name) is not None


def delete_principal(tx: Connection, principal: Principal) -> None:
    """Delete a principal, its credentials and grants; what it owned becomes the admin's. Raises FailedPreconditionError."""
    if principal.name == ADMIN:
        raise FailedPreconditionError("The admin cannot be deleted.")
    for table in (catalogs, schemas, staging_tables, tables, dropped_tables):
        tx.execute(update(table).where(table.c.owner == principal.name).values(owner=ADMIN))
    tx.execute(delete(principals).where(principals.c.name == principal.name))


def issue(
    tx: Connection, principal: str, kind: str, seconds: int, *, comment: str | None = None, secret_id: str | None = None
) -> tuple[Credential, str]:
    """A new credential and its value, which cannot be shown again. Expired credentials are deleted at the same time."""
    now = now_ms()
    tx.execute(delete(credentials).where(credentials.c.expires_at <= now))
    created = Credential(new_id(), principal, kind, comment, now, now + seconds * 1000)
    value = secrets.token_urlsafe(32)
    values = {field.name: getattr(created, field.name) for field in fields(Credential)}
    tx.execute(insert(credentials).values(**values, digest=digest_of(value), secret_id=secret_id))
    return created, value


def find_credential(tx: Connection, digest: str, kinds: tuple[str, ...]) -> Credential | None:
    """The credential of one of these kinds with that digest, expired or not."""
    chosen = select(*_SHOWN).where(credentials.c.digest == digest, credentials.c.kind.in_(kinds))
    row = tx.execute(chosen).first()
    return Credential(*row) if row else None


def list_credentials(tx: Connection, kind: str, principal: str | None = None) -> list[Credential]:
    """The credentials of a kind, of one principal or of all, the oldest first."""
    chosen = select(*_SHOWN).where(credentials.c.kind == kind).order_by(credentials.c.created_at, credentials.c.id)
    if principal is not None:
        chosen = chosen.where(credentials.c.principal == principal)
    return [Credential(*row) for row in tx.execute(chosen)]


def revoke_credential(tx: Connection, kind: str, identity: str, principal: str | None = None) -> None:
    """Delete a credential, and the access tokens that a secret was exchanged for. Raises NoSuchPrincipalError."""
    chosen = delete(credentials).where(credentials.c.id == identity, credentials.c.kind == kind)
    if principal is not None:
        chosen = chosen.where(credentials.c.principal == principal)
    if tx.execute(chosen).rowcount == 0:
        raise NoSuchPrincipalError(f"There is no {kind} with the id {identity}.")
