"""How to start a catalog server: one JSON file, which the supervisor writes, or a person who runs the server alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ratify_lakehouse.embedded.catalog.access_rules import Privilege
from ratify_lakehouse.embedded.catalog.managed_storage import S3
from ratify_lakehouse.embedded.catalog.object_names import check_name

ACCESS_TOKEN_SECONDS = 3600
DROPPED_TABLE_SECONDS = 7 * 86_400
BEYOND_ROWS = ("compact", "clean", "clean_log")
"""What clients may do to a managed table beyond commits that change rows: put its rows into fewer files, remove files that
no version needs, remove versions of the log that have expired."""


def _check_privilege(name: str) -> str:
    if name not in Privilege.__members__:
        raise ValueError(f"there is no privilege {name!r}: choose from {', '.join(Privilege.__members__)}")
    return name


_Name = Annotated[str, AfterValidator(check_name)]
_PrivilegeName = Annotated[str, AfterValidator(_check_privilege)]


class ServerSettings(BaseModel):
    """The settings of a server. Tokens are in files beside `token_file`, never here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_dir: Path = Field(description="Directory of the catalog's database")
    storage_root: str = Field(description="Directory of the managed tables, or s3://bucket/prefix")
    token_file: Path = Field(description="The admin's bearer token; created when it is missing")
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on; 0 chooses a free one")
    catalog: str = Field(default="ratify", description="Catalog to create when it is missing")
    principals: Mapping[_Name, tuple[_PrivilegeName, ...]] = Field(
        default={},
        description="Service principals, each with a token in <name>.token beside token_file; at its first start it is "
        "created and granted these privileges on the catalog. One that is deleted stays deleted",
    )
    access_token_seconds: int = Field(
        default=ACCESS_TOKEN_SECONDS, description="Life of the tokens that OAuth clients are given"
    )
    maintenance: tuple[Literal["compact", "clean", "clean_log"], ...] = Field(
        default=BEYOND_ROWS, description="What principals with MODIFY may do to managed tables beyond commits of rows"
    )
    dropped_table_seconds: int = Field(
        default=DROPPED_TABLE_SECONDS, ge=0, description="How long a dropped managed table can be undropped, with its files"
    )
    s3_role_arn: str | None = Field(default=None, description="Role to assume for S3, with the keys that boto3 finds")
    s3_endpoint: str | None = Field(default=None, description="URL of S3 and STS, if they are not those of AWS")
    s3_region: str = Field(default=S3.region, description="Region of S3 and STS")
    s3_credential_seconds: int = Field(default=S3.credential_seconds, description="Life of vended credentials, 900 or more")
    exit_with_stdin: bool = Field(default=False, description="Stop when standard input ends")

    @property
    def s3(self) -> S3:
        """The role for S3, and where S3 is."""
        return S3(self.s3_role_arn, self.s3_endpoint, self.s3_region, self.s3_credential_seconds)

    def initial_grants(self) -> dict[str, list[Privilege]]:
        """Return the service principals with what a new one is granted."""
        return {name: [Privilege[one] for one in privileges] for name, privileges in self.principals.items()}
