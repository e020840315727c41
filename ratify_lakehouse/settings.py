"""The one module that reads the environment.

Without any setting, the embedded catalog and Spark are found through the state file that `ratify up` writes to
`RATIFY_HOME`, so any process started in the same folder joins the running stack.
"""

import json
import os
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, DotEnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from ratify_lakehouse.errors import NotConfigured, SourceNotConfigured
from ratify_lakehouse.input_settings import Discovery, Events

LAYERS = ("bronze", "silver", "gold", "ops")
"""The schemas that a lakehouse has, in the order in which data passes through them; `ops` holds the ledgers."""

_STATE = ".ratify"

TPCH = "tpch"
"""The schema of the cross-engine proof, which creates and drops it."""


class CatalogConnection(BaseModel):
    """Where a Unity Catalog server is, and the credentials: `token`, or `client_id` with `client_secret` (OAuth M2M)."""

    host: str
    name: str
    token: SecretStr | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None


class KafkaConnection(BaseModel):
    """Where the Kafka brokers are, and the credentials. The default protocol has neither authentication nor encryption."""

    model_config = ConfigDict(frozen=True)

    bootstrap: str
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    username: str | None = None
    password: SecretStr | None = None
    ca: Path | None = None


def _project_folder() -> Path:
    """The nearest folder, from the current one upwards, with state or a `.env` of this user; else the current one.

    So commands work from any folder of a project.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        for mark in (folder / _STATE, folder / ".env"):
            if mark.exists() and mark.stat().st_uid == os.getuid():
                return folder
    return here


class _CatalogName(BaseSettings):
    """The one setting that asset keys are made of."""

    model_config = SettingsConfigDict(extra="ignore")

    unity_catalog: str = Field(default="ratify", description="Catalog that holds bronze, silver, gold and ops")

    def __init__(self, **given: Any) -> None:
        """Read the settings.

        Raises:
            NotConfigured: one has a value that it cannot have. The value is not shown: it may be a secret.
        """
        try:
            super().__init__(**given)
        except ValidationError as error:
            wrong = [
                "_".join(part.upper() for part in each["loc"] if isinstance(part, str))
                + f": {each['msg'].removeprefix('Value error, ')}"
                for each in error.errors()
            ]
            raise NotConfigured(f"{'; '.join(wrong)}. Correct it in the environment or in .env.") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 it reads that of the current folder
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 no folder of secrets is configured
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the project's `.env`, from whichever of its folders."""
        return init_settings, env_settings, DotEnvSettingsSource(settings_cls, env_file=_project_folder() / ".env")


NO_SPARK = "none"
"""SPARK_REMOTE of a project without Spark."""


