"""What the proof comes to: results on the histories of its tables, and on what each engine reads of the others' rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.column_types import sql_type
from ratify_lakehouse.components.checks.history_findings import Finding
from ratify_lakehouse.declarations import Engine, TableDeclaration
from ratify_lakehouse.delta.commit_history import Commit
from ratify_lakehouse.engines.duckdb.duckdb_engine import ALIAS, DuckDBSession
from ratify_lakehouse.engines.spark.spark_engine import Spark
from ratify_lakehouse.proof.proof_ledger import RESTORE, ProofEntry, Run
from ratify_lakehouse.proof.proof_lifecycle import existing_tables
from ratify_lakehouse.proof.proof_rows import LOADED
from ratify_lakehouse.proof.proof_tables import PROOF, TABLES
from ratify_lakehouse.proof.row_digest import Digest, DigestPart, by_duckdb, by_spark
from ratify_lakehouse.proof.spark_steps import name_of
from ratify_lakehouse.settings import TPCH

History = Mapping[str, Sequence[Commit]]

_SHOWN = 5


def histories(spark: Spark) -> dict[str, list[Commit]]:
    """Return the commits of every table of the schema, newest first."""
    existing = set(existing_tables(spark.catalog))
    return {name: spark.history(spark.full_name(table)) for name, table in PROOF.items() if name in existing}


def commits_by_engine(history: History) -> list[dict[str, Any]]:
    """Return for each table its version and the number of commits of each engine."""
    counted = {name: Counter(commit.engine for commit in commits) for name, commits in history.items()}
    engines = [engine for engine in Engine if any(engine in commits for commits in counted.values())]
    return [
        {"table": name, "version": history[name][0].version, **{engine.value: commits[engine] for engine in engines}}
        for name, commits in counted.items()
    ]


def history_without_gaps(history: History, latest: Mapping[str, int]) -> Finding:
    """Check that each history has every version from 0 to the latest that the catalog has ratified, once."""
    gaps = [
        name
        for name, commits in history.items()
        if [commit.version for commit in reversed(commits)] != list(range(latest[name] + 1))
    ]
    return _finding(
        gaps, "Versions are missing", "No version is missing", tables=len(history), commits=sum(map(len, history.values()))
    )


def commits_as_recorded(history: History, entries: Iterable[ProofEntry]) -> Finding:
    """Check that the history names the engine of each commit that a step recorded, and no unknown engine."""
    by_version = {(name, commit.version): commit for name, commits in history.items() for commit in commits}
    recorded = list(entries)
    wrong = [
        f"{entry.table} {entry.version} ({entry.engine} {entry.operation})"
        for entry in recorded
        if (commit := by_version.get((entry.table, entry.version))) is None
        or commit.engine.declared is not entry.engine.declared
    ]
    wrong += [
        f"{name} {version} ({commit.engine_info})"
        for (name, version), commit in by_version.items()
        if commit.engine is Engine.OTHER
    ]
    return _finding(
        wrong, "Not committed by the recorded engine", "Each was committed by the recorded engine", recorded=len(recorded)
    )


def latest_versions(catalog: UnityCatalog, names: Iterable[str]) -> dict[str, int]:
    """Return the latest ratified version of each table."""
    return {name: catalog.version(PROOF[name].full_name(catalog.connection.name)) for name in names}


def engines_agree(spark: Spark, session: DuckDBSession, run: Run, history: History) -> Finding:
    """Check that both engines read what was to be written, by whichever engine.

    What setup loaded is compared by its digest, all that came after it by columns, types and values, row by row.
    """
    session.attach()
    last = [entry for entry in run.last() if entry.table in history]
    read = {
        Engine.SPARK: by_spark(spark, [_part(entry, _in_spark(spark, entry)) for entry in last]),
        Engine.DUCKDB: by_duckdb(session, [_part(entry, _in_duckdb(entry.table)) for entry in last]),
    }
    wrong = [
        f"{entry.table} as {entry.engine} {entry.operation} left it, read by {engine}"
        for engine, digests in read.items()
        for entry, digest in zip(last, digests, strict=True)
        if digest != entry.digest
    ]
    loaded = {entry.table: entry.version for entry in run.baseline()}
    added = 0
    for name in [name for name, commits in history.items() if commits[0].version != loaded.get(name)]:
        by_both = [_added_by_spark(spark, PROOF[name]), _added_by_duckdb(session, PROOF[name])]
        added += len(by_both[0]) - 1
        if by_both[0] != by_both[1]:
            wrong.append(f"rows of {name}")
    rows = sum(entry.digest.rows for entry in last)
    return _finding(wrong, "Read differently", "Both read what was written", rows=rows, **{"rows compared by value": added})


def time_travel(spark: Spark, run: Run, history: History, *, quick: bool = False) -> Finding:
    """Check that VERSION AS OF and TIMESTAMP AS OF each commit of a step that others followed show what it had left.

    By Spark: DuckDB cannot read a catalog's table as it was. `quick`: of the first, the middle and the last of each table.
    """
    at = {(name, commit.version): commit.timestamp for name, commits in history.items() for commit in commits[1:]}
    entries = [entry for entry in run.entries if (entry.table, entry.version) in at]
    if quick:
        entries = _first_middle_last(entries)
    parts = [_part(entry, f"{_in_spark(spark, entry)} VERSION AS OF {entry.version}") for entry in entries]
    parts += [
        _part(
            entry,
            f"{_in_spark(spark, entry)} TIMESTAMP AS OF '{at[entry.table, entry.version]:%Y-%m-%d %H:%M:%S.%f}'",
            count=True,
        )
        for entry in entries
    ]
    wrong = [
        f"{part.source} has {found.rows:,} rows, not {entry.digest.rows:,}"
        if found.rows != entry.digest.rows
        else f"{part.source} has other values"
        for entry, part, found in zip([*entries, *entries], parts, by_spark(spark, parts), strict=True)
        if found != (entry.digest if part.columns else Digest(entry.digest.rows, 0))
    ]
    return _finding(wrong, "Not as recorded", "Each commit shows the rows that it left", commits=len(entries))


def _first_middle_last(entries: Sequence[ProofEntry]) -> list[ProofEntry]:
    """The entries of three versions of each table."""
    versions = dict[str, set[int]]()
    for entry in entries:
        versions.setdefault(entry.table, set()).add(entry.version)
    chosen = {
        (table, version)
        for table, (*ordered,) in ((table, sorted(of_table)) for table, of_table in versions.items())
        for version in (ordered[0], ordered[len(ordered) // 2], ordered[-1])
    }
    return [entry for entry in entries if (entry.table, entry.version) in chosen]


def roll_back(spark: Spark, run: Run) -> list[ProofEntry]:
    """Restore the tables of TPC-H to the baseline by RESTORE; return the new baseline."""
    return list(_restored(spark, run.baseline()))


def _restored(spark: Spark, baseline: Sequence[ProofEntry]) -> Iterator[ProofEntry]:
    for entry in baseline:
        table = _in_spark(spark, entry)
        if spark.catalog.version(table) == entry.version:
            yield entry
            continue
        restore = f"RESTORE TABLE {table} TO VERSION AS OF {entry.version}"
        commit = spark.commit(table, lambda restore=restore: spark.sql(restore).collect())
        version = commit.version if commit else spark.catalog.version(table)
        yield ProofEntry("verify", Engine.SPARK, entry.table, RESTORE, version, entry.block, entry.digest)


def rolled_back(spark: Spark, session: DuckDBSession, baseline: Sequence[ProofEntry]) -> Finding:
    """Check that both engines read the baseline, and no more, in the tables that were restored."""
    session.attach()
    restored = [entry for entry in baseline if entry.operation == RESTORE]
    tables = [TABLES[entry.table] for entry in restored]
    found = {
        "Spark": by_spark(spark, [DigestPart.of(table, name_of(spark, table)) for table in tables]),
        "DuckDB": by_duckdb(session, [DigestPart.of(table, _in_duckdb(table.name)) for table in tables]),
    }
    wrong = [
        f"{entry.table}, read by {engine}"
        for engine, digests in found.items()
        for entry, digest in zip(restored, digests, strict=True)
        if digest != entry.digest
    ]
    return _finding(wrong, "Not as at the baseline", "As at the baseline", **{"tables restored": len(restored)})


def _finding(wrong: Sequence[str], bad: str, good: str, **numbers: int) -> Finding:
    shown = "; ".join(wrong[:_SHOWN]) + (f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else "")
    return Finding(not wrong, f"{bad}: {shown}." if wrong else f"{good}.", {**numbers, "wrong": len(wrong)})


def _part(entry: ProofEntry, source: str, *, count: bool = False) -> DigestPart:
    return DigestPart.of(PROOF[entry.table], source, entry.block, count=count)


def _in_spark(spark: Spark, entry: ProofEntry) -> str:
    return name_of(spark, PROOF[entry.table])


def _in_duckdb(name: str) -> str:
    return f"{ALIAS}.{TPCH}.{name}"


def _added(table: TableDeclaration) -> str:
    """The condition on the rows that were added to the baseline: in tables that are not TPC-H's, all."""
    return f"{table.column_names[0]} > {LOADED.last}" if table.name in TABLES else "true"


def _added_by_spark(spark: Spark, table: TableDeclaration) -> list[str]:
    frame = spark.sql(f"SELECT * FROM {name_of(spark, table)} WHERE {_added(table)}")
    types = [(name, sql_type(type_).sql) for name, type_ in frame.dtypes]
    return [repr(types), *sorted(repr(tuple(row.values())) for row in spark.rows(frame))]


def _added_by_duckdb(session: DuckDBSession, table: TableDeclaration) -> list[str]:
    query = f"SELECT * FROM {_in_duckdb(table.name)} WHERE {_added(table)}"
    types = [(name, type_) for name, type_, *_ in session.rows(f"DESCRIBE {query}")]
    return [repr(types), *sorted(map(repr, session.rows(query)))]
