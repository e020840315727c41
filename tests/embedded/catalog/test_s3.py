"""Storage on S3: what is vended, what it opens and for how long, and what is deleted. Against moto's S3 and STS."""

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError

from ratify_lakehouse.embedded.catalog.managed_storage import S3, session_policy
from tests.embedded.catalog.harness import CatalogProcess, TableClient, add_commit, create_body, delta, error_of, stage
from tests.embedded.catalog.s3_server import BUCKET, ROLE, MotoS3

ROOT = f"s3://{BUCKET}/root"


@pytest.fixture(scope="module")
def server(s3: MotoS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogProcess]:
    started = CatalogProcess.start(tmp_path_factory.mktemp("s3"), s3_role_arn=ROLE, s3_endpoint=s3.url)
    yield started
    assert started.stop() == 0


@pytest.fixture
def schema(client: httpx.Client) -> str:
    name = f"s_{uuid.uuid4().hex[:8]}"
    created = client.post("/schemas", json={"name": name, "catalog_name": "ratify", "storage_root": ROOT})
    assert created.json()["storage_location"].startswith(f"{ROOT}/__unitystorage/schemas/")
    return name


def _key(location: str) -> str:
    return location.removeprefix(f"s3://{BUCKET}/")


def _of_delta(answer: httpx.Response) -> tuple[dict[str, Any], dict[str, str]]:
    (credential,) = answer.raise_for_status().json()["storage-credentials"]
    return credential, {name.removeprefix("s3.").replace("-", "_"): v for name, v in credential["config"].items()}


def _refused(call: Callable[[], object]) -> str:
    with pytest.raises(ClientError) as refusal:
        call()
    return str(refusal.value.response["Error"]["Code"])


def test_what_both_apis_vend(client: httpx.Client, schema: str, s3: MotoS3) -> None:
    table = TableClient.create(client, schema, "t")
    assert table.location.startswith(f"{ROOT}/__unitystorage/schemas/")
    for operation in ("READ", "READ_WRITE"):
        credential, keys = _of_delta(client.get(f"{table.path}/credentials", params={"operation": operation}))
        assert set(credential["config"]) == {"s3.access-key-id", "s3.secret-access-key", "s3.session-token"}
        assert (credential["prefix"], credential["operation"]) == (table.location, operation)
        session = s3.sessions[-1]
        assert keys == {
            "access_key_id": session.access_key_id,
            "secret_access_key": session.secret_access_key,
            "session_token": session.session_token,
        }
        assert credential["expiration-time-ms"] == int(session.expiration.timestamp() * 1000)
        assert 3500 < credential["expiration-time-ms"] / 1000 - time.time() < 3601
        body = {"table_id": table.table_id, "operation": operation}
        answer = client.post("/temporary-table-credentials", json=body).raise_for_status().json()
        session = s3.sessions[-1]
        assert answer == {
            "aws_temp_credentials": {
                "access_key_id": session.access_key_id,
                "secret_access_key": session.secret_access_key,
                "session_token": session.session_token,
            },
            "expiration_time": int(session.expiration.timestamp() * 1000),
            "url": table.location,
        }


def test_a_staging_table_comes_with_credentials_that_write_there(client: httpx.Client, schema: str, s3: MotoS3) -> None:
    staged = stage(client, schema, "t")
    assert staged["location"].startswith(f"{ROOT}/__unitystorage/schemas/")
    (first,) = staged["storage-credentials"]
    again, keys = _of_delta(client.get(f"/delta/v1/staging-tables/{staged['table-id']}/credentials"))
    assert first["config"] != again["config"]
    assert first["operation"] == again["operation"] == "READ_WRITE"
    key = f"{_key(staged['location'])}/_delta_log/00000000000000000000.json"
    s3.client(keys).put_object(Bucket=BUCKET, Key=key, Body=b"{}")
    assert s3.objects(_key(staged["location"])) == [key]


