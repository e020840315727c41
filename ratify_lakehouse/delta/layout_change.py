"""The layout that a table has, and the actions that change it (PROTOCOL.md, "Clustered Table")."""

import json
from collections.abc import Sequence

from ratify_lakehouse.delta.snapshot import CLUSTERING, Json, Snapshot
from ratify_lakehouse.table_layout import Layout

_CLUSTERING_FEATURE = "clustering"


def layout_of(snapshot: Snapshot) -> Layout:
    """Return the layout that a table has."""
    return Layout(tuple(snapshot.partition_columns), snapshot.state.cluster_by)


def layout_changed(snapshot: Snapshot, layout: Layout) -> tuple[Json, Sequence[Json], Sequence[Json]]:
    """Return the new `metaData`, further actions of the log, and the updates that notify the catalog of all of them.

    Spark refuses partitions on a table with the feature `clustering`, so the feature comes and goes with the layout.
    """
    before, further, updates = layout_of(snapshot), list[Json](), list[Json]()
    if layout.partition_by != before.partition_by:
        updates.append({"action": "set-partition-columns", "partition-columns": list(layout.partition_by)})
    if layout.cluster_by != before.cluster_by:
        protocol = _protocol(snapshot.state.protocol, clustered=bool(layout.cluster_by))
        clustering = {"clusteringColumns": [[name] for name in layout.cluster_by]}
        configuration = json.dumps({**clustering, "domainName": CLUSTERING})
        domain = {"domain": CLUSTERING, "configuration": configuration, "removed": not layout.cluster_by}
        further = [{"protocol": protocol}, {"domainMetadata": domain}]
        updates.append({"action": "set-protocol", "protocol": _for_catalog(protocol)})
        if layout.cluster_by:
            updates.append({"action": "set-domain-metadata", "updates": {CLUSTERING: clustering}})
        else:
            updates.append({"action": "remove-domain-metadata", "domains": [CLUSTERING]})
    return {**snapshot.metadata, "partitionColumns": list(layout.partition_by)}, further, updates


def _protocol(before: Json, *, clustered: bool) -> Json:
    features = {*before["writerFeatures"], "domainMetadata"} - {_CLUSTERING_FEATURE}
    return {**before, "writerFeatures": sorted(features | {_CLUSTERING_FEATURE} if clustered else features)}


def _for_catalog(protocol: Json) -> Json:
    names = {
        "minReaderVersion": "min-reader-version",
        "minWriterVersion": "min-writer-version",
        "readerFeatures": "reader-features",
        "writerFeatures": "writer-features",
    }
    return {names[name]: value for name, value in protocol.items() if name in names}
