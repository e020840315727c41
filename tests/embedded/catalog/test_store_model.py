"""The store against a model of a few lines: any sequence of creations, commits, replays, publications and restarts."""

import json
import shutil
import tempfile
import uuid
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import true

from ratify_lakehouse.embedded.catalog import table_contract, table_creation
from ratify_lakehouse.embedded.catalog.api_errors import (
    AlreadyExistsError,
    CommitVersionConflictError,
    InvalidParameterError,
    NoSuchTableError,
    ResourceExhaustedError,
    UpdateRequirementConflictError,
)
from ratify_lakehouse.embedded.catalog.api_models import CreateCatalog, CreateSchema
from ratify_lakehouse.embedded.catalog.api_views import load_response
from ratify_lakehouse.embedded.catalog.delta_models import CreateDeltaTable, UpdateTable
from ratify_lakehouse.embedded.catalog.store import dropped_store, namespace_store, table_store, table_updates
from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from tests.embedded.catalog.harness import COLUMNS, add_commit, published, staged_file

UNPUBLISHED = 4


@pytest.fixture(autouse=True)
def few_unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_updates, "_MAX_UNPUBLISHED_COMMITS", UNPUBLISHED)


# Names that differ only in case are one name.
NAMES = st.sampled_from(["a", "A", "straße", "STRASSE", "b"])


@dataclass
class Modelled:
    """What a table should be."""

    id: str
    name: str = ""
    files: dict[int, str] = field(default_factory=dict[int, str])
    published: int = 0
    properties: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def latest(self) -> int:
        return max(self.files, default=0)