def test_credentials_open_one_location_only(client: httpx.Client, schema: str, s3: MotoS3) -> None:
    table, other = (TableClient.create(client, schema, name) for name in ("t", "other"))
    body = {"table_id": table.table_id, "operation": "READ_WRITE"}
    opened = s3.client(client.post("/temporary-table-credentials", json=body).json()["aws_temp_credentials"])
    key, theirs = f"{_key(table.location)}/a.parquet", f"{_key(other.location)}/a.parquet"
    s3.client().put_object(Bucket=BUCKET, Key=theirs, Body=b"theirs")
    opened.put_object(Bucket=BUCKET, Key=key, Body=b"ours")
    assert opened.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"ours"
    assert opened.list_objects_v2(Bucket=BUCKET, Prefix=f"{_key(table.location)}/")["KeyCount"] == 1
    upload = opened.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    opened.abort_multipart_upload(Bucket=BUCKET, Key=key, UploadId=upload)
    opened.delete_object(Bucket=BUCKET, Key=key)
    for outside in (
        lambda: opened.get_object(Bucket=BUCKET, Key=theirs),
        lambda: opened.put_object(Bucket=BUCKET, Key=theirs, Body=b""),
        lambda: opened.put_object(Bucket=BUCKET, Key=f"{_key(table.location)}-beside/a", Body=b""),
        lambda: opened.delete_object(Bucket=BUCKET, Key=theirs),
        lambda: opened.copy_object(Bucket=BUCKET, Key=key, CopySource={"Bucket": BUCKET, "Key": theirs}),
        lambda: opened.list_objects_v2(Bucket=BUCKET),
        lambda: opened.list_objects_v2(Bucket=BUCKET, Prefix=_key(ROOT)),
        lambda: opened.list_objects_v2(Bucket=BUCKET, Prefix=f"{_key(other.location)}/"),
        lambda: opened.delete_bucket(Bucket=BUCKET),
    ):
        assert _refused(outside) == "AccessDenied"


def test_read_credentials_do_not_write(client: httpx.Client, schema: str, s3: MotoS3) -> None:
    table = TableClient.create(client, schema, "t")
    key = f"{_key(table.location)}/a.parquet"
    s3.client().put_object(Bucket=BUCKET, Key=key, Body=b"ours")
    _, keys = _of_delta(client.get(f"{table.path}/credentials", params={"operation": "READ"}))
    opened = s3.client(keys)
    assert opened.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"ours"
    for write in (
        lambda: opened.put_object(Bucket=BUCKET, Key=key, Body=b""),
        lambda: opened.delete_object(Bucket=BUCKET, Key=key),
        lambda: opened.create_multipart_upload(Bucket=BUCKET, Key=key),
    ):
        assert _refused(write) == "AccessDenied"


def test_credentials_of_paths(client: httpx.Client, schema: str, s3: MotoS3) -> None:
    table = TableClient.create(client, schema, "t")
    free = f"s3://{BUCKET}/landing/{schema}"
    _, keys = _of_delta(client.get("/delta/v1/temporary-path-credentials", params={"location": free, "operation": "READ"}))
    assert _refused(lambda: s3.client(keys).put_object(Bucket=BUCKET, Key=f"{_key(free)}/a", Body=b"")) == "AccessDenied"
    for operation in ("PATH_READ_WRITE", "PATH_CREATE_TABLE"):
        body = {"url": f"{free}/", "operation": operation}
        answer = client.post("/temporary-path-credentials", json=body).raise_for_status().json()
        assert answer["url"] == free
        s3.client(answer["aws_temp_credentials"]).put_object(Bucket=BUCKET, Key=f"{_key(free)}/a", Body=b"")
    given = len(s3.sessions)
    for taken in (table.location, f"{table.location}/x", ROOT, f"s3://{BUCKET}", f"{ROOT}/../x", "s3://b*/x"):
        assert client.post("/temporary-path-credentials", json={"url": taken, "operation": "PATH_READ"}).status_code == 400
        query = {"location": taken, "operation": "READ"}
        assert client.get("/delta/v1/temporary-path-credentials", params=query).status_code == 400
    assert len(s3.sessions) == given


def test_a_drop_deletes_what_is_under_the_prefix_and_nothing_beside_it(
    client: httpx.Client, schema: str, s3: MotoS3
) -> None:
    table = TableClient.create(client, schema, "t")
    key = _key(table.location)
    beside = [f"{key}-beside/a", f"{key}0"]
    s3.put(*beside, *(f"{key}/{number}" for number in range(1100)), f"{key}/_delta_log/x")
    s3.seen.clear()
    assert client.delete(f"/tables/ratify.{schema}.t").status_code == 200
    assert sorted(s3.objects(key)) == sorted(beside)
    assert {action for _, action, _, _ in s3.seen} == {"s3:ListBucket", "s3:DeleteObject"}


def test_a_catalog_on_s3(s3: MotoS3, tmp_path: Path) -> None:
    """A storage root on S3; and what a failed deletion left is deleted by the next start."""
    home = tmp_path / "home"
    settings = {"s3_role_arn": ROLE, "s3_endpoint": s3.url, "storage_root": f"s3://{BUCKET}/whole"}
    server = CatalogProcess.start(home, **settings)
    with server.client() as client:
        client.post("/schemas", json={"name": "s", "catalog_name": "ratify"}).raise_for_status()
        table = TableClient.create(client, "s", "t")
        assert table.location.startswith(f"s3://{BUCKET}/whole/__unitystorage/catalogs/")
        assert table.update(add_commit(1)).status_code == 200
    server.stop()
    s3.client().put_object(Bucket=BUCKET, Key=f"{_key(table.location)}/a", Body=b"")
    unable = CatalogProcess.start(home, storage_root=f"s3://{BUCKET}/whole")
    with unable.client() as client:
        assert client.delete("/tables/ratify.s.t").status_code == 200
        assert s3.objects("whole/") == [f"{_key(table.location)}/a"]
    unable.stop()
    assert CatalogProcess.start(home, **settings).stop() == 0
    assert s3.objects("whole/") == []


