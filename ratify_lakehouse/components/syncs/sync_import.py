"""Syncs of the reverse-ETL tool drt, with a destination of the type `databricks`, as syncs of this project.

Source: the tool's pull request "Databricks Delta Lake destination" and its documentation of a sync's YAML.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from ratify_lakehouse.errors import InvalidDeclaration

LEGACY = "hive_metastore"
"""Catalog of the tables that Unity Catalog does not know."""

_STRATEGIES = {"insert": "append", "merge": "merge", "upsert": "merge"}
_KNOWN = {"name", "description", "model", "destination", "sync", "tags", "schedule"}
_DESTINATION = {
    *("type", "host_env", "http_path_env", "token_env", "host", "http_path", "catalog", "schema", "schema_", "table"),
    *("mode", "upsert_key"),
}
_SYNC = {"mode", "batch_size", "on_error", "rate_limit", "retry", "cursor_field"}
_REF = re.compile(r"""^\s*ref\(\s*['"]([^'"]+)['"]\s*\)\s*$""")


@dataclass
class ImportedSync:
    """A sync that was turned into one of the project.

    Attributes:
        name: Its name.
        files: By their paths in its folder: `defs.yaml`, and the query if it has one.
        notes: What is different, a sentence each.
    """

    name: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])


def imported(file: Path, name: str = "") -> ImportedSync:
    """Read a sync of drt.

    Args:
        file: Its YAML.
        name: Of the sync here; by default that of the file.

    Raises:
        InvalidDeclaration: it is no such sync.
    """
    try:
        read = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise InvalidDeclaration(f"{file} is not YAML: {error}.") from error
    given = _mapping(read, f"{file}")
    destination, options = _mapping(given.get("destination"), f"{file}, destination"), given.get("sync") or {}
    if destination.get("type", "databricks") != "databricks":
        raise InvalidDeclaration(
            f"{file}, destination.type: {destination['type']!r} is not a table of the catalog; only databricks is."
        )
    for place, known, found in (
        ("", _KNOWN, given),
        ("destination.", _DESTINATION, destination),
        ("sync.", _SYNC, _mapping(options, f"{file}, sync")),
    ):
        if unknown := sorted(set(found) - known):
            raise InvalidDeclaration(f"{file}, {place}{unknown[0]}: this is not a key of a sync with such a destination.")
    made = ImportedSync(re.sub(r"\W", "_", name or given.get("name") or file.stem))
    attributes: dict[str, Any] = {"description": given.get("description") or f"Imported from {file.name}"}
    attributes["source"] = _source(made, str(given.get("model") or ""), file)
    attributes["destination"] = {"table": _table(made, destination, file)}
    if destination.get("catalog") == LEGACY:
        attributes["engine"] = "warehouse"
    attributes |= _strategy(made, destination, options, file)
    if (on_error := options.get("on_error", "fail")) != "fail":
        attributes["on_error"] = on_error
        made.notes.append(
            "on_error: skip puts rows that do not fit into ops.sync_dead_letters; `ratify replay` brings them back."
        )
    if schedule := given.get("schedule"):
        attributes["schedule"] = schedule
    _explain_connection(made, destination)
    for ignored in sorted({"rate_limit", "retry", "batch_size", "cursor_field"}.intersection(options)):
        made.notes.append(f"sync.{ignored} was left out: a run writes all rows in one commit.")
    text = yaml.safe_dump({"type": "ratify_lakehouse.Sync", "attributes": attributes}, sort_keys=False, allow_unicode=True)
    made.files["defs.yaml"] = text
    return made


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidDeclaration(f"{where}: there are no keys here; a sync has name, model, destination and sync.")
    return cast("Mapping[str, Any]", value)


def _source(made: ImportedSync, model: str, file: Path) -> dict[str, Any]:
    if not model:
        raise InvalidDeclaration(
            f"{file}, model: it names none. Add the table that the rows come from, such as ref('orders'), or a query."
        )
    if found := _REF.match(model):
        table = found.group(1) if "." in found.group(1) else f"gold.{found.group(1)}"
        if "." not in found.group(1):
            made.notes.append(
                f"model ref({found.group(1)!r}) became the table {table}: change it if it is in another schema."
            )
        return {"table": table}
    made.files[f"{made.name}.sql"] = model.rstrip() + "\n"
    made.notes.append(f"The query is in {made.name}.sql, in Spark's SQL, where each table has to be named with its schema.")
    return {"sql": f"{made.name}.sql"}


def _table(made: ImportedSync, destination: Mapping[str, Any], file: Path) -> str:
    parts = [destination.get("catalog"), destination.get("schema") or destination.get("schema_"), destination.get("table")]
    if not parts[1] or not parts[2]:
        raise InvalidDeclaration(f"{file}, destination: it needs a schema and a table.")
    if parts[0] == LEGACY:
        made.notes.append(
            f"catalog: {LEGACY} is the legacy metastore, whose tables only a SQL warehouse writes to: `engine: warehouse` "
            "was set. If the table is upgraded to Unity Catalog (SYNC TABLE), change `destination` and remove that."
        )
    return ".".join(str(part) for part in parts if part)


def _strategy(made: ImportedSync, destination: Mapping[str, Any], options: Mapping[str, Any], file: Path) -> dict[str, Any]:
    given = str(destination.get("mode", "insert"))
    if given not in _STRATEGIES:
        raise InvalidDeclaration(f"{file}, destination.mode: {given!r} is neither insert nor merge.")
    mirror = options.get("mode") == "mirror"
    strategy = "mirror" if mirror else _STRATEGIES[given]
    found: dict[str, Any] = {"strategy": strategy}
    keys = destination.get("upsert_key") or []
    if strategy != "append":
        if not keys:
            raise InvalidDeclaration(f"{file}, destination.upsert_key: the strategy {strategy} needs one.")
        found["keys"] = [keys] if isinstance(keys, str) else keys
    elif keys:
        made.notes.append("upsert_key was left out: the strategy append does not find rows by keys.")
    if mirror:
        made.notes.append(
            "mirror: rows are updated, inserted and deleted in one commit. A source without rows is an error until "
            "`delete: {empty_source: true}` says otherwise; `delete: {tracked: true}` spares the rows of other writers."
        )
    if strategy == "append":
        made.notes.append("append: each version of the source is inserted once, also if a run is repeated.")
    return found


def _explain_connection(made: ImportedSync, destination: Mapping[str, Any]) -> None:
    names = {"host_env": "UNITY_HOST", "token_env": "UNITY_TOKEN", "http_path_env": "UNITY_WAREHOUSE_ID"}
    for key, ours in names.items():
        if given := destination.get(key):
            made.notes.append(f"{key}: {given} was left out: the project's connection is set once, by {ours}.")
