"""The access rules against a model in which everything is an object: no name decides, however often one is used again.

Principals, catalogs, schemas and tables are created, dropped, undropped, renamed, deleted, and created again by others.
Everybody may create schemas and tables everywhere, so that ownership and the grants on tables alone decide.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ratify_lakehouse.embedded.catalog.access_rules import Privilege
from ratify_lakehouse.embedded.catalog.store import grant_store, principal_store
from tests.embedded.catalog.catalog_lake import LocalCatalog
from tests.embedded.catalog.harness import create_body

PEOPLE, NAMES = ("ann", "bob", "eve"), ("a", "b")
_EVERYBODY = (
    Privilege.USE_CATALOG,
    Privilege.CREATE_SCHEMA,
    Privilege.USE_SCHEMA,
    Privilege.CREATE_TABLE,
    Privilege.EXTERNAL_USE_SCHEMA,
)
_SCIM = "/api/2.0/preview/scim/v2/ServicePrincipals"


@dataclass(eq=False)
class Person:
    name: str
    client_id: str = ""
    tokens: list[str] = field(default_factory=list[str])


@dataclass(eq=False)
class Container:
    """A catalog, or a schema, which has a parent."""

    name: str
    owner: Person
    parent: "Container | None" = None
    root: str = ""
    gone: bool = False


@dataclass(eq=False)
class Item:
    """A table; `state` is live, dropped or purged."""

    id: str
    name: str
    owner: Person
    schema: Container
    location: str
    granted: set[Person] = field(default_factory=set[Person])
    state: str = "live"


class AccessModel:
    """Sends a request at each step, whose status the model knows."""

    def __init__(self, home: Path, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 steps, not keys
        self.home = home
        self.local = LocalCatalog.at(home)
        self.admin = Person("admin", tokens=[self.local.tokens["admin"]])
        self.people: dict[str, Person] = {}
        self.past_tokens: list[str] = []
        self.catalogs: list[Container] = []
        self.schemas: list[Container] = []
        self.tables: list[Item] = []

    def run(self, steps: int) -> None:
        for name in PEOPLE:
            self.create_person(name)
        self.create_catalog()
        weights = {
            self.create_schema: 5,
            self.drop_schema: 4,
            self.rename_schema: 4,
            self.create_table: 5,
            self.drop_table: 4,
            self.grant: 5,
            self.bring_back_or_purge: 8,
            self.what_is_listed: 3,
            self.who_may_read_what_is_dropped: 2,
            self.who_may_write: 4,
            self.files_that_remain_are_protected: 3,
            self.create_person: 3,
            self.delete_person: 2,
            self.past_tokens_are_refused: 1,
            self.drop_catalog: 1,
            self.create_catalog: 3,
        }
        for step in self.chance.choices(list(weights), list(weights.values()), k=steps):
            step()
        self.local.store.close()

    def call(self, who: Person, method: str, path: str, **request: Any) -> Any:
        return self.local.call(who.tokens[-1], method, path, **request)

    def someone(self, *likely: Person) -> Person:
        return self.chance.choice([self.admin, *self.people.values(), *likely * 3])

    def name(self) -> str:
        return self.chance.choice(NAMES)

    def catalog(self) -> Container | None:
        return next((each for each in self.catalogs if not each.gone), None)

    def schema(self, name: str) -> Container | None:
        return next((each for each in self.schemas if not each.gone and each.name == name), None)

    def owners(self, *levels: Any) -> set[Person]:
        """The admin, and who owns one of these; what is gone has no owner."""
        return {self.admin} | {level.owner for level in levels if level and not getattr(level, "gone", False)}

    def owners_of(self, item: Item) -> set[Person]:
        return self.owners(item, item.schema, item.schema.parent)

    def listed(self, item: Item, schema: Container) -> bool:
        """Where a dropped table is found: in its schema, or, if that is gone, in one of its name."""
        if item.state != "dropped" or item.schema is schema:
            return item.state == "dropped"
        before = item.schema.parent
        same_catalog = before is schema.parent or (before.gone and before.name == schema.parent.name)
        return item.schema.gone and same_catalog and item.schema.name == schema.name

    def grant_everything(self, person: Person, catalog: Container) -> None:
        with self.local.store.write() as tx:
            found = grant_store.effective(tx, "admin", [catalog.name])
            grant_store.grant(tx, found.securable_id, person.name, _EVERYBODY)

    def create_person(self, name: str = "") -> None:
        name = name or self.chance.choice(PEOPLE)
        if name not in self.people:
            self.local.principal(name)
            with self.local.store.read() as tx:
                client_id = principal_store.get_principal(tx, name).client_id
            self.people[name] = Person(name, client_id, [self.local.tokens.pop(name)])
            if catalog := self.catalog():
                self.grant_everything(self.people[name], catalog)

    def delete_person(self) -> None:
        """Midway, a request has read its token already when the principal is deleted, and another one has its name."""
        person = self.people.pop(name := self.chance.choice(PEOPLE), None)
        if person is None:
            return
        if self.chance.random() < 0.5:
            assert self.call(person, "GET", "/catalogs").status_code == 200
            with self.local.store.write() as tx:
                principal_store.delete_principal(tx, principal_store.get_principal(tx, name))
            self.create_person(name)
        else:
            assert self.call(self.admin, "DELETE", f"{_SCIM}/{person.client_id}").status_code == 204
        self.past_tokens += person.tokens
        for owned in (*self.catalogs, *self.schemas, *self.tables):
            owned.owner = self.admin if owned.owner is person else owned.owner
        for item in self.tables:
            item.granted.discard(person)

    def past_tokens_are_refused(self) -> None:
        for token in self.past_tokens:
            assert self.local.call(token, "GET", "/catalogs").status_code == 401

    def create_catalog(self) -> None:
        if self.catalog() is None:
            assert self.call(self.admin, "POST", "/catalogs", json={"name": "c"}).status_code == 200
            self.catalogs.append(Container("c", self.admin))
            for person in self.people.values():
                self.grant_everything(person, self.catalogs[-1])

    def lose(self, schema: Container) -> None:
        schema.gone = True
        for item in self.tables:
            if item.schema is schema and item.state == "live":
                item.state = "dropped"

    def drop_catalog(self) -> None:
        if catalog := self.catalog():
            assert self.call(self.admin, "DELETE", "/catalogs/c?force=true").status_code == 200
            catalog.gone = True
            for schema in self.schemas:
                if schema.parent is catalog and not schema.gone:
                    self.lose(schema)

    def create_schema(self, name: str = "") -> None:
        who, catalog, name = self.someone(), self.catalog(), name or self.name()
        root = f"file://{self.home}/own/{len(self.schemas)}" if who is self.admin else ""
        body = {"name": name, "catalog_name": "c"} | ({"storage_root": root} if root else {})
        wanted = 404 if catalog is None else 409 if self.schema(name) else 200
        assert self.call(who, "POST", "/schemas", json=body).status_code == wanted
        if wanted == 200:
            self.schemas.append(Container(name, who, catalog, root))
            self.what_is_listed(self.admin, name)

    def drop_schema(self) -> None:
        schema = self.schema(name := self.name())
        who = self.someone(*[schema.owner] if schema else [])
        wanted = 404 if schema is None else 200 if who in self.owners(schema, schema.parent) else 403
        assert self.call(who, "DELETE", f"/schemas/c.{name}?force=true").status_code == wanted
        if schema and wanted == 200:
            self.lose(schema)
            self.create_schema(self.chance.choice([name, name, *NAMES]))

    def rename_schema(self) -> None:
        named = [each for each in self.schemas if not each.gone]
        free = [name for name in NAMES if self.schema(name) is None]
        if named and free:
            schema, new_name = self.chance.choice(named), self.chance.choice(free)
            path = f"/schemas/c.{schema.name}"
            assert self.call(self.admin, "PATCH", path, json={"new_name": new_name}).status_code == 200
            schema.name = new_name

    def taken(self, schema: Container, name: str) -> bool:
        return any(each.schema is schema and each.name == name and each.state == "live" for each in self.tables)

    def create_table(self) -> None:
        who, within, name = self.someone(), self.name(), self.name()
        schema, path = self.schema(within), f"/delta/v1/catalogs/c/schemas/{within}"
        wanted = 404 if schema is None else 409 if self.taken(schema, name) else 200
        staged = self.call(who, "POST", f"{path}/staging-tables", json={"name": name})
        assert staged.status_code == wanted
        if schema and wanted == 200:
            created = self.call(who, "POST", f"{path}/tables", json=create_body(name, staged.json()))
            assert created.status_code == 200, created.text
            self.tables.append(Item(staged.json()["table-id"], name, who, schema, staged.json()["location"]))
            self.grant(self.tables[-1])

    def drawn(self, *states: str) -> Item | None:
        found = [each for each in self.tables if each.state in states]
        return self.chance.choice(found) if found else None

    def drop_table(self) -> None:
        if item := self.drawn("live"):
            who = self.someone(item.owner)
            wanted = 200 if who in self.owners_of(item) else 403
            answer = self.call(who, "DELETE", f"/tables/c.{item.schema.name}.{item.name}")
            assert answer.status_code == wanted
            item.state = "dropped" if wanted == 200 else "live"

    def grant(self, item: Item | None = None) -> None:
        item, to = item or self.drawn("live"), self.chance.choice(PEOPLE)
        if item and to in self.people:
            changes = [{"principal": to, "add": ["SELECT", "MODIFY"], "remove": []}]
            path = f"/permissions/table/c.{item.schema.name}.{item.name}"
            assert self.call(self.admin, "PATCH", path, json={"changes": changes}).status_code == 200
            item.granted.add(self.people[to])

    def bring_back_or_purge(self) -> None:
        item = self.drawn("dropped") or self.drawn("purged")
        if item is None:
            return
        found = [each.name for each in self.schemas if not each.gone and self.listed(item, each)]
        schema = self.schema(within := self.chance.choice([*NAMES, *found * 4]))
        who, purge = self.someone(item.owner, *[schema.owner] if schema else []), self.chance.random() < 0.2
        path = f"/delta/v1/catalogs/c/schemas/{within}/dropped-tables/{item.id}"
        answer = self.call(who, "DELETE", path) if purge else self.call(who, "POST", f"{path}/undrop")
        if schema is None or not self.listed(item, schema):
            assert answer.status_code == 404
        elif who not in self.owners_of(item):
            assert (answer.status_code, "what it was dropped from" in answer.text) == (403, True)
        elif purge:
            assert answer.status_code == 204
            item.state = "purged"
        elif self.taken(schema, item.name):
            assert answer.status_code == 409
        else:
            assert answer.status_code == 200
            item.state, item.schema = "live", schema
            for each in self.people.values():
                self.who_may_write(item, each)

    def what_is_listed(self, who: Person | None = None, within: str = "") -> None:
        who, within = who or self.someone(), within or self.name()
        schema = self.schema(within)
        answer = self.call(who, "GET", f"/delta/v1/catalogs/c/schemas/{within}/dropped-tables")
        if schema is None:
            assert answer.status_code == 404
            return
        found = {(table["table-id"], table["owner"]) for table in answer.json()["tables"]}
        seen = [each for each in self.tables if self.listed(each, schema) and who in self.owners_of(each)]
        assert found == {(each.id, each.owner.name) for each in seen}

    def who_may_read_what_is_dropped(self) -> None:
        item = self.drawn("dropped") or self.drawn("purged")
        if item is None:
            return
        who = self.someone(item.owner, *item.granted)
        answer = self.call(who, "GET", f"/delta/v1/catalogs/c/dropped-tables/{item.id}")
        # One of a dropped catalog is found in the next one of its name.
        if item.state == "purged" or self.catalog() is None:
            assert answer.status_code == 404
        elif who not in self.owners_of(item):
            assert answer.status_code == 403
        else:
            assert (answer.status_code, answer.json()["metadata"]["table-uuid"]) == (200, item.id)

    def who_may_write(self, item: Item | None = None, who: Person | None = None) -> None:
        item = item or self.drawn("live") or self.drawn("dropped", "purged")
        if item is None:
            return
        who = who or self.someone(item.owner, *item.granted)
        body = {"table_id": item.id, "operation": "READ_WRITE"}
        allowed = 200 if who in self.owners_of(item) | item.granted else 403
        answer = self.call(who, "POST", "/temporary-table-credentials", json=body)
        assert answer.status_code == (allowed if item.state == "live" else 404)

    def files_that_remain_are_protected(self) -> None:
        """From credentials above them, which the admin may ask for."""
        if roots := [each for each in self.schemas if each.root]:
            schema = self.chance.choice(roots)
            remaining = any(each.location.startswith(schema.root + "/") for each in self.tables if each.state != "purged")
            body = {"url": schema.root, "operation": "PATH_READ_WRITE"}
            answer = self.call(self.admin, "POST", "/temporary-path-credentials", json=body)
            assert answer.status_code == (400 if remaining or not schema.gone else 200)


@pytest.mark.parametrize("seed", range(4))
def test_the_access_rules_do_what_the_model_does(tmp_path: Path, seed: int) -> None:
    AccessModel(tmp_path, seed).run(100)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1500, 50))
def test_the_access_rules_do_what_the_model_does_at_length(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 50):
        AccessModel(tmp_path / str(seed), seed).run(200)
