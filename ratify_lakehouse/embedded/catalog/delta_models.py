"""Request bodies of the delta/v1 API, in the terms of unity-catalog-delta-v1.yaml (hyphens become underscores).

Unknown fields are ignored here, as the protocol requires of both sides: newer clients may send more.
"""

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ratify_lakehouse.embedded.catalog.api_errors import NotSupportedError
from ratify_lakehouse.embedded.catalog.api_models import Int32, Name

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Natural = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(gt=0, lt=2**63)]
Json = dict[str, Any]


def _hyphenated(name: str) -> str:
    return name.replace("_", "-")


class DeltaBody(BaseModel):
    """A delta/v1 request body, or a part of one."""

    model_config = ConfigDict(strict=True, alias_generator=_hyphenated)


class Protocol(DeltaBody):
    min_reader_version: Int32
    min_writer_version: Int32
    reader_features: list[str] = []
    writer_features: list[str] = []


class Clustering(BaseModel):
    model_config = ConfigDict(strict=True)
    clusteringColumns: list[list[str]]  # noqa: N815 - the Delta protocol's own spelling


class RowTracking(BaseModel):
    model_config = ConfigDict(strict=True)
    rowIdHighWaterMark: Int64  # noqa: N815 - the Delta protocol's own spelling


class DomainMetadata(BaseModel):
    """The two domains that the API names; a table's other domains are only in its Delta log."""

    model_config = ConfigDict(strict=True, extra="forbid")
    clustering: Clustering | None = Field(None, alias="delta.clustering")
    row_tracking: RowTracking | None = Field(None, alias="delta.rowTracking")

    def domains(self) -> Json:
        """The domains that were sent, by their Delta names."""
        return self.model_dump(by_alias=True, exclude_none=True)


def _refuse_uniform(value: object) -> None:
    if value is not None:
        raise NotSupportedError("UniForm is not supported; send no 'uniform'.")


Uniform = Annotated[None, BeforeValidator(_refuse_uniform)]


class CreateDeltaStagingTable(DeltaBody):
    name: Name


class CreateDeltaTable(DeltaBody):
    name: Name
    location: str
    table_type: Literal["MANAGED", "EXTERNAL"]
    comment: str | None = None
    columns: Json
    partition_columns: list[str] = []
    protocol: Protocol
    properties: dict[str, str]
    domain_metadata: DomainMetadata | None = None
    last_commit_timestamp_ms: Natural
    uniform: Uniform = None


class RenameTable(DeltaBody):
    new_name: Name


class AssertTableUuid(DeltaBody):
    type: Literal["assert-table-uuid"]
    uuid: UUID


class AssertEtag(DeltaBody):
    type: Literal["assert-etag"]
    etag: str


class ProposedCommit(DeltaBody):
    version: Positive
    timestamp: Positive
    file_name: str
    file_size: Positive
    file_modification_timestamp: Positive


class AddCommit(DeltaBody):
    action: Literal["add-commit"]
    commit: ProposedCommit
    uniform: Uniform = None


class SetLatestBackfilledVersion(DeltaBody):
    action: Literal["set-latest-backfilled-version"]
    latest_published_version: Natural


class SetProperties(DeltaBody):
    action: Literal["set-properties"]
    updates: dict[str, str]


class RemoveProperties(DeltaBody):
    action: Literal["remove-properties"]
    removals: list[str]


class SetColumns(DeltaBody):
    action: Literal["set-columns"]
    columns: Json


class SetTableComment(DeltaBody):
    action: Literal["set-table-comment"]
    comment: str


class SetProtocol(DeltaBody):
    action: Literal["set-protocol"]
    protocol: Protocol


class SetDomainMetadata(DeltaBody):
    action: Literal["set-domain-metadata"]
    updates: DomainMetadata


class RemoveDomainMetadata(DeltaBody):
    action: Literal["remove-domain-metadata"]
    domains: list[str]


class SetPartitionColumns(DeltaBody):
    action: Literal["set-partition-columns"]
    partition_columns: list[str]


class UpdateSnapshotVersion(DeltaBody):
    action: Literal["update-metadata-snapshot-version"]
    last_commit_version: Natural
    last_commit_timestamp_ms: Natural


Requirement = Annotated[AssertTableUuid | AssertEtag, Field(discriminator="type")]
Update = Annotated[
    AddCommit
    | SetLatestBackfilledVersion
    | SetProperties
    | RemoveProperties
    | SetColumns
    | SetTableComment
    | SetProtocol
    | SetDomainMetadata
    | RemoveDomainMetadata
    | SetPartitionColumns
    | UpdateSnapshotVersion,
    Field(discriminator="action"),
]


class UpdateTable(DeltaBody):
    requirements: list[Requirement]
    updates: list[Update]


class FileSizeHistogram(DeltaBody):
    sorted_bin_boundaries: list[Int64]
    file_counts: list[Int64]
    total_bytes: list[Int64]
    commit_version: Int64 | None = None

    @model_validator(mode="after")
    def _check_bins(self) -> Self:
        bounds = self.sorted_bin_boundaries
        if not bounds or bounds[0] != 0 or bounds != sorted(bounds):
            raise ValueError("sorted-bin-boundaries must be sorted and begin with 0.")
        if not len(bounds) == len(self.file_counts) == len(self.total_bytes):
            raise ValueError("file-counts and total-bytes must be as long as sorted-bin-boundaries.")
        return self


class CommitReport(DeltaBody):
    num_files_added: Int64 | None = None
    num_bytes_added: Int64 | None = None
    num_files_removed: Int64 | None = None
    num_bytes_removed: Int64 | None = None
    num_rows_inserted: Int64 | None = None
    num_rows_removed: Int64 | None = None
    num_rows_updated: Int64 | None = None
    file_size_histogram: FileSizeHistogram | None = None


class Report(DeltaBody):
    commit_report: CommitReport | None = None


class ReportMetrics(DeltaBody):
    table_id: UUID
    report: Report | None = None
