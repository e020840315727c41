"""moto's S3 and STS behind a gate that holds every session to its policy and its life, as AWS does and moto does not."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs

import boto3
import fsspec
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from moto.sts.models import AssumedRole, sts_backends
from werkzeug.serving import make_server

BUCKET = "lake"
ROLE = "arn:aws:iam::123456789012:role/ratify"
_ACCOUNT = "123456789012"
_KEY_ID = re.compile(r"Credential=([^/]+)/\d+/[^/]+/s3/")
_DELETED = re.compile(rb"<Key>([^<]+)</Key>")
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass
class MotoS3:
    """A running server. `seen` has what sessions asked for: key id, action, object or prefix, and the refusal if any.

    Sessions live for `seconds` where that is set, which can be shorter than the least that boto3 lets one ask for.
    """

    url: str = ""
    seconds: int | None = None
    seen: list[tuple[str, str, str, str]] = field(default_factory=list)

    def client(self, vended: dict[str, str] | None = None) -> Any:
        """boto3's client: of the bucket's owner, or with the `aws_temp_credentials` of an answer."""
        keys = vended or {"access_key_id": "owner", "secret_access_key": "owner", "session_token": None}
        options = {f"aws_{name}": value for name, value in keys.items()}
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", **options)

    def objects(self, prefix: str = "") -> list[str]:
        """The names of all objects under a prefix."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    @property
    def sessions(self) -> list[AssumedRole]:
        """What STS has given, oldest first."""
        return sts_backends[_ACCOUNT]["aws"].assumed_roles

    def put(self, *keys: str) -> None:
        """Make empty objects, past the protocol, which is slow for many."""
        for key in keys:
            s3_backends[_ACCOUNT]["aws"].put_object(BUCKET, key, b"")

    def gate(self, app: Wsgi) -> Wsgi:
        def validated(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            if self.seconds and environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] == "/":
                _rewrite(environ, lambda body: re.sub(rb"DurationSeconds=\d+", b"DurationSeconds=%d" % self.seconds, body))
            key_id = _KEY_ID.search(environ.get("HTTP_AUTHORIZATION", ""))
            session = next((one for one in self.sessions if key_id and one.access_key_id == key_id[1]), None)
            for action, what in _asked(environ) if session else ():
                refusal = _refusal(session, action, what)
                self.seen.append((session.access_key_id, action, what, refusal))
                if refusal:
                    start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Connection", "close")])
                    return [f"<Error><Code>{refusal}</Code><Message>{action} {what}</Message></Error>".encode()]
            return app(environ, start_response)

        return validated


def _asked(environ: dict[str, Any]) -> list[tuple[str, str]]:
    """The IAM actions of a request, each with its object, or the prefix that is listed."""
    method, query = environ["REQUEST_METHOD"], parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
    what = f"{bucket}/{key}"
    if not key and method == "POST" and "delete" in query:
        body = _rewrite(environ, lambda body: body)
        return [("s3:DeleteObject", f"{bucket}/{name.decode()}") for name in _DELETED.findall(body)]
    if not key:
        return [("s3:ListBucket" if method == "GET" else f"s3:{method}", f"{bucket}/{query.get('prefix', [''])[0]}")]
    if "uploadId" in query and method in ("GET", "DELETE"):
        return [("s3:ListMultipartUploadParts" if method == "GET" else "s3:AbortMultipartUpload", what)]
    actions = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "POST": "PutObject", "DELETE": "DeleteObject"}
    copied = environ.get("HTTP_X_AMZ_COPY_SOURCE")
    source = [("s3:GetObject", copied.lstrip("/"))] if copied else []
    return [*source, (f"s3:{actions[method]}", what)]


def _rewrite(environ: dict[str, Any], change: Callable[[bytes], bytes]) -> bytes:
    body = change(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    environ |= {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    return body


def _refusal(session: AssumedRole, action: str, what: str) -> str:
    if time.time() > session.expiration.timestamp():
        return "ExpiredToken"
    bucket, _, key = what.partition("/")
    for statement in json.loads(session.policy)["Statement"]:
        prefixes = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
        resource = f"arn:aws:s3:::{bucket if prefixes else what}"
        if (
            action in statement["Action"]
            and any(fnmatchcase(resource, allowed) for allowed in statement["Resource"])
            and (not prefixes or any(fnmatchcase(key, prefix) for prefix in prefixes))
        ):
            return ""
    return "AccessDenied"


@contextmanager
def moto_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[MotoS3]:
    """The server with an empty bucket, and in the environment the keys that a catalog server comes to STS with."""
    for name, value in {"AWS_ACCESS_KEY_ID": "catalog", "AWS_SECRET_ACCESS_KEY": "catalog-secret-key"}.items():
        monkeypatch.setenv(name, value)
    s3 = MotoS3()
    app = s3.gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    s3.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # s3fs keeps its clients for as long as the process lives, with the address of a server that is gone.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    try:
        s3.client().create_bucket(Bucket=BUCKET)
        yield s3
    finally:
        left = [{"Key": key} for key in s3.objects()]
        for first in range(0, len(left), 1000):
            s3.client().delete_objects(Bucket=BUCKET, Delete={"Objects": left[first : first + 1000]})
        s3.client().delete_bucket(Bucket=BUCKET)
        server.shutdown()
        server.server_close()
