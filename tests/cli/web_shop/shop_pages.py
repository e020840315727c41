"""The pages of a project's assets, as its runs have left them."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg


@dataclass
class ShopPages:
    """The pages, as the newest runs left them.

    Attributes:
        home: The folder of the Dagster instance.
        made: The materializations of the newest runs, by table.
        checks: The newest evaluation of each check, by table and name.
        texts: All that was ever shown.
    """

    home: Path
    made: dict[str, list[dg.AssetMaterialization]] = field(default_factory=dict[str, list[dg.AssetMaterialization]])
    checks: dict[tuple[str, str], dg.AssetCheckEvaluation] = field(
        default_factory=dict[tuple[str, str], dg.AssetCheckEvaluation]
    )
    texts: list[str] = field(default_factory=list[str])
    _seen: set[str] = field(default_factory=set[str])

    def turn(self) -> list[str]:
        """Read what runs have shown since; return why steps failed."""
        made, failed = defaultdict[str, list[dg.AssetMaterialization]](list), list[str]()
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            for run in reversed(instance.get_runs()):
                if run.run_id in self._seen:
                    continue
                self._seen.add(run.run_id)
                for event in filter(None, (entry.dagster_event for entry in instance.all_logs(run.run_id))):
                    if event.is_step_failure:
                        failed.append(f"{event.step_key}: {event.step_failure_data.error}")
                    elif event.is_step_materialization:
                        found = event.step_materialization_data.materialization
                        made[_name(found.asset_key)].append(found)
                        self.texts.append(str(found.metadata))
                    elif event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                        check = event.asset_check_evaluation_data
                        self.checks[_name(check.asset_key), check.check_name] = check
                        self.texts.append(f"{check.description} {check.metadata}")
        self.made = dict(made)
        return failed

    def numbers(self, table: str) -> dict[str, Any]:
        """The metadata of the materialization that is of a whole table, by name, as plain values."""
        whole = [made for made in self.made[table] if not made.partition]
        return {name: value.value for name, value in (whole or self.made[table])[-1].metadata.items()}

    def partitions(self, table: str) -> dict[str, int]:
        """The rows of each partition that a run shows."""
        rows = (
            (made.partition, made.metadata["dagster/partition_row_count"].value)
            for made in self.made[table]
            if made.partition
        )
        return dict(rows)  # pyright: ignore[reportReturnType]

    @property
    def red(self) -> set[tuple[str, str]]:
        """The checks that fail, by table and name."""
        return {check for check, found in self.checks.items() if not found.passed}


def _name(key: dg.AssetKey) -> str:
    return ".".join(key.path[-2:])
