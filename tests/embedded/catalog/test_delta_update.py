"""updateTable: requirements, actions, arbitration (ManagedTablesSpec.md, "Write a Commit")."""

from typing import Any

import httpx
import pytest

from tests.embedded.catalog.harness import (
    COLUMNS,
    TableClient,
    add_commit,
    create_body,
    delta,
    error_of,
    published,
    stage,
    staged_file,
)

pytestmark = pytest.mark.server

INVALID = (400, "InvalidParameterValueException")
BAD = (400, "BadRequestException")
VERSION_CONFLICT = (409, "CommitVersionConflictException")
REQUIREMENT_CONFLICT = (409, "UpdateRequirementConflictException")
UNSUPPORTED = (501, "NotImplementedException")

CLUSTERING = {"delta.clustering": {"clusteringColumns": [["id"]]}}


def _set_properties(**updates: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": updates}


def _remove_properties(*keys: str) -> dict[str, Any]:
    return {"action": "remove-properties", "removals": list(keys)}


def _set_domains(updates: dict[str, Any]) -> dict[str, Any]:
    return {"action": "set-domain-metadata", "updates": updates}


def _commit_with(**changes: Any) -> dict[str, Any]:
    action = add_commit(1)
    action["commit"].update({key.replace("_", "-"): value for key, value in changes.items()})
    return action


COMMENT = {"action": "set-table-comment", "comment": "c"}
DERIVED = {"action": "set-properties", "updates": {"delta.feature.x": "supported"}}


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        ([], INVALID),
        ([COMMENT, COMMENT], INVALID),
        ([{"action": "fly"}], BAD),
        ([{"action": "add-commit"}], BAD),
        ([_commit_with(version=0)], INVALID),
        ([_commit_with(file_size=0)], INVALID),
        ([_commit_with(version="1")], BAD),
        ([_commit_with(file_name="../../x.json")], INVALID),
        ([_commit_with(file_name=staged_file(2))], INVALID),
        ([add_commit(2)], VERSION_CONFLICT),
        ([published(1)], INVALID),
        ([add_commit(1), published(1)], INVALID),
        ([add_commit(1), _set_properties(a="1"), _remove_properties("a")], INVALID),
        ([add_commit(1), DERIVED], INVALID),
        ([add_commit(1), _remove_properties("delta.lastUpdateVersion")], INVALID),
        ([add_commit(1), _remove_properties("io.unitycatalog.tableId")], INVALID),
        ([add_commit(1), _remove_properties("delta.checkpointPolicy")], INVALID),
        ([add_commit(1), _set_domains(CLUSTERING)], INVALID),
        ([add_commit(1), _set_domains({"delta.unknown": {}})], BAD),
        ([add_commit(1), {"action": "set-partition-columns", "partition-columns": ["nope"]}], INVALID),
        ([{"action": "set-columns", "columns": COLUMNS}], INVALID),
        ([_set_properties(**{"delta.appendOnly": "true"})], INVALID),
        (
            [{"action": "update-metadata-snapshot-version", "last-commit-version": 1, "last-commit-timestamp-ms": 1}],
            INVALID,
        ),
        ([add_commit(1, uniform={"iceberg": {}})], UNSUPPORTED),
        ([add_commit(1), _set_properties(**{"delta.universalFormat.enabledFormats": "iceberg"})], UNSUPPORTED),
    ],
)
def test_refused_updates_change_nothing(
    table: TableClient, updates: list[dict[str, Any]], expected: tuple[int, str]
) -> None:
    before = table.load()
    answer = table.update(*updates)
    assert error_of(answer) == expected, answer.text
    assert table.load() == before


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ([], INVALID),
        ([{"type": "assert-etag", "etag": "x"}], INVALID),
        ([{"type": "assert-table-uuid", "uuid": "not a uuid"}], BAD),
        ([{"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}], REQUIREMENT_CONFLICT),
        (["uuid", {"type": "assert-etag", "etag": "x"}], REQUIREMENT_CONFLICT),
        (["uuid", "uuid"], INVALID),
        ([{"type": "assert-luck"}], BAD),
    ],
)
def test_requirements(table: TableClient, requirements: list[Any], expected: tuple[int, str]) -> None:
    good = {"type": "assert-table-uuid", "uuid": table.table_id}
    body = {"requirements": [good if item == "uuid" else item for item in requirements], "updates": [add_commit(1)]}
    assert error_of(table.client.post(table.path, json=body)) == expected
    assert table.load()["latest-table-version"] == 0


def test_a_data_commit_keeps_the_etag(table: TableClient) -> None:
    etag = table.load()["metadata"]["etag"]
    for version in (1, 2):
        answer = table.update(add_commit(version), etag=etag).json()
        assert (answer["metadata"]["etag"], answer["metadata"]["last-commit-version"]) == (etag, 0)
    assert [commit["version"] for commit in table.load()["commits"]] == [2, 1]


def test_a_metadata_commit_changes_everything_at_once(table: TableClient) -> None:
    before = table.load()["metadata"]
    wider = {"type": "struct", "fields": [*COLUMNS["fields"], {**COLUMNS["fields"][0], "name": "w"}]}
    protocol = create_body("t", stage(table.client, table.path.split("/")[6], "x"))["protocol"]
    protocol["writer-features"] += ["clustering", "domainMetadata", "rowTracking"]
    after = table.update(
        add_commit(1),
        {"action": "set-columns", "columns": wider},
        {"action": "set-protocol", "protocol": protocol},
        {"action": "set-partition-columns", "partition-columns": ["ID"]},
        _set_domains({**CLUSTERING, "delta.rowTracking": {"rowIdHighWaterMark": 7}}),
        _set_properties(foo="bar"),
        COMMENT,
    ).json()["metadata"]
    assert after["etag"] != before["etag"]
    assert (after["columns"], after["partition-columns"]) == (wider, ["ID"])
    assert (after["last-commit-version"], after["last-commit-timestamp-ms"]) == (1, 1_700_000_000_001)
    added = dict(after["properties"].items() - before["properties"].items())
    assert added == {
        "foo": "bar",
        "delta.feature.clustering": "supported",
        "delta.feature.domainMetadata": "supported",
        "delta.feature.rowTracking": "supported",
        "delta.clusteringColumns": '[["id"]]',
        "delta.rowTracking.rowIdHighWaterMark": "7",
        "delta.lastUpdateVersion": "1",
        "delta.lastCommitTimestamp": "1700000000001",
    }
    # The high-water mark moves with data: other writers' assert-etag must still hold.
    moved = table.update(add_commit(2), _set_domains({"delta.rowTracking": {"rowIdHighWaterMark": 9}})).json()
    assert (moved["metadata"]["etag"], moved["metadata"]["last-commit-version"]) == (after["etag"], 1)
    assert moved["metadata"]["properties"]["delta.rowTracking.rowIdHighWaterMark"] == "9"
    removal = {"action": "remove-domain-metadata", "domains": ["delta.clustering"]}
    last = table.update(add_commit(3), removal, _remove_properties("foo")).json()["metadata"]["properties"]
    assert "delta.clusteringColumns" not in last
    assert "foo" not in last


def test_what_the_log_does_not_hold_needs_no_commit(table: TableClient) -> None:
    before = table.load()["metadata"]["etag"]
    answer = table.update(COMMENT, _set_properties(team="a")).json()
    assert (answer["latest-table-version"], answer["metadata"]["properties"]["team"]) == (0, "a")
    assert answer["metadata"]["etag"] != before


def test_a_replayed_commit_is_a_no_op_even_after_others(table: TableClient) -> None:
    first = add_commit(1)
    etag = table.load()["metadata"]["etag"]
    assert table.update(first, COMMENT, etag=etag).status_code == 200
    table.update(add_commit(2)).raise_for_status()
    table.update(published(2)).raise_for_status()
    # The etag that the first attempt asserted is gone, by that attempt itself.
    replayed = table.update(first, COMMENT, etag=etag)
    assert (replayed.status_code, replayed.json()) == (200, table.load())
    answer = table.update(add_commit(1))
    assert error_of(answer) == VERSION_CONFLICT
    assert answer.json()["error"]["message"] == "Commit version already accepted. Current table version is 2"


def test_published_commits_are_no_longer_listed(table: TableClient) -> None:
    for version in range(1, 5):
        table.update(add_commit(version)).raise_for_status()
    answer = table.update(published(3)).json()
    assert ([commit["version"] for commit in answer["commits"]], answer["latest-table-version"]) == ([4], 4)
    assert table.update(published(1)).json() == answer
    combined = table.update(add_commit(5), published(4)).json()
    assert [commit["version"] for commit in combined["commits"]] == [5]


def test_unpublished_commits_are_bounded(table: TableClient) -> None:
    for version in range(1, 101):
        table.update(add_commit(version)).raise_for_status()
    assert error_of(table.update(add_commit(101))) == (429, "ResourceExhaustedException")
    assert table.update(add_commit(101), published(100)).status_code == 200


def test_commits_to_external_tables_are_refused(client: httpx.Client, schema: str) -> None:
    body = create_body("e", stage(client, schema, "e")) | {"table-type": "EXTERNAL", "location": f"file:/lake/{schema}"}
    body["protocol"] = {"min-reader-version": 1, "min-writer-version": 2}
    created = client.post(f"{delta(schema)}/tables", json=body).json()
    table = TableClient(client, f"{delta(schema)}/tables/e", created["metadata"]["table-uuid"], "")
    assert error_of(table.update(add_commit(1))) == INVALID
    assert table.update(_set_properties(a="1")).json()["metadata"]["properties"]["a"] == "1"
