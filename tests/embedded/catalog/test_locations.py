"""No location leaves its root, none is two places, and no two tables overlap."""

import itertools
import posixpath
import string
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError
from ratify_lakehouse.embedded.catalog.managed_storage import S3
from ratify_lakehouse.embedded.catalog.object_names import (
    ancestors,
    check_managed,
    external_location,
    file_path,
    normal_location,
    storage_root,
)
from tests.embedded.catalog.harness import TableClient, create_body, delta, stage

_MANAGED = "file:///lake/__unitystorage/catalogs/c/tables/t"


@pytest.mark.parametrize(
    ("given_as", "normal"),
    [
        ("/lake/x", "file:///lake/x"),
        ("/lake/a b/é/", "file:///lake/a%20b/%C3%A9"),
        ("file:/lake/x", "file:///lake/x"),
        ("file:///lake//x/", "file:///lake/x"),
        ("file:////lake/x", "file:///lake/x"),
        ("file:///lake/a b", "file:///lake/a%20b"),
        ("file:///lake/a%20b", "file:///lake/a%20b"),
        ("file:///lake/%61=%3D", "file:///lake/a=="),
        ("file:///lake/é", "file:///lake/%C3%A9"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_one_spelling_each(given_as: str, normal: str) -> None:
    assert normal_location(given_as) == normal
    assert normal_location(normal) == normal


@pytest.mark.parametrize(
    "location",
    [
        *(
            "",
            "/",
            "/lake/../x",
            "/lake/a%20b",
            "/lake/x?y",
            "/lake/\x00",
            "lake/x",
            "file:lake/x",
            "file:",
            "file:///",
            "file://",
            "//lake/x",
        ),
        *("file://host/lake/x", "file://localhost/lake", "file://user@host/x", "file://%2Flake"),
        *("file:///lake/../x", "file:///lake/./x", "file:///lake/..", "file:///lake/%2e%2e/x", "file:///lake/.%2E/x"),
        *("file:///lake/%252e%252e/x", "file:///lake/%25", "file:///lake%2f..%2fx", "file:///lake%2Fx", "file:///a%5cb"),
        *("file:///lake/\x00", "file:///lake/%00", "file:///lake/a\nb", "file:///lake/%0a", "file:///lake/%ff"),
        *("file:///lake/x?y", "file:///lake/x#y", "file:///lake/x%3fy", "file:///lake/a\\..\\b"),
        *("FILE:///lake/x", "local:///lake/x", "http://h/x", "abfss://c@a.dfs.core.windows.net/x", "gs://b/x", "s3a://b/x"),
        *("jar:file:///x", "hdfs:///x", "file+x:///lake", "viewfs:/x"),
        *("s3://", "s3:///x", "s3:/bucket/x", "s3://b", "s3://Bucket/x", "s3://user@bucket/x", "s3://bucket:9000/x"),
        *(
            "s3://bucket/../x",
            "s3://bucket/a/./x",
            "s3://bucket/a//x",
            "s3://bucket//x",
            "s3://bucket/a%2f..",
            "s3://bucket/*",
        ),
        *("s3://bucket/a?", "s3://bucket/${aws:username}", "s3://bucket/é", "s3://bucket/a\x00", "s3://bucket/a\n"),
    ],
)
def test_what_could_be_another_place_is_refused(location: str) -> None:
    with pytest.raises(InvalidParameterError):
        normal_location(location)


_PIECES = [
    "a",
    "b",
    "..",
    ".",
    "/",
    "//",
    "%2e",
    "%2E%2e",
    "%2f",
    "%252f",
    "%00",
    "\\",
    "?",
    "#",
    "%",
    " ",
    "é",
    "*",
    "$",
    ":",
]


@given(st.sampled_from(["file:", "file://", "file:///", "file:///lake/", "s3://bucket/", "s3://"]), st.data())
def test_whatever_is_accepted_is_absolute_and_one_place(start: str, data: st.DataObject) -> None:
    location = start + "".join(data.draw(st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=8)))
    try:
        normal = normal_location(location)
    except InvalidParameterError:
        return
    assert normal_location(normal) == normal
    parts = urlsplit(normal)
    assert not {"..", "."} & set(parts.path.split("/"))
    assert (parts.query, parts.fragment) == ("", "")
    # However often a client decodes it, it stays where it is.
    for decoded in (unquote(parts.path), unquote(unquote(parts.path))):
        assert unquote(unquote(parts.path)) == decoded
        assert posixpath.normpath(decoded or "/") == (decoded or "/")
        assert "\x00" not in decoded
    if parts.scheme == "file":
        assert (parts.netloc, file_path(normal).is_absolute()) == ("", True)


@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=2), min_size=1, max_size=5))
def test_ancestors_are_all_that_hold_it(path: list[str]) -> None:
    held = "s3://bucket/" + "/".join(path)
    assert ancestors(held)[-1] == held
    assert all(held == above or held.startswith(above + "/") for above in ancestors(held))
    assert len(ancestors(held)) == len(path) + 1


