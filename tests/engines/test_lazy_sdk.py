"""databricks-sdk is imported in part where a part is enough, and as a whole once somebody asks for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.lakehouse import Lakehouse

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]

# Prints the services that are imported after each step.
PROGRAM = """
import json, sys
from threading import Thread
from ratify_lakehouse.catalog.lazy_sdk import register_lazy_sdk

services = lambda: sorted(name for name in sys.modules if name.startswith("databricks.sdk.service.") and "._" not in name)
register_lazy_sdk()
from databricks.sdk import errors
from databricks.sdk.core import ApiClient
from databricks.sdk.service.catalog import TablesAPI
few = services()
register_lazy_sdk()
found = []
def ask():
    from databricks.sdk import WorkspaceClient
    found.append(WorkspaceClient)
threads = [Thread(target=ask) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
import databricks.sdk
assert not hasattr(databricks.sdk, "no_such_name")
same = [databricks.sdk.errors is errors, databricks.sdk.core.ApiClient is ApiClient, len(set(found)) == 1, len(found) == 4]
print(json.dumps([few, len(services()), same, databricks.sdk.service.catalog.TablesAPI is TablesAPI]))
"""

# What every process does that writes a table.
WRITER = """
import json, sys
from ratify_lakehouse.catalog.unity_catalog import UnityCatalog

catalog = UnityCatalog()
found = [catalog.principal(), catalog.default_schema()]
prefix = "databricks.sdk.service."
services = sorted(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix) and "._" not in name)
print(json.dumps([found, services]))
"""


def test_services_are_imported_once_the_client_of_all_is_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    few, all_of_them, same, same_class = json.loads(done.stdout)
    assert "databricks.sdk.service.catalog" in few
    assert len(few) < 5
    assert all_of_them > 20
    assert all(same)
    assert same_class


@pytest.mark.stack
def test_a_writer_needs_few_services(lake: Lakehouse) -> None:
    """All of them take a second to import, in each process."""
    to = lake.catalog.connection
    assert to.token
    known = {"UNITY_HOST": to.host, "UNITY_CATALOG": to.name, "UNITY_TOKEN": to.token.get_secret_value()}
    done = subprocess.run(
        [sys.executable, "-c", WRITER],
        env={**os.environ, **known, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (principal, _), services = json.loads(done.stdout)
    assert principal == lake.catalog.principal()
    assert principal
    assert services == ["provisioning"]
