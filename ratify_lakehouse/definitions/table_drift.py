"""The declared tables of the project that differ from their declarations, and their correction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from ratify_lakehouse.components.checks.acknowledged_commits import acknowledging
from ratify_lakehouse.declarations import TableDeclaration
from ratify_lakehouse.definitions.interventions import refuse_in_use, report_intervention
from ratify_lakehouse.definitions.project_tables import declared_tables
from ratify_lakehouse.delta.commit_actions import NothingToCommit
from ratify_lakehouse.delta.declaration_drift import Difference, as_declared, differences, spark_statement
from ratify_lakehouse.delta.delta_log import DeltaLog
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.errors import NotConfigured
from ratify_lakehouse.settings import catalog_name

_REASON = "as declared"


@dataclass(frozen=True)
class Corrected:
    """What the correction of a table did.

    Attributes:
        versions: That it committed.
        left: The differences that are left.
    """

    versions: tuple[int, ...]
    left: Sequence[Difference]


def drifting(full_name: str) -> Mapping[str, TableDeclaration]:
    """Return the declarations of the project by full name: that of the table that is named, or all.

    Raises:
        NotConfigured: the project declares no such table.
    """
    catalog = catalog_name()
    found = {table.full_name(catalog): table for table in declared_tables().declarations.values()}
    if not full_name:
        return found
    named = {name: table for name, table in found.items() if name.casefold() == full_name.casefold()}
    if not named:
        raise NotConfigured(f"The project declares no table {full_name}: choose from {', '.join(sorted(found))}.")
    return named


def correct(spark: Spark, log: DeltaLog, instance: dg.DagsterInstance, declaration: TableDeclaration) -> Corrected:
    """Correct what can be corrected in place, in one commit, after one by Spark for what only Spark can set.

    Raises:
        TableInUse: a run in progress targets the table.
        UnsafeTable: it has a feature that our writer does not support.
        CommitConflict, CatalogDenied, CatalogRejected and others of `Spark.commit` and `DeltaLog.commit`.
    """
    refuse_in_use(instance, declaration)
    full_name, record = declaration.full_name(catalog_name()), acknowledging(_REASON)
    found, versions = differences(log.refresh(), declaration), list[int]()
    if statement := spark_statement(full_name, found):
        set_ = spark.commit(full_name, _run(spark, statement), record)
        versions += [set_.version] if set_ else []
        log.refresh()
    try:
        committed = log.commit(lambda snapshot: as_declared(snapshot, declaration, record), partitioned=True)
        versions.append(committed.version)
    except NothingToCommit:
        pass
    left = differences(log.refresh(), declaration)
    if versions:
        shown = {"differences corrected": "; ".join(str(each) for each in found if each not in left)}
        report_intervention(instance, declaration, {**shown, "Delta version": versions[-1]})
    return Corrected(tuple(versions), left)


def _run(spark: Spark, statement: str) -> Callable[[], object]:
    return lambda: spark.rows(spark.sql(statement))