def test_links_are_followed_before_anything_is_decided(tmp_path: Path) -> None:
    managed = tmp_path / "__unitystorage" / "catalogs" / "c" / "tables" / "t"
    managed.mkdir(parents=True)
    (tmp_path / "link").symlink_to(managed)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for location in (f"file://{tmp_path}/link", f"file://{tmp_path}/link/x", f"file://{tmp_path}/__unity%73torage/x"):
        for read in (external_location, storage_root):
            with pytest.raises(InvalidParameterError, match="managed"):
                read(location)
    with pytest.raises(InvalidParameterError):
        external_location(f"file://{tmp_path}/circle")
    with pytest.raises(InvalidParameterError, match="whole bucket"):
        external_location("s3://bucket/")


@pytest.mark.parametrize(
    "location", ["file:///lake/t", "file:///x/__unitystorage/t", f"{_MANAGED}/../../x", "s3://b/tables/t"]
)
def test_only_managed_tables_are_deleted(location: str) -> None:
    with pytest.raises(InvalidParameterError):
        check_managed(location)


def test_deletion_does_not_follow_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious" / "tables" / "t"
    precious.mkdir(parents=True)
    (precious / "file").touch()
    root = tmp_path / "__unitystorage" / "catalogs"
    root.mkdir(parents=True)
    (root / "c").symlink_to(tmp_path / "precious")
    assert not S3().delete_managed((root / "c" / "tables" / "t").as_uri())
    (root / "d" / "tables").mkdir(parents=True)
    (root / "d" / "tables" / "t").symlink_to(precious)
    assert not S3().delete_managed((root / "d" / "tables" / "t").as_uri())
    (root / "e" / "tables" / "t").mkdir(parents=True)
    (root / "e" / "tables" / "t" / "link").symlink_to(precious)
    assert S3().delete_managed((root / "e" / "tables" / "t").as_uri())
    assert not (root / "e" / "tables" / "t").exists()
    assert (precious / "file").exists()


def test_nothing_is_made_or_deleted_through_a_link(client: httpx.Client, schema: str, tmp_path: Path) -> None:
    """A link that takes the place of a directory below a root after that root was accepted."""
    root, precious = (tmp_path / "root").resolve(), tmp_path / "precious"
    precious.mkdir()
    names = {"catalog_name": "ratify", "schema_name": f"{schema}_l"}
    created = {"name": names["schema_name"], "catalog_name": "ratify", "storage_root": root.as_uri()}
    client.post("/schemas", json=created).raise_for_status()
    table = TableClient.create(client, names["schema_name"], "t")
    managed = file_path(table.location).parents[3]
    assert managed == root / "__unitystorage"
    (precious / table.location.partition("/__unitystorage/")[2]).mkdir(parents=True)
    root.mkdir()
    managed.symlink_to(precious)
    assert client.delete(f"/tables/ratify.{names['schema_name']}.t").status_code == 200
    assert len(list(precious.rglob("*"))) == 4
    for path in (f"{delta(names['schema_name'])}/staging-tables", "/staging-tables"):
        refused = client.post(path, json=names | {"name": "t"} if path == "/staging-tables" else {"name": "t"})
        assert refused.status_code == 400
        assert "leads elsewhere by a link" in refused.text
    managed.unlink()
    assert stage(client, names["schema_name"], "t")["location"].startswith(root.as_uri())


