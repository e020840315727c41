"""The embedded stack that a command needs, from the settings."""

from collections.abc import Generator
from contextlib import contextmanager

from ratify_lakehouse.cli.terminal_output import progress
from ratify_lakehouse.definitions.project_folders import project_root
from ratify_lakehouse.embedded.embedded_stack import running
from ratify_lakehouse.embedded.private_files import write_private
from ratify_lakehouse.embedded.stack_state import StackConfig
from ratify_lakehouse.settings import Settings


def stack_config(catalog_port: int = 0, spark_port: int = 0, *, kafka: bool = False, kafka_port: int = 0) -> StackConfig:
    """Return the stack that the settings ask for; it has no catalog server where UNITY_HOST names one."""
    settings = Settings()
    # Spark reads from Kafka, whether the broker is embedded or named by KAFKA_BOOTSTRAP.
    jar_sets = ("spark", "kafka") if kafka or settings.kafka_bootstrap else ("spark",)
    config = StackConfig(
        home=settings.home,
        jars_dir=settings.jars,
        catalog=settings.unity_catalog,
        catalog_port=catalog_port,
        spark_port=spark_port,
        java_home=settings.ratify_java_home,
        unity_spark_package=settings.unity_spark_package,
        jar_sets=jar_sets,
        spark=settings.spark_remote is None,
        kafka=kafka,
        kafka_port=kafka_port,
        storage_root=settings.ratify_storage_root,
        s3_role_arn=settings.ratify_s3_role_arn,
        s3_endpoint=settings.ratify_s3_endpoint,
        s3_region=settings.ratify_s3_region,
        s3_credential_seconds=settings.ratify_s3_credential_seconds,
        maintenance=settings.ratify_maintenance,
        dropped_table_seconds=settings.ratify_dropped_table_seconds,
    )
    if kafka and settings.kafka_password:
        password_file = settings.home / "secrets" / "kafka.password"
        write_private(password_file, settings.kafka_password.get_secret_value())
        config = config.model_copy(update={"kafka_password_file": password_file})
    return config.model_copy(update=_external_catalog(settings)) if settings.unity_host else config


def _external_catalog(settings: Settings) -> dict[str, object]:
    """What Spark needs to attach the catalog of UNITY_HOST; secrets are passed in private files."""
    from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

    token_file = settings.home / "secrets" / "unity.token"
    write_private(token_file, UnityCatalog().bearer_token())
    external: dict[str, object] = {"unity_host": settings.unity_host, "unity_token_file": token_file}
    connection = settings.catalog_connection()
    if connection.client_secret:
        # A token lasts an hour; with the client's secret, Spark fetches new ones itself.
        secret_file = token_file.with_name("unity.secret")
        write_private(secret_file, connection.client_secret.get_secret_value())
        external |= {"unity_client_id": connection.client_id, "unity_secret_file": secret_file}
    return external


@contextmanager
def stack_for_this_process(*, kafka: bool = False) -> Generator[None]:
    """Start what the settings do not name, for the length of the block; a stack that runs already is used as it is.

    With `kafka`, the stack includes a broker unless KAFKA_BOOTSTRAP names one.

    Raises:
        NoProject: the current folder belongs to none. Nothing is downloaded or started.
    """
    project_root()
    settings = Settings()
    kafka = kafka and not settings.kafka_bootstrap
    if settings.unity_host and settings.spark_remote and not kafka:
        progress(f"using the catalog at {settings.unity_host} and Spark at {settings.spark_remote}")
        yield
        return
    with running(stack_config(kafka=kafka), progress):
        yield
