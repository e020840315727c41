"""An S3 for one module, and a stack whose tables are all on it."""

from collections.abc import Generator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.stack_state import StackConfig, StackState
from tests.conftest import say
from tests.embedded.catalog.s3_server import BUCKET, ROLE, MotoS3, moto_s3


@pytest.fixture(scope="module")
def s3() -> Generator[MotoS3]:
    """An S3 that refuses what AWS would refuse."""
    with pytest.MonkeyPatch.context() as monkeypatch, moto_s3(monkeypatch) as running_s3:
        yield running_s3


@pytest.fixture(scope="module")
def stack_s3(s3: MotoS3, tmp_path_factory: pytest.TempPathFactory, jars_dir: Path) -> Generator[StackState]:
    """A stack whose tables are all on S3."""
    home = tmp_path_factory.mktemp("on_s3")
    config = StackConfig(
        home=home,
        jars_dir=jars_dir,
        storage_root=f"s3://{BUCKET}/lake",
        s3_role_arn=ROLE,
        s3_endpoint=s3.url,
        dropped_table_seconds=0,
    )
    with running(config, say) as state:
        yield state
    assert not (home / "lake").exists()
    # The home has what a client needs, and no key: neither the catalog's nor a vended one.
    contents = [file.read_bytes() for file in home.rglob("*") if file.is_file()]
    keys = [b"catalog-secret-key", *(session.secret_access_key.encode() for session in s3.sessions)]
    assert not [key for key in keys if any(key in content for content in contents)]


@pytest.fixture(scope="module")
def spark_s3(stack_s3: StackState) -> Generator[SparkSession]:
    assert stack_s3.spark is not None
    session = SparkSession.builder.remote(stack_s3.spark.remote).create()
    session.sql("CREATE SCHEMA s")
    yield session
    session.stop()