def test_a_root_may_be_reached_by_a_link(client: httpx.Client, schema: str, tmp_path: Path) -> None:
    """As when a lake was moved to another disk: the root is the operator's to choose."""
    root = (tmp_path / "old").resolve()
    created = {"name": f"{schema}_m", "catalog_name": "ratify", "storage_root": root.as_uri()}
    client.post("/schemas", json=created).raise_for_status()
    table = TableClient.create(client, f"{schema}_m", "t")
    file_path(table.location).mkdir(parents=True)
    root.rename(tmp_path / "new")
    root.symlink_to(tmp_path / "new")
    stage(client, f"{schema}_m", "u")
    client.delete(f"/tables/ratify.{schema}_m.t").raise_for_status()
    assert not file_path(table.location).exists()


def _register(client: httpx.Client, schema: str, name: str, location: str, api: str = "2.1") -> int:
    if api == "2.1":
        body = {"name": name, "catalog_name": "ratify", "schema_name": schema, "table_type": "EXTERNAL", "columns": []}
        return client.post("/tables", json=body | {"data_source_format": "DELTA", "storage_location": location}).status_code
    body = create_body(name, stage(client, schema, name)) | {
        "table-type": "EXTERNAL",
        "location": location,
        "properties": {},
    }
    body["protocol"] = {"min-reader-version": 1, "min-writer-version": 2}
    return client.post(f"{delta(schema)}/tables", json=body).status_code


@pytest.mark.parametrize("api", ["2.1", "delta"])
def test_external_tables_do_not_overlap(client: httpx.Client, schema: str, api: str) -> None:
    at = f"file:///out/{schema}"
    assert _register(client, schema, "a", f"{at}/a/x", api) == 200
    for taken in (
        f"{at}/a/x",
        f"{at}/a/x/",
        f"file:{at[7:]}/a//x",
        f"{at}/a/x/y/z",
        f"{at}/a",
        at,
        "file:///out",
        f"{at}/%61/x",
    ):
        assert _register(client, schema, "b", taken, api) == 400, taken
        query = {"location": taken, "operation": "READ"}
        assert client.get("/delta/v1/temporary-path-credentials", params=query).status_code == 400
    for number, free in enumerate((f"{at}/a/xy", f"{at}/a/x-1", f"{at}/a/x.1", f"{at}/a/x0", f"{at}/a/w", f"{at}/a/X")):
        assert _register(client, schema, f"free{number}", free, api) == 200, free
    assert client.delete(f"/tables/ratify.{schema}.a").status_code == 200
    assert _register(client, schema, "again", f"{at}/a/x", api) == 200


def test_external_tables_stay_out_of_managed_storage(
    client: httpx.Client, schema: str, table: TableClient, server_home: Path, tmp_path: Path
) -> None:
    lake = (server_home / "lake").resolve()
    (tmp_path / "link").symlink_to(Path(urlsplit(table.location).path))
    held = (table.location, f"{table.location}/x", lake.as_uri(), lake.parent.as_uri(), (tmp_path / "link").as_uri())
    for location in held:
        assert _register(client, schema, "x", location) == 400, location
    assert _register(client, schema, "x", f"{lake.as_uri()}/beside-{schema}") == 200


def test_storage_roots_stay_out_of_tables(client: httpx.Client, schema: str) -> None:
    at = f"file:///out/{schema}/root"
    created = {"name": f"{schema}_own", "catalog_name": "ratify"}
    assert _register(client, schema, "x", f"{at}/x") == 200
    for root in (f"{at}/x", f"{at}/x/y", f"{at}/__unitystorage", "abfss://c@a/x", f"{at}/../x"):
        assert client.post("/schemas", json=created | {"storage_root": root}).status_code == 400
        assert client.post("/catalogs", json={"name": f"c_{schema}", "storage_root": root}).status_code == 400
    assert client.post("/schemas", json=created | {"storage_root": at}).json()["storage_root"] == at
    for root in (at, f"file:///out/{schema}"):
        assert _register(client, schema, "y", root) == 400


def test_managed_tables_lie_in_their_root(client: httpx.Client, schema: str) -> None:
    created = client.post(
        "/schemas", json={"name": f"{schema}_r", "catalog_name": "ratify", "storage_root": f"file:///r/{schema}"}
    )
    locations = [stage(client, f"{schema}_r", "t")["location"] for _ in range(3)]
    for one, other in itertools.permutations(locations, 2):
        assert one.startswith(f"{created.json()['storage_location']}/tables/")
        assert one not in ancestors(other)
