"""Request bodies of the 2.1 API, in the terms of unity-catalog-2.1.yaml.

Unknown fields are refused: ignoring `owner` or `isolation_mode` would report a success that did not happen.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ratify_lakehouse.embedded.catalog.column_json import check_type_name
from ratify_lakehouse.embedded.catalog.object_names import check_name

Name = Annotated[str, AfterValidator(check_name)]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Properties = dict[str, str]
Root = Annotated[str, Field(min_length=1)]
_DAY_S = 24 * 60 * 60
# Two years, as on Databricks: a credential that never expires is forgotten until somebody misuses it.
_LONGEST_S = 730 * _DAY_S


class Body(BaseModel):
    """A 2.1 request body."""

    model_config = ConfigDict(strict=True, extra="forbid")


class CreateCatalog(Body):
    name: Name
    comment: str | None = None
    properties: Properties | None = None
    storage_root: Root | None = None


class CreateSchema(CreateCatalog):
    catalog_name: str


class UpdateNamespace(Body):
    """UpdateCatalog and UpdateSchema, which are alike."""

    comment: str | None = None
    properties: Properties | None = None
    new_name: Name | None = None


class ColumnInfo(Body):
    name: str = Field(min_length=1, max_length=255)
    type_text: str | None = None
    type_json: str | None = None
    type_name: Annotated[str, AfterValidator(check_type_name)] | None = None
    type_precision: Int32 | None = None
    type_scale: Int32 | None = None
    type_interval_type: str | None = None
    position: Int32 | None = None
    comment: str | None = None
    nullable: bool = True
    partition_index: Int32 | None = None


class CreateTable(Body):
    name: Name
    catalog_name: str
    schema_name: str
    table_type: Literal["MANAGED", "EXTERNAL", "STREAMING_TABLE", "MATERIALIZED_VIEW", "METRIC_VIEW", "VIEW"]
    data_source_format: Literal["DELTA", "CSV", "JSON", "AVRO", "PARQUET", "ORC", "TEXT"] | None = None
    columns: list[ColumnInfo]
    storage_location: str | None = None
    comment: str | None = None
    properties: Properties | None = None
    view_definition: str | None = None
    view_dependencies: dict[str, Any] | None = None


class CreateStagingTable(Body):
    name: Name
    catalog_name: str
    schema_name: str


class GenerateTemporaryTableCredential(Body):
    table_id: str
    operation: Literal["READ", "READ_WRITE"]


class GenerateTemporaryPathCredential(Body):
    url: str
    operation: Literal["PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"]


class PermissionsChange(Body):
    principal: str
    add: list[str] = []
    remove: list[str] = []


class UpdatePermissions(Body):
    changes: list[PermissionsChange]


class CreatePrincipal(Body):
    model_config = ConfigDict(extra="ignore")  # SCIM's `schemas` and `active` change nothing here.

    display_name: str = Field(alias="displayName", pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,254}$")


class CreateToken(Body):
    application_id: str
    lifetime_seconds: int = Field(default=90 * _DAY_S, ge=1, le=_LONGEST_S)
    comment: str | None = None


class CreateSecret(Body):
    lifetime: str = Field(default=f"{_LONGEST_S}s", pattern=r"^[1-9][0-9]{0,7}s$")
