"""What maintenance a table allows, by whom it is done, and why.

Delta's PROTOCOL.md ("Maintenance operations on catalog-managed tables") has the rule: checkpoints of published versions are
always allowed; files may be rewritten without a change of rows, and removed, only where the managing catalog explicitly
permits it. The embedded catalog says what it permits (`UnityCatalog.permitted_maintenance`); other servers say nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ratify_lakehouse.catalog.catalog_grants import is_databricks
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.delta.snapshot import Snapshot, SnapshotState
from ratify_lakehouse.delta.table_features import refuse_unsupported_features
from ratify_lakehouse.errors import CatalogDenied, UnsafeTable


class Manager(StrEnum):
    """Who manages a table, which decides what clients may do to its files."""

    EMBEDDED = "a catalog that says what it permits"
    OPEN_SOURCE = "another Unity Catalog server"
    DATABRICKS = "Databricks"
    EXTERNAL = "nobody: the table is external"


class Maintenance(StrEnum):
    """Maintenance of a table, by the names of `ratify` and of `permitted_maintenance`."""

    CHECKPOINT = "checkpoint"
    COMPACT = "compact"
    CLEAN = "clean"
    CLEAN_LOG = "clean_log"
    RESTORE = "restore"


@dataclass(frozen=True)
class Rule:
    """Whether an operation is allowed.

    Attributes:
        allowed: Whether it is.
        by: What carries it out; where it is not allowed, what to do instead, and what that costs. It is never done unasked.
        reason: Why it is allowed, or is not.
    """

    operation: Maintenance
    allowed: bool
    by: str
    reason: str


@dataclass(frozen=True)
class MaintenanceRules:
    """The rules of one table.

    Attributes:
        manager: Who manages it.
        rules: By operation, all of them.
    """

    full_name: str
    manager: Manager
    rules: Mapping[Maintenance, Rule]

    def require(self, operation: Maintenance) -> None:
        """Refuse an operation that is not allowed.

        Raises:
            UnsafeTable: the message has the reason, and what to do instead.
        """
        rule = self.rules[operation]
        if not rule.allowed:
            raise UnsafeTable(f"{self.full_name}: {operation} is not allowed. {rule.reason} Instead: {rule.by}")


@dataclass(frozen=True)
class GovernedTable:
    """Facts that the rules of a table depend on.

    Attributes:
        manager: Who manages it.
        permitted: What its catalog permits.
        denied: Why the catalog does not answer this principal; empty if it does.
        unsupported: Why our writer cannot rewrite its files; empty if it can.
    """

    full_name: str
    manager: Manager
    permitted: frozenset[str] = frozenset()
    denied: str = ""
    unsupported: str = ""


def maintenance_rules(catalog: UnityCatalog, full_name: str) -> MaintenanceRules:
    """Ask the catalog what it permits, and return the rules of a table.

    Raises:
        TableMissing, CatalogUnavailable, CatalogDenied.
        CatalogRejected: it is no Delta table.
    """
    loaded = catalog.load_table(full_name)
    metadata = loaded["metadata"]
    if metadata["table-type"] != "MANAGED":
        return rules_of(GovernedTable(full_name, Manager.EXTERNAL))
    unsupported = _unsupported(full_name, metadata)
    if is_databricks(catalog):
        return rules_of(GovernedTable(full_name, Manager.DATABRICKS, unsupported=unsupported))
    try:
        permitted = catalog.permitted_maintenance(full_name)
    except CatalogDenied as error:
        return rules_of(GovernedTable(full_name, Manager.EMBEDDED, denied=str(error), unsupported=unsupported))
    manager = Manager.OPEN_SOURCE if permitted is None else Manager.EMBEDDED
    return rules_of(GovernedTable(full_name, manager, permitted or frozenset(), unsupported=unsupported))


def rules_of(table: GovernedTable) -> MaintenanceRules:
    """Return the rules of a table."""
    found = [_checkpoint(table), *_permitted(table), _restore(table)]
    return MaintenanceRules(table.full_name, table.manager, {rule.operation: rule for rule in found})


def _checkpoint(table: GovernedTable) -> Rule:
    reason = (
        "The log of an external table belongs to its writers."
        if table.manager is Manager.EXTERNAL
        else "PROTOCOL.md allows checkpoints of published versions on every table."
    )
    return Rule(Maintenance.CHECKPOINT, True, "each writer, after some of its commits", reason)


def _permitted(table: GovernedTable) -> Sequence[Rule]:
    match table.manager:
        case Manager.EXTERNAL:
            reason = "No catalog manages the table."
            return [Rule(operation, True, by.format(table.full_name), reason) for operation, by in _BY_SPARK.items()]
        case Manager.DATABRICKS:
            reason = "The workspace manages the table, and permits other engines no maintenance."
            return [Rule(operation, False, by.format(table.full_name), reason) for operation, by in _BY_DATABRICKS.items()]
        case Manager.OPEN_SOURCE:
            reason = "Its catalog does not say that it permits this, and by PROTOCOL.md it must."
            return [Rule(operation, False, by.format(table.full_name), reason) for operation, by in _SUBSTITUTES.items()]
        case Manager.EMBEDDED:
            return [_by_catalog(table, operation) for operation in _BY_RATIFY]


def _by_catalog(table: GovernedTable, operation: Maintenance) -> Rule:
    instead = _SUBSTITUTES[operation].format(table.full_name)
    if table.denied:
        return Rule(operation, False, "ask the owner for MODIFY on it.", table.denied)
    if operation not in table.permitted:
        return Rule(operation, False, instead, "Its catalog withholds this: it is not in the setting `maintenance`.")
    if operation is Maintenance.COMPACT and table.unsupported:
        return Rule(operation, False, instead, table.unsupported)
    by = _BY_RATIFY[operation].format(table.full_name)
    return Rule(operation, True, by, "Its catalog permits it to principals with MODIFY.")


def _restore(table: GovernedTable) -> Rule:
    by = f"RESTORE TABLE {table.full_name} TO VERSION AS OF … in Spark"
    if table.manager is not Manager.EXTERNAL:
        by = f"`ratify restore {table.full_name}`, which shows first what it does, or {by}"
    reason = "It is an ordinary change of rows: streams that read the table stop, and its change data feed reports it."
    return Rule(Maintenance.RESTORE, True, by, reason)


_BY_RATIFY = {
    Maintenance.COMPACT: "`ratify maintain {} --compact`",
    Maintenance.CLEAN: "`ratify clean {}`",
    Maintenance.CLEAN_LOG: "`ratify clean {} --log`, or Spark, with a checkpoint, after delta.logRetentionDuration",
}
_BY_SPARK = {
    Maintenance.COMPACT: "OPTIMIZE {} in Spark",
    Maintenance.CLEAN: "VACUUM {} in Spark",
    Maintenance.CLEAN_LOG: "Spark, with a checkpoint, after delta.logRetentionDuration",
}
_BY_DATABRICKS = {
    Maintenance.COMPACT: "predictive optimization, or OPTIMIZE {} on Databricks.",
    Maintenance.CLEAN: "predictive optimization, or VACUUM {} on Databricks.",
    Maintenance.CLEAN_LOG: "Databricks does it.",
}
_SUBSTITUTES = {
    Maintenance.COMPACT: (
        "rewrite rows in Spark, INSERT INTO {} REPLACE WHERE … SELECT …. That is a change of rows: streams that read the "
        "table stop, and its change data feed reports each of these rows."
    ),
    Maintenance.CLEAN: "ask whoever runs the catalog; the files stay.",
    Maintenance.CLEAN_LOG: "ask whoever runs the catalog; the versions stay.",
}


def _unsupported(full_name: str, metadata: Mapping[str, Any]) -> str:
    snapshot = Snapshot(
        full_name=full_name,
        version=-1,
        uuid=metadata["table-uuid"],
        location=metadata["location"],
        fields=metadata["columns"]["fields"],
        properties=metadata["properties"],
        partition_columns=metadata.get("partition-columns") or [],
        state=SnapshotState(),
    )
    try:
        refuse_unsupported_features(snapshot, partitioned=True)
    except UnsafeTable as error:
        return str(error)
    return ""