class CatalogMachine(RuleBasedStateMachine):
    """Drives the store and the model alike; after each step all tables must agree."""

    etags = Bundle("etags")

    @initialize()
    def start(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.model: dict[str, Modelled] = {}
        self.dropped: list[Modelled] = []
        self.deleted: set[str] = set()
        self.store = self._open()
        with self.store.write() as tx:
            namespace_store.create_catalog(tx, CreateCatalog(name="c"), self.store.default_root, "admin")
            namespace_store.create_schema(tx, CreateSchema(name="s", catalog_name="c"), "admin")
        self.create("a")

    def _open(self) -> Store:
        return Store(self.home / "catalog.sqlite", self.home.as_uri())

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.home)

    def update(self, name: str, *actions: dict[str, Any], etag: str | None = None, table_id: str | None = None) -> None:
        known = self.known(name)
        uuid_ = table_id or (known.id if known else str(uuid.uuid4()))
        requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "uuid": uuid_}]
        requirements += [{"type": "assert-etag", "etag": etag}] if etag else []
        request = UpdateTable.model_validate_json(json.dumps({"requirements": requirements, "updates": actions}))
        with self.store.write() as tx:
            table_updates.update_table(tx, (*self.spelled("c", "s", like=name), name), request)

    def known(self, name: str) -> Modelled | None:
        return self.model.get(name.casefold())

    def spelled(self, *names: str, like: str) -> tuple[str, ...]:
        """The names of the parents in the case in which the table's name is written."""
        return tuple(name.upper() if like.isupper() else name for name in names)

    def expect(self, error: type[Exception] | None, name: str, *actions: dict[str, Any], **more: Any) -> bool:
        """Send an update; return whether it was to succeed."""
        wanted = error if self.known(name) else NoSuchTableError
        if wanted is None:
            self.update(name, *actions, **more)
            return True
        with pytest.raises(wanted):
            self.update(name, *actions, **more)
        return False

    def create(self, name: str) -> None:
        try:
            with self.store.write() as tx:
                schema = namespace_store.get_schema(tx, *self.spelled("c", "s", like=name))
                staging = table_creation.create_staging_table(tx, schema, name, "admin")
                body = {
                    "name": name,
                    "location": staging.location,
                    "table-type": "MANAGED",
                    "columns": COLUMNS,
                    "partition-columns": [],
                    "protocol": table_contract.required_protocol(),
                    "properties": table_contract.required_properties(staging.id),
                    "last-commit-timestamp-ms": 1,
                }
                table_creation.create_delta_table(
                    tx, schema, CreateDeltaTable.model_validate_json(json.dumps(body)), "admin"
                )
        except AlreadyExistsError:
            assert self.known(name)
        else:
            assert not self.known(name)
            self.model[name.casefold()] = Modelled(staging.id, name)

    @rule(name=NAMES)
    def create_again(self, name: str) -> None:
        self.create(name)

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        if self.known(name):
            with self.store.write() as tx:
                dropped_store.drop_table(tx, table_store.get_table(tx, *self.spelled("c", "s", like=name), name))
            self.dropped.append(self.model.pop(name.casefold()))

    def drawn(self, data: st.DataObject) -> Modelled:
        """A table that was dropped, or one that never was."""
        return data.draw(st.sampled_from([*self.dropped, Modelled(str(uuid.uuid4()), "nobody's")]))

    @rule(data=st.data())
    def undrop(self, data: st.DataObject) -> None:
        table, wanted = self.drawn(data), None
        if table not in self.dropped:
            wanted = NoSuchTableError
        elif self.known(table.name):
            wanted = AlreadyExistsError
        with nullcontext() if wanted is None else pytest.raises(wanted), self.store.write() as tx:
            dropped_store.undrop_table(tx, namespace_store.get_schema(tx, "C", "s"), table.id)
        if wanted is None:
            self.dropped.remove(table)
            self.model[table.name.casefold()] = table

    @rule(data=st.data())
    def delete_dropped(self, data: st.DataObject) -> None:
        table = self.drawn(data)
        known = table in self.dropped
        with nullcontext() if known else pytest.raises(NoSuchTableError), self.store.write() as tx:
            dropped_store.delete_dropped(tx, namespace_store.get_schema(tx, "c", "S"), table.id)
        if known:
            self.dropped.remove(table)
            self.deleted.add(table.id)

    @rule(all_of_them=st.booleans())
    def expire(self, all_of_them: bool) -> None:
        with self.store.write() as tx:
            dropped_store.expire(tx, 2**62 if all_of_them else 0)
        if all_of_them:
            self.deleted |= {table.id for table in self.dropped}
            self.dropped.clear()

    @rule()
    def drop_the_schema(self) -> None:
        """A schema of its name has what it had, to undrop."""
        with self.store.write() as tx:
            namespace_store.delete_schema(tx, "c", "s", force=True)
            namespace_store.create_schema(tx, CreateSchema(name="s", catalog_name="c"), "admin")
        self.dropped += self.model.values()
        self.model.clear()

    @rule(name=NAMES, new_name=NAMES)
    def rename(self, name: str, new_name: str) -> None:
        renamed = self.known(name)
        if renamed is None:
            return
        try:
            with self.store.write() as tx:
                table_store.rename_table(tx, table_store.get_table(tx, "c", "s", name), new_name)
        except AlreadyExistsError:
            assert self.known(new_name)
            assert self.known(new_name) is not renamed
        else:
            del self.model[name.casefold()]
            renamed.name = new_name
            self.model[new_name.casefold()] = renamed

    @rule(name=NAMES, ahead=st.sampled_from([1, 1, 1, 2, 0, -1]), value=st.none() | st.sampled_from(["x", "y"]))
    def commit(self, name: str, ahead: int, value: str | None) -> None:
        known = self.known(name) or Modelled("")
        version = max(1, known.latest + ahead)
        full = known.latest - known.published >= UNPUBLISHED
        error = None if version == known.latest + 1 else CommitVersionConflictError
        file_name = staged_file(version)
        changes = [{"action": "set-properties", "updates": {"delta.note": value}}] if value else []
        wanted = error or (ResourceExhaustedError if full else None)
        if self.expect(wanted, name, add_commit(version, file_name), *changes):
            known.files[version] = file_name
            known.properties |= {"delta.note": value} if value else {}

    @rule(name=NAMES, data=st.data())
    def replay(self, name: str, data: st.DataObject) -> None:
        """A commit whose answer was lost is proposed again: it succeeds, and changes nothing."""
        known = self.known(name)
        if known and known.files:
            version, file_name = data.draw(st.sampled_from(sorted(known.files.items())))
            self.update(name, add_commit(version, file_name))

    @rule(name=NAMES, version=st.integers(0, 12))
    def publish(self, name: str, version: int) -> None:
        known = self.known(name) or Modelled("")
        if self.expect(InvalidParameterError if version > known.latest else None, name, published(version)):
            known.published = max(known.published, version)

    @rule(name=NAMES, target=etags)
    def look_at_etag(self, name: str) -> tuple[str, str]:
        return name, self.etag(name)

    def etag(self, name: str) -> str:
        if not self.known(name):
            return "etag-none"
        with self.store.read() as tx:
            return table_store.get_table(tx, "c", "s", name).etag

    @rule(seen=etags, value=st.sampled_from(["x", "y", "z"]))
    def set_property(self, seen: tuple[str, str], value: str) -> None:
        name, etag = seen
        wanted = None if etag == self.etag(name) else UpdateRequirementConflictError
        if self.expect(wanted, name, {"action": "set-properties", "updates": {"note": value}}, etag=etag):
            self.model[name.casefold()].properties["note"] = value

    @rule(name=NAMES)
    def write_to_a_table_that_was_recreated(self, name: str) -> None:
        self.expect(UpdateRequirementConflictError, name, published(0), table_id=str(uuid.uuid4()))

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self._open()

    @invariant()
    def store_and_model_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        with self.store.read() as tx:
            schema = namespace_store.get_schema(tx, "c", "s")
            assert [table.name for table in table_store.list_tables(tx, schema.id, "", 100, true())] == sorted(
                known.name for known in self.model.values()
            )
            for known in self.model.values():
                shouted = table_store.get_table(tx, "C", "S", known.name.upper())
                assert (shouted.full_name, shouted.id) == (f"c.s.{known.name}", known.id)
                body = load_response(table_updates.load(tx, shouted))
                assert body["metadata"]["table-uuid"] == known.id
                assert body["latest-table-version"] == known.latest
                waiting = {commit["version"]: commit["file-name"] for commit in body["commits"]}
                assert waiting == {v: f for v, f in known.files.items() if v > known.published}
                assert known.properties.items() <= body["metadata"]["properties"].items()
            listed = [(table.id, table.name) for table in dropped_store.list_dropped(tx, schema)]
            assert sorted(listed) == sorted((table.id, table.name) for table in self.dropped)
            assert {location.rsplit("/", 1)[-1] for location in dropped_store.pending_purges(tx)} == self.deleted


def check(examples: int) -> None:
    run_state_machine_as_test(
        CatalogMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_store_does_what_the_model_does() -> None:
    check(10)


@pytest.mark.long
def test_the_store_does_what_the_model_does_at_length() -> None:
    check(1000)
