"""Columns that no declaration accounts for: nobody knows whether they have something of a data subject.

A declaration accounts for a column if it says whose it is, or that it is not personal (`pii: false`), or if its query says
what it is computed from. The others are looked through by value: tables of no declaration, such as those that were renamed
or are of other programs, columns of a query whose lineage cannot be read, and tables with personal data in which no column
identifies a subject.
"""

from collections.abc import Iterable, Mapping, Sequence

from ratify_lakehouse.components.checks.acknowledged_commits import ACKNOWLEDGED_COMMITS
from ratify_lakehouse.components.personal_columns import free_columns
from ratify_lakehouse.components.stream.stream_ledger import STREAM_BATCHES
from ratify_lakehouse.components.subject_columns import ROW, SubjectColumns, SubjectTable
from ratify_lakehouse.components.syncs.dead_letters import DEAD_LETTERS
from ratify_lakehouse.ingest.ledger.file_ledger import LANDED_FILES
from ratify_lakehouse.ingest.load.erased_subjects import ERASED_SUBJECTS

OWN = frozenset(
    table.table_name.casefold()
    for table in (ACKNOWLEDGED_COMMITS, DEAD_LETTERS, ERASED_SUBJECTS, LANDED_FILES, STREAM_BATCHES)
)
"""Tables of the project itself, which have no rows of others, or whose rows are looked for otherwise."""


def undeclared_columns(
    tables: Iterable[SubjectTable], found: SubjectColumns, stored: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    """Return the columns of each stored table that are to be looked through by value; tables without such ones are left out.

    Args:
        tables: What the declarations say.
        found: Where subjects are found by them.
        stored: Columns of the tables that the catalog has, by schema.table.
    """
    declared = {table.name.casefold(): table for table in tables}
    matched = {name.casefold(): {way.column.casefold() for way in ways} for name, ways in found.matches.items()}
    unfound = {name.casefold() for name in found.unfound}
    columns = {
        name: _of_table(declared.get(key), names, matched.get(key), unfound=key in unfound)
        for name, names in stored.items()
        if (key := name.casefold()) not in OWN
    }
    return {name: some for name, some in columns.items() if some}


def _of_table(table: SubjectTable | None, names: Sequence[str], matched: set[str] | None, *, unfound: bool) -> Sequence[str]:
    if table is None:
        return names
    free = free_columns(table.columns) - {column.name.casefold() for column in table.columns if column.subject}
    names = [name for name in names if name.casefold() not in free]
    if unfound:
        return names
    if table.rows_of:
        return [] if matched else [name for name in names if name == ROW]
    if not table.lineage or table.name.startswith(f"{DEAD_LETTERS.layer}."):
        return [] if matched else names
    known = {name.casefold() for name, sources in table.lineage.items() if sources} | (matched or set())
    return [name for name in names if name.casefold() not in known]
