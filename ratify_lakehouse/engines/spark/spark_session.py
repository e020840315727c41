"""How a Spark session is opened: its configuration, its credentials, and the wait for a Connect server.

Sessions are opened by dagster-pyspark's `LazyPySparkResource`, both over Spark Connect and in this process.
"""

import logging
import socket
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ratify_lakehouse.catalog.unity_catalog import UnityCatalog
from ratify_lakehouse.engines.spark.spark_errors import register_delta_exceptions, translated, translating
from ratify_lakehouse.errors import SparkUnavailable
from ratify_lakehouse.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSION_CONF = {
    # Every engine must see the same instant for the same text; the sessions of servers we do not own may differ.
    "spark.sql.session.timeZone": "UTC",
    # By the old API Spark's Parquet filters know no days from 1582-10-05 to 1582-10-14, and miss rows that have them.
    "spark.sql.datetime.java8API.enabled": "true",
    # The default, INT96, counts nanoseconds for some readers (deltalake), who show the year 9999 as 1816.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def is_connect(remote: str) -> bool:
    """Return whether a Spark URL is one of Spark Connect, and not a master for a classic session."""
    return remote.startswith("sc://")


def open_session(remote: str, catalog: UnityCatalog, conf: Mapping[str, str], retry_seconds: int) -> "SparkSession":
    """Open the session of this process, or return it if it is open already.

    Args:
        remote: sc://host:port (Spark Connect), or a Spark master URL for a classic session in this process.
        catalog: The catalog that a classic session uses; a Connect server was started with one.
        conf: Further Spark configuration.
        retry_seconds: How long to wait for a Connect server that does not answer.

    Raises:
        SparkUnavailable: the server cannot be reached.
        CatalogDenied, CatalogUnavailable: the catalog gives a classic session no token.
    """
    from dagster_pyspark import LazyPySparkResource
    from pyspark.logger import PySparkLogger

    connect = is_connect(remote)
    where = {"spark.remote": remote} if connect else {"spark.master": remote, **classic_conf(catalog)}
    if connect:
        _await_port(remote, retry_seconds)
    # The server itself releases what a closed session leaves behind; the client warns of it at each end.
    logging.getLogger("pyspark.sql.connect.logging").setLevel(logging.ERROR)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # PySpark prints each error as JSON with the server's stack, ten kilobytes of it, and raises it as well.
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    with translating(lambda error: translated(error, remote)):
        session = LazyPySparkResource(spark_config={**where, **SESSION_CONF, **conf}).spark_session
        register_delta_exceptions(connect=connect)
        if not connect:
            # Not before: PySpark starts its JVM with all its configuration on the command line, which every user can read.
            for key, value in credentials_conf(catalog).items():
                session.conf.set(key, value)
        session.sql("SELECT 1").collect()
    return cast("SparkSession", session)


def classic_conf(catalog: UnityCatalog) -> dict[str, str]:
    """Return the configuration that a Connect server has already: Delta, and the catalog.

    Where UNITY_SPARK_PACKAGE names the catalog's connector, Delta's jars are of the release of the installed delta-spark, so
    that its Python side and its JVM side agree.
    """
    to = catalog.connection
    prefix = f"spark.sql.catalog.{to.name}"
    conf = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.defaultCatalog": to.name,
        prefix: "io.unitycatalog.spark.UCSingleCatalog",
        f"{prefix}.uri": to.host,
        # The files' credentials, which the catalog vends for an hour at most.
        f"{prefix}.renewCredential.enabled": "true",
    }
    if package := Settings().unity_spark_package:
        conf["spark.jars.packages"] = f"{delta_package()},{package}"
    return conf


def delta_package() -> str:
    """Return the Maven coordinates of Delta's jars for the installed delta-spark and pyspark (Scala 2.13)."""
    spark = ".".join(metadata.version("pyspark").split(".")[:2])
    return f"io.delta:delta-spark_{spark}_2.13:{metadata.version('delta-spark')}"


def credentials_conf(catalog: UnityCatalog) -> dict[str, str]:
    """Return the credentials of a classic session: a token, or the OAuth client, for which Delta renews tokens itself."""
    to = catalog.connection
    prefix = f"spark.sql.catalog.{to.name}"
    if to.client_id and to.client_secret:
        return {
            f"{prefix}.auth.type": "oauth",
            f"{prefix}.auth.oauth.uri": f"{to.host}/oidc/v1/token",
            f"{prefix}.auth.oauth.clientId": to.client_id,
            f"{prefix}.auth.oauth.clientSecret": to.client_secret.get_secret_value(),
        }
    return {f"{prefix}.token": catalog.bearer_token()}


def _await_port(remote: str, seconds: int) -> None:
    """Fail soon if nothing listens: PySpark itself retries for ten minutes before it raises.

    Raises:
        SparkUnavailable: nothing accepts a connection.
    """
    address = urlsplit(remote)
    retrying = Retrying(
        retry=retry_if_exception_type(OSError), stop=stop_after_delay(seconds), wait=wait_fixed(0.5), reraise=True
    )
    try:
        retrying(lambda: socket.create_connection((address.hostname or "", address.port or 15002), timeout=5).close())
    except OSError as error:
        raise SparkUnavailable(
            f"No Spark answers at {address.hostname}:{address.port or 15002} (asked for {seconds} s): {error}. Check that "
            "it runs (`ratify status`) and that SPARK_REMOTE is right."
        ) from error
