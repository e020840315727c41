"""What identifies a commit of ours by Spark, and the session configuration by which Delta puts it there."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITTED = "ratify:"
"""Beginning of the user metadata of commits by `Spark.commit` and `Spark.merge_to_match`."""

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_TXN_APP_ID, _TXN_VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


@contextmanager
def commit_conf(session: "SparkSession", user_metadata: str, txn: tuple[str, int] | None) -> Generator[None]:
    """Commits of a session in the block have this user metadata.

    Args:
        session: Of one thread: others would have it, too.
        user_metadata: The text.
        txn: App id and version: Delta skips a write if one of this app id with this version, or a later one, was committed.
    """
    conf = {_USER_METADATA: user_metadata}
    if txn:
        conf |= {_TXN_APP_ID: txn[0], _TXN_VERSION: str(txn[1])}
    for key, value in conf.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            session.conf.unset(key)
