"""The subjects that were erased: rows of theirs that land again are dropped.

The list has no values, only a keyed hash of each (HMAC-SHA-256 over `kind:value`): without the key, which is no part of the
lakehouse, nobody can try values against it.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ratify_lakehouse.declarations import Column, Engine, TableDeclaration
from ratify_lakehouse.delta.erasure_fence import ERASED
from ratify_lakehouse.durable_files import write_durably
from ratify_lakehouse.engines.duckdb.duckdb_engine import DuckDBSession
from ratify_lakehouse.engines.duckdb.readable_tables import attached
from ratify_lakehouse.errors import NotConfigured, TableMissing
from ratify_lakehouse.sql.duckdb_sql import identifier, literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ERASED_SUBJECTS = TableDeclaration(
    layer=ERASED.partition(".")[0],
    name=ERASED.partition(".")[2],
    columns=(
        Column("kind", "string", "Kind of subject, such as user"),
        Column("digest", "string", "HMAC-SHA-256 of kind:value by the key of the erasures, hexadecimal"),
        Column("key_id", "string", "Which key: the first digits of its SHA-256"),
        Column("erased_by", "string", "Who erased it"),
        Column("erased_at", "timestamp", "When (UTC)"),
        Column("reason", "string", "Why"),
    ),
    comment="Subjects that were erased, whose rows are not loaded again; it has no value of theirs",
    writer=Engine.SPARK,
    operations=frozenset({"MERGE"}),
    keys=("kind", "digest"),
)
"""One row for each subject."""

_BLOCK = 64


@dataclass(frozen=True)
class ErasureKey:
    """The key of the hashes."""

    secret: bytes

    @classmethod
    def stored(cls, home: Path, *, create: bool = False) -> "ErasureKey":
        """Return the key of a project, from a file that only its owner reads.

        Args:
            home: RATIFY_HOME.
            create: Whether to make one where there is none.

        Raises:
            NotConfigured: there is none.
        """
        file = home / "erasure.key"
        if create and not file.exists():
            write_durably(file, secrets.token_hex(32).encode())
        try:
            return cls(bytes.fromhex(file.read_text().strip()))
        except (FileNotFoundError, ValueError) as error:
            raise NotConfigured(
                f"{file} is missing or damaged: without the key of the erasures, rows of erased subjects would be loaded "
                "again. Restore it from the backup, or copy it from the machine that erased them."
            ) from error

    @property
    def id(self) -> str:
        """Which key it is; says nothing about it."""
        return hashlib.sha256(self.secret).hexdigest()[:12]

    def digest(self, kind: str, value: str) -> str:
        """Return the keyed hash of a subject."""
        return hmac.new(self.secret, f"{kind}:{value}".encode(), hashlib.sha256).hexdigest()

    @property
    def pads(self) -> tuple[bytes, bytes]:
        """The key for the inner and for the outer hash. RFC 2104: H(K ⊕ opad, H(K ⊕ ipad, text))."""
        inner, outer = (bytes(byte ^ pad for byte in self.secret.ljust(_BLOCK, bytes(1))) for pad in (0x36, 0x5C))
        return inner, outer

    def require(self, key_ids: Collection[str]) -> None:
        """Require that subjects were erased by this key alone.

        Args:
            key_ids: Those of the keys that subjects were erased by.

        Raises:
            NotConfigured: others were used, too.
        """
        if others := sorted({*key_ids} - {self.id}):
            raise NotConfigured(
                f"Subjects were erased by the key {', '.join(others)}, and erasure.key is {self.id}: rows of theirs would "
                "be loaded again. Restore that key from the backup, or copy it from the machine that erased them."
            )

    def sql(self, kind: str, value: str) -> str:
        """Return DuckDB's expression for the same; `value` is one of text."""
        inner, outer = (f"unhex('{pad.hex()}')" for pad in self.pads)
        return f"sha256({outer} || unhex(sha256({inner} || encode({literal(f'{kind}:')} || {value}))))"


@dataclass(frozen=True)
class ErasedRows:
    """Which rows of a table of landed files are those of erased subjects.

    Attributes:
        key: Of the hashes.
        columns: The kind of each column that identifies a subject.
        digests: Of the erased subjects of these kinds.
    """

    key: ErasureKey
    columns: Mapping[str, str]
    digests: Sequence[str]

    @property
    def condition(self) -> str:
        """DuckDB's condition for a row of theirs."""
        digests = ", ".join(map(literal, self.digests))
        hashes = (self.key.sql(kind, f"CAST({identifier(name)} AS VARCHAR)") for name, kind in self.columns.items())
        return " OR ".join(f"coalesce({each} IN ({digests}), false)" for each in hashes)

    def count(self, con: "DuckDBPyConnection", parquet: Path) -> int:
        """Return how many rows of a file are theirs."""
        text = f"SELECT count(*) FROM read_parquet({literal(str(parquet))}) WHERE {self.condition}"
        (count,) = con.execute(text).fetchall()
        return int(count[0])

    def others(self, parquet: Path) -> str:
        """Return DuckDB's query for the other rows of a file."""
        return f"FROM read_parquet({literal(str(parquet))}) WHERE NOT ({self.condition})"


def erased_rows(session: DuckDBSession, table: TableDeclaration) -> ErasedRows | None:
    """Return which rows of a table are those of erased subjects; None if it can have none.

    Raises:
        NotConfigured: subjects were erased, by a key that is not here.
        CatalogUnavailable, CatalogDenied.
    """
    columns = {column.name: column.subject for column in table.columns if column.subject}
    if not columns:
        return None
    try:
        session.log(ERASED_SUBJECTS).refresh()
    except TableMissing:
        return None
    kinds = ", ".join(map(literal, sorted({*columns.values()})))
    found = session.rows(f"SELECT digest, key_id FROM {attached(ERASED_SUBJECTS.table_name)} WHERE kind IN ({kinds})")
    if not found:
        return None
    key = ErasureKey.stored(session.home)
    key.require({key_id for _, key_id in found})
    return ErasedRows(key, columns, [digest for digest, _ in found])
