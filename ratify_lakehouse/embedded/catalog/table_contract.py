"""What every managed table must declare, and the properties that the server derives from a table's state.

The required set follows ManagedTablesSpec.md of Unity Catalog. The server suggests nothing more, because Delta enables
what it suggests, and DuckDB writes logical column names into tables with column mapping: every engine then reads NULL
there, without an error.
"""

from typing import Any

from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError, NotSupportedError

Json = dict[str, Any]

REQUIRED_READER_FEATURES = ["catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors"]
REQUIRED_WRITER_FEATURES = [*REQUIRED_READER_FEATURES, "inCommitTimestamp"]
REQUIRED_PROPERTIES = {
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
    "delta.checkpointPolicy": "v2",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.enableDeletionVectors": "true",
}
_UNIFORM = "delta.universalFormat.enabledFormats"
TABLE_ID_PROPERTY = "io.unitycatalog.tableId"
MIN_READER_VERSION = 3
MIN_WRITER_VERSION = 7

CLUSTERING = "delta.clustering"
ROW_TRACKING = "delta.rowTracking"
# Domain -> the writer features that Delta requires for it.
_DOMAIN_FEATURES = {CLUSTERING: {"clustering", "domainMetadata"}, ROW_TRACKING: {"rowTracking", "domainMetadata"}}

_FEATURE_PREFIX = "delta.feature."
_DERIVED = {
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.clusteringColumns",
    "delta.rowTracking.rowIdHighWaterMark",
    "delta.lastUpdateVersion",
    "delta.lastCommitTimestamp",
}
# Features that bind readers too (Delta PROTOCOL.md); needed where a client sends features as flat properties.
_READER_FEATURES = {
    "catalogManaged", "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint",
    "vacuumProtocolCheck", "variantType", "variantShredding",
}  # fmt: skip


def required_protocol() -> Json:
    """The least protocol of a managed table (DeltaProtocol)."""
    return {
        "min-reader-version": MIN_READER_VERSION,
        "min-writer-version": MIN_WRITER_VERSION,
        "reader-features": REQUIRED_READER_FEATURES,
        "writer-features": REQUIRED_WRITER_FEATURES,
    }


def required_properties(table_id: str) -> dict[str, str]:
    """The properties that a managed table of this id must carry, with these values."""
    return {**REQUIRED_PROPERTIES, TABLE_ID_PROPERTY: table_id}


def is_derived(key: str) -> bool:
    """Whether the server derives this property, so that no client may set or remove it."""
    return key in _DERIVED or key.startswith(_FEATURE_PREFIX)


def refuse_derived(keys: list[str]) -> None:
    """Raise InvalidParameterError when a client tries to write a derived property."""
    derived = sorted(key for key in keys if is_derived(key))
    if derived:
        raise InvalidParameterError(
            f"{', '.join(derived)} is derived by the catalog from the protocol, the domain metadata and the commits; "
            "do not send it as a property."
        )


def protocol_of_properties(properties: dict[str, str]) -> Json:
    """The DeltaProtocol that flat properties declare, for clients of the 2.1 API, which has no field for it."""
    features = [key.removeprefix(_FEATURE_PREFIX) for key in properties if key.startswith(_FEATURE_PREFIX)]
    return {
        "min-reader-version": _version(properties, "delta.minReaderVersion"),
        "min-writer-version": _version(properties, "delta.minWriterVersion"),
        "reader-features": [feature for feature in features if feature in _READER_FEATURES],
        "writer-features": features,
    }


def _version(properties: dict[str, str], key: str) -> int:
    value = properties.get(key, "0")
    if not value.isascii() or not value.isdigit() or len(value) > 3:
        raise InvalidParameterError(f"Property {key} is {value!r}; it must be a small whole number.")
    return int(value)


def check_protocol(protocol: Json) -> None:
    """Refuse a protocol that Delta forbids: a reader feature that is not a writer feature too (PROTOCOL.md)."""
    reader_only = sorted(set(protocol["reader-features"]) - set(protocol["writer-features"]))
    if reader_only:
        raise InvalidParameterError(f"Reader feature {', '.join(reader_only)} must be listed in writer-features as well.")


def check_managed(table_id: str, protocol: Json, properties: dict[str, str]) -> None:
    """Raise InvalidParameterError unless protocol and properties fulfil the managed-table contract."""
    if protocol["min-reader-version"] < MIN_READER_VERSION or protocol["min-writer-version"] < MIN_WRITER_VERSION:
        raise InvalidParameterError(
            f"A managed table needs min-reader-version {MIN_READER_VERSION} and min-writer-version "
            f"{MIN_WRITER_VERSION}; got {protocol['min-reader-version']} and {protocol['min-writer-version']}."
        )
    for kind, required in (("reader", REQUIRED_READER_FEATURES), ("writer", REQUIRED_WRITER_FEATURES)):
        missing = [feature for feature in required if feature not in protocol[f"{kind}-features"]]
        if missing:
            raise InvalidParameterError(f"A managed table needs the {kind} features {', '.join(missing)}.")
    for key, value in required_properties(table_id).items():
        if properties.get(key) != value:
            raise InvalidParameterError(f"A managed table needs the property {key}={value!r}; got {properties.get(key)!r}.")
    if properties.get(_UNIFORM):
        raise NotSupportedError(f"UniForm is not supported; remove the property {_UNIFORM}.")


def check_external(protocol: Json) -> None:
    """Refuse an external table that declares catalog-managed commits."""
    if "catalogManaged" in protocol["writer-features"]:
        raise InvalidParameterError("An external table cannot have the feature catalogManaged; create it as MANAGED.")


def check_domains(domains: Json, protocol: Json) -> None:
    """Refuse domain metadata whose table features are missing (Delta PROTOCOL.md, domain metadata)."""
    for domain in domains:
        missing = sorted(_DOMAIN_FEATURES[domain] - set(protocol["writer-features"]))
        if missing:
            raise InvalidParameterError(f"Domain {domain} needs the writer features {', '.join(missing)}.")