def test_expired_credentials_open_nothing(s3: MotoS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the gate: without this, the test of Spark's renewal could not fail."""
    monkeypatch.setattr(s3, "seconds", 1)
    vended = S3(ROLE, s3.url).vend(f"{ROOT}/x", "READ_WRITE")
    assert vended is not None
    assert vended.expires_at < time.time() * 1000 + 1001
    keys = {name: getattr(vended, name) for name in ("access_key_id", "secret_access_key", "session_token")}
    s3.client(keys).put_object(Bucket=BUCKET, Key="root/x/a", Body=b"")
    while time.time() * 1000 <= vended.expires_at:
        time.sleep(0.05)
    assert _refused(lambda: s3.client(keys).put_object(Bucket=BUCKET, Key="root/x/a", Body=b"")) == "ExpiredToken"


def test_secrets_are_not_shown(s3: MotoS3) -> None:
    vended = S3(ROLE, s3.url).vend(f"{ROOT}/x", "READ")
    assert vended is not None
    assert vended.secret_access_key not in repr(vended)
    assert vended.session_token not in repr(vended)


@pytest.mark.server
@pytest.mark.parametrize(
    ("settings", "status", "message"),
    [
        ({}, 501, "s3_role_arn"),
        ({"s3_role_arn": ROLE, "s3_endpoint": "http://127.0.0.1:9"}, 500, "STS gave no credentials"),
    ],
    ids=["no role", "no STS"],
)
def test_what_fails_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], status: int, message: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    server = CatalogProcess.start(tmp_path, **settings)
    with server.client() as client:
        client.post("/schemas", json={"name": "s", "catalog_name": "ratify", "storage_root": ROOT}).raise_for_status()
        answer = client.post(f"{delta('s')}/staging-tables", json={"name": "t"})
        assert error_of(answer)[0] == status
        assert message in answer.json()["error"]["message"]
        body = {"name": "t", "catalog_name": "ratify", "schema_name": "s"}
        staged = client.post("/staging-tables", json=body).raise_for_status().json()
        assert staged["staging_location"].startswith(ROOT)
        vended = client.post("/temporary-table-credentials", json={"table_id": staged["id"], "operation": "READ"})
        assert vended.status_code == status
        assert message in vended.json()["message"]
    server.stop()


@pytest.mark.server
def test_boto3_is_asked_for(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None\n"
        "from ratify_lakehouse.embedded.catalog.api_errors import NotSupportedError\n"
        "from ratify_lakehouse.embedded.catalog.managed_storage import S3\n"
        "assert S3('arn:aws:iam::1:role/x').vend('file:///x', 'READ') is None\n"
        "try: S3('arn:aws:iam::1:role/x').vend('s3://bucket/x', 'READ')\n"
        "except NotSupportedError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'ratify-lakehouse[s3]'" in done.stdout


def test_the_policy_is_one_that_aws_takes() -> None:
    """No test here runs on AWS: the document itself, of which STS takes 2,048 characters at most."""
    policy = session_policy("s3://bucket/" + "k" * 300, "READ_WRITE", "aws-cn")
    assert len(str(policy)) < 2048
    read = session_policy("s3://bucket/a/b", "READ", "aws")
    assert read == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject"],
                "Resource": ["arn:aws:s3:::bucket/a/b", "arn:aws:s3:::bucket/a/b/*"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": ["arn:aws:s3:::bucket"],
                "Condition": {"StringLike": {"s3:prefix": ["a/b/*"]}},
            },
        ],
    }


def test_external_tables_on_s3_do_not_overlap(client: httpx.Client, schema: str) -> None:
    at = f"s3://{BUCKET}/out/{schema}"
    body = create_body("e", stage(client, schema, "e")) | {"table-type": "EXTERNAL", "location": at, "properties": {}}
    body["protocol"] = {"min-reader-version": 1, "min-writer-version": 2}
    assert client.post(f"{delta(schema)}/tables", json=body).status_code == 200
    for taken in (f"{at}/x", f"s3://{BUCKET}/out", f"s3://{BUCKET}", ROOT):
        answer = client.post(f"{delta(schema)}/tables", json=body | {"name": "x", "location": taken})
        assert error_of(answer)[0] == 400
