"""The shape rules of an updateTable request, and the metadata that it sets: pure, without the store."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from ratify_lakehouse.embedded.catalog import table_contract
from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError
from ratify_lakehouse.embedded.catalog.delta_models import (
    AddCommit,
    AssertEtag,
    AssertTableUuid,
    RemoveDomainMetadata,
    RemoveProperties,
    SetColumns,
    SetDomainMetadata,
    SetLatestBackfilledVersion,
    SetPartitionColumns,
    SetProperties,
    SetProtocol,
    SetTableComment,
    UpdateSnapshotVersion,
    UpdateTable,
)

if TYPE_CHECKING:
    from ratify_lakehouse.embedded.catalog.store.table_store import Table

_MANAGED_ONLY = ("add-commit", "set-latest-backfilled-version")
_EXTERNAL_ONLY = ("update-metadata-snapshot-version",)
# These are part of the Delta log, so on a managed table they must come with the commit that writes them to it.
_LOGGED = ("set-columns", "set-protocol", "set-partition-columns", "set-domain-metadata", "remove-domain-metadata")


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """A valid updateTable request, by action."""

    table_uuid: str
    etag: str | None
    actions: dict[str, Any]

    @classmethod
    def of(cls, request: UpdateTable) -> Self:
        """Raises InvalidParameterError for a shape that the API forbids, before any table is looked up."""
        actions = {update.action: update for update in request.updates}
        requirements = {requirement.type: requirement for requirement in request.requirements}
        if not actions:
            raise InvalidParameterError("'updates' is empty; send at least one action.")
        if len(actions) < len(request.updates) or len(requirements) < len(request.requirements):
            raise InvalidParameterError("A request carries at most one action and one requirement of each type.")
        uuid, etag = requirements.get("assert-table-uuid"), requirements.get("assert-etag")
        if not isinstance(uuid, AssertTableUuid):
            raise InvalidParameterError("The requirement assert-table-uuid is missing; every update needs it.")
        plan = cls(str(uuid.uuid), etag.etag if isinstance(etag, AssertEtag) else None, actions)
        plan._check_contradictions()
        return plan

    def _check_contradictions(self) -> None:
        both = set(self._set_properties()) & set(self._removed_properties())
        both |= set(self._set_domains()) & set(self._removed_domains())
        if both:
            raise InvalidParameterError(f"{', '.join(sorted(both))} is both set and removed; send only one of the two.")
        table_contract.refuse_derived([*self._set_properties(), *self._removed_properties()])

    @property
    def commit(self) -> AddCommit | None:
        """The commit that is proposed, if any."""
        return self.actions.get("add-commit")

    @property
    def published_version(self) -> int | None:
        """The version up to which the client reports that every commit is published."""
        action: SetLatestBackfilledVersion | None = self.actions.get("set-latest-backfilled-version")
        return action.latest_published_version if action else None

    def check_applies_to(self, table: "Table") -> None:
        """Raise InvalidParameterError for actions that this type of table does not have."""
        forbidden = _EXTERNAL_ONLY if table.managed else _MANAGED_ONLY
        wrong = [action for action in self.actions if action in forbidden]
        if wrong:
            raise InvalidParameterError(f"{', '.join(wrong)} does not apply to {table.table_type} tables.")
        if table.managed and self.commit is None:
            self._check_unlogged()

    def _check_unlogged(self) -> None:
        logged = [action for action in self.actions if action in _LOGGED]
        keys = [*self._set_properties(), *self._removed_properties()]
        logged += [key for key in keys if key.startswith("delta.") or key == table_contract.TABLE_ID_PROPERTY]
        if logged:
            raise InvalidParameterError(
                f"{', '.join(logged)} is part of the Delta log; send it with the add-commit that writes it to the log."
            )

    def apply(self, table: "Table") -> "Table":
        """`table` with the metadata that the actions set; etag, versions and times are not touched."""
        columns: SetColumns | None = self.actions.get("set-columns")
        partitions: SetPartitionColumns | None = self.actions.get("set-partition-columns")
        comment: SetTableComment | None = self.actions.get("set-table-comment")
        protocol: SetProtocol | None = self.actions.get("set-protocol")
        snapshot: UpdateSnapshotVersion | None = self.actions.get("update-metadata-snapshot-version")
        properties = {**table.properties, **self._set_properties()}
        domains = {**table.domains, **self._set_domains()}
        return replace(
            table,
            columns=columns.columns if columns else table.columns,
            partition_columns=partitions.partition_columns if partitions else table.partition_columns,
            comment=comment.comment if comment else table.comment,
            protocol=protocol.protocol.model_dump(by_alias=True) if protocol else table.protocol,
            properties={key: value for key, value in properties.items() if key not in self._removed_properties()},
            domains={key: value for key, value in domains.items() if key not in self._removed_domains()},
            last_update_version=snapshot.last_commit_version if snapshot else table.last_update_version,
            last_commit_timestamp=snapshot.last_commit_timestamp_ms if snapshot else table.last_commit_timestamp,
        )

    def _set_properties(self) -> dict[str, str]:
        action: SetProperties | None = self.actions.get("set-properties")
        return action.updates if action else {}

    def _removed_properties(self) -> list[str]:
        action: RemoveProperties | None = self.actions.get("remove-properties")
        return action.removals if action else []

    def _set_domains(self) -> dict[str, Any]:
        action: SetDomainMetadata | None = self.actions.get("set-domain-metadata")
        return action.updates.domains() if action else {}

    def _removed_domains(self) -> list[str]:
        action: RemoveDomainMetadata | None = self.actions.get("remove-domain-metadata")
        return action.domains if action else []