class Settings(_CatalogName):
    """Environment variables, `.env.example` lists them with their meaning. They may be in a file `.env` of the project."""

    # DISCOVERY_SETTLE_SECONDS is the field settle_seconds of discovery: split once.
    model_config = SettingsConfigDict(
        extra="ignore",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        nested_model_default_partial_update=True,
    )

    ratify_home: Path = Field(default=Path(), validate_default=True, description="Folder of all state")
    ratify_cache: str | None = Field(default=None, description="Folder of what all projects of a user share: JVM jars")
    xdg_cache_home: str = Field(default="", description="Folder of all caches of a user")
    ratify_java_home: Path | None = Field(default=None, description="Java 17 or 21 for the embedded Spark and for Flink")
    ratify_storage_root: str | None = Field(default=None, description="Where the embedded catalog keeps managed tables")
    ratify_s3_role_arn: str | None = Field(default=None, description="Role that the embedded catalog assumes for S3")
    ratify_s3_endpoint: str | None = Field(default=None, description="URL of S3 and STS, where not those of AWS")
    ratify_s3_region: str | None = Field(default=None, description="Region of S3 and STS")
    ratify_s3_credential_seconds: int | None = Field(default=None, ge=900, le=43200, description="Life of S3 credentials")
    ratify_maintenance: tuple[Literal["compact", "clean", "clean_log"], ...] | None = Field(
        default=None, description="What the embedded catalog permits beyond commits of rows, as JSON; by default everything"
    )
    ratify_dropped_table_seconds: int | None = Field(
        default=None, ge=0, description="How long the embedded catalog keeps a dropped table, which can be undropped; a week"
    )
    unity_host: str | None = Field(default=None, description="URL of a Unity Catalog server or Databricks workspace")
    unity_token: SecretStr | None = Field(default=None, description="Bearer token (PAT)")
    unity_client_id: str | None = Field(default=None, description="OAuth machine-to-machine client id")
    unity_client_secret: SecretStr | None = Field(default=None, description="OAuth machine-to-machine secret")
    unity_warehouse_id: str | None = Field(default=None, description="SQL warehouse of the workspace that UNITY_HOST is")
    unity_spark_package: str | None = Field(default=None, description="Maven coordinates of a published connector")
    spark_remote: str | None = Field(
        default=None, description="sc://… (Spark Connect), a classic Spark master URL, or none: nothing needs Spark"
    )
    flink_command: str = Field(default="ratify-flink", description="Program that runs Flink's SQL client: a name or a path")
    flink_delta_jars: str | None = Field(default=None, description="Delta's own connector for Flink: a folder, or jars")
    flink_delta_package: str | None = Field(default=None, description="Maven coordinates of that connector")
    flink_rest: str = Field(default="", description="Session cluster for streaming jobs of Flink, as http://host:8081")
    flink_credentials_file: str = Field(
        default="", description="File of the session cluster's machines with the catalog's credentials"
    )
    kafka_bootstrap: str | None = Field(default=None, description="Kafka brokers, host:port and commas")
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="Protocol of the brokers"
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        default="PLAIN", description="How the user authenticates to the brokers"
    )
    kafka_username: str | None = Field(default=None, description="User; $ConnectionString for Azure Event Hubs")
    kafka_password: SecretStr | None = Field(default=None, description="Password, or an Event Hubs connection string")
    kafka_ca: Path | None = Field(default=None, description="CA certificates (PEM) of the brokers")
    events: Events = Field(default=Events(), description="What tables of records read that do not say so")
    ratify_checkpoints: str | None = Field(default=None, description="Folder or URL of the streams' checkpoints")
    landing_url: str | None = Field(default=None, description="Landing zone: a path or an object store URL")
    discovery: Discovery = Field(default=Discovery(), description="How landed files are found")
    ratify_time_zone: str = Field(default="UTC", description="Time zone of the schedules, such as Europe/Berlin")

    @field_validator("ratify_time_zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"there is no time zone called {zone!r}: write one such as Europe/Berlin, or UTC") from None
        return zone

    @field_validator("ratify_home", mode="before")
    @classmethod
    def _not_here(cls, home: Any) -> Any:
        # An empty variable, as of a shell's unset one, would be the current folder, and fill it with state.
        return _project_folder() / _STATE if home in ("", Path()) else home

    @property
    def home(self) -> Path:
        """RATIFY_HOME as an absolute path."""
        return self.ratify_home.expanduser().absolute()

    @property
    def jars(self) -> Path:
        """The folder of the JVM jars and of what is compiled against them: one for all projects of a user."""
        # XDG says to ignore a relative folder.
        caches = self.xdg_cache_home if Path(self.xdg_cache_home).is_absolute() else "~/.cache"
        try:
            return Path(self.ratify_cache or f"{caches}/ratify").expanduser().absolute() / "jars"
        except RuntimeError:
            raise NotConfigured("This user has no home folder: set RATIFY_CACHE to a folder for the JVM jars.") from None

    @property
    def landing(self) -> str:
        """The landing zone's URL; a folder of RATIFY_HOME when LANDING_URL is not set."""
        return self.landing_url or str(self.home / "landing")

    @property
    def checkpoints(self) -> str:
        """Where streams store their checkpoints; a folder of RATIFY_HOME when RATIFY_CHECKPOINTS is not set."""
        return (self.ratify_checkpoints or str(self.home / "checkpoints")).rstrip("/")

    @property
    def queue(self) -> str:
        """The folder or the URL of the queue of notifications; a folder of RATIFY_HOME when DISCOVERY_QUEUE is not set."""
        return self.discovery.queue or str(self.home / "queue")

    @cached_property
    def _stack(self) -> dict[str, Any]:
        try:
            return json.loads((self.home / "stack.json").read_text())
        except FileNotFoundError:
            return {}

    def catalog_connection(self, *, admin: bool = False) -> CatalogConnection:
        """Return how to reach the catalog: the environment's, else the running stack's.

        Engines get a service principal that may read and write; `admin` is the principal that manages principals and grants.
        If the environment names only one principal, it is both; of a token and an OAuth client, the token is the admin's.

        Raises:
            NotConfigured: neither names a server, or a server is named without credentials.
        """
        if self.unity_host:
            oauth = bool(self.unity_client_id and self.unity_client_secret)
            if not (self.unity_token or oauth):
                raise NotConfigured(
                    f"UNITY_HOST is {self.unity_host} but there are no credentials for it: set UNITY_TOKEN, or "
                    "UNITY_CLIENT_ID and UNITY_CLIENT_SECRET."
                )
            to = CatalogConnection(host=self.unity_host.rstrip("/"), name=self.unity_catalog)
            if oauth and not (admin and self.unity_token):
                return to.model_copy(update={"client_id": self.unity_client_id, "client_secret": self.unity_client_secret})
            return to.model_copy(update={"token": self.unity_token})
        if catalog := self._stack.get("catalog"):
            token_file = catalog["token_file"] if admin else catalog.get("engine_token_file") or catalog["token_file"]
            token = Path(token_file).read_text().strip()
            return CatalogConnection(host=catalog["url"], name=catalog["name"], token=SecretStr(token))
        raise NotConfigured(
            f"No Unity Catalog server: set UNITY_HOST and UNITY_TOKEN, or start the embedded stack with `ratify up` "
            f"(no running stack is recorded in {self.home})."
        )

    @property
    def warehouse(self) -> str | None:
        """UNITY_WAREHOUSE_ID, which implies that the server is a Databricks workspace; None otherwise.

        Raises:
            NotConfigured: UNITY_HOST names no server that could have a warehouse.
        """
        if self.unity_warehouse_id and not self.unity_host:
            raise NotConfigured("UNITY_WAREHOUSE_ID is set and UNITY_HOST is not: set it to the URL of the workspace.")
        return self.unity_warehouse_id

    @property
    def without_spark(self) -> bool:
        """Return whether no Spark is started or reached: DuckDB computes all tables."""
        return self.spark_remote == NO_SPARK

    def spark_url(self) -> str:
        """Return the Spark to connect to: SPARK_REMOTE, else the running stack's Connect server.

        Raises:
            NotConfigured: neither is set.
        """
        spark: dict[str, Any] = self._stack.get("spark") or {}
        if self.without_spark:
            raise NotConfigured(
                f"This project runs without Spark (SPARK_REMOTE={NO_SPARK}): let DuckDB compute the table (`engine: "
                "duckdb`), or set SPARK_REMOTE to a Spark, or unset it to use the embedded one."
            )
        remote = self.spark_remote or spark.get("remote")
        if not remote:
            raise NotConfigured(
                "No Spark: set SPARK_REMOTE (sc://host:port), or start the embedded stack with `ratify up` "
                f"(no running Spark is recorded in {self.home})."
            )
        return remote

    def kafka_connection(self) -> KafkaConnection:
        """Return the Kafka to connect to: KAFKA_BOOTSTRAP, else the running stack's broker.

        Raises:
            SourceNotConfigured: neither is set.
            NotConfigured: the protocol needs a password and none is set.
        """
        if self.kafka_bootstrap:
            if self.kafka_security_protocol.startswith("SASL") and not (self.kafka_username and self.kafka_password):
                raise NotConfigured(
                    f"KAFKA_SECURITY_PROTOCOL is {self.kafka_security_protocol}: set KAFKA_USERNAME and KAFKA_PASSWORD too."
                )
            return KafkaConnection(
                bootstrap=self.kafka_bootstrap,
                protocol=self.kafka_security_protocol,
                mechanism=self.kafka_sasl_mechanism,
                username=self.kafka_username,
                password=self.kafka_password,
                ca=self.kafka_ca,
            )
        broker: dict[str, Any] = self._stack.get("kafka") or {}
        if bootstrap := broker.get("bootstrap"):
            to = KafkaConnection(bootstrap=bootstrap)
            if password_file := broker.get("password_file"):
                password = SecretStr(Path(password_file).read_text().strip())
                login: dict[str, Any] = {"protocol": "SASL_PLAINTEXT", "username": "ratify", "password": password}
                return to.model_copy(update=login)
            return to
        raise SourceNotConfigured(
            "No Kafka: set KAFKA_BOOTSTRAP (host:port), or start the embedded stack with a broker: `ratify up --kafka` "
            f"(no running broker is recorded in {self.home})."
        )


def catalog_name() -> str:
    """Return the name of the project's catalog, cached by all that it is read from: definitions ask thousands of times."""
    file = _project_folder() / ".env"
    return _catalog_name(os.environ.get("UNITY_CATALOG"), file, file.read_bytes() if file.is_file() else None)


@lru_cache(maxsize=8)
def _catalog_name(*_: object) -> str:
    return _CatalogName().unity_catalog
