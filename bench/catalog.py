"""What the catalog costs: loading a table and ratifying a commit, as clients, tables and commits grow.

    python -m bench.catalog [--tables 1000 100000] [--commits 10000] [--quick] [--url URL --token-file FILE --catalog NAME]

Starts an embedded catalog and asks it over HTTP, each client on a table of its own. The other tables are there to be in the
way. Prints p50, p99 and requests a second, then the ratios that are aimed at: p99 with the most tables against that with
none but the clients' own, at most 1.5; commits a second of 8 clients against 1, at least 1. The exit code is 1 where an aim
is missed. `--url` measures any other Unity Catalog server with delta/v1, so that two can be compared.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

API = "/api/2.1/unity-catalog"
CLIENTS = (1, 8, 32)
GROWTH_AIM = 1.5
SCALING_AIM = 1.0
_COLUMNS = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
console = Console(width=110)


@dataclass(frozen=True)
class BenchServer:
    """A server, and the catalog and schema to work in."""

    url: str
    token: str
    catalog: str
    schema: str = "bench"

    @property
    def tables(self) -> str:
        """The path of the schema in delta/v1."""
        return f"/delta/v1/catalogs/{self.catalog}/schemas/{self.schema}"


class CatalogClient:
    """One connection, kept open."""

    def __init__(self, target: BenchServer) -> None:
        parts = urlsplit(target.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.netloc, timeout=60)
        self._headers = {"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"}

    def close(self) -> None:
        """Close the connection; the next request opens another. Servers close one that was idle for a while."""
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return its answer; raises SystemExit where it is no success."""
        self._connection.request(method, API + path, json.dumps(body) if body is not None else None, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: HTTP {answer.status}: {text[:300]!r}")
        return json.loads(text) if text else {}


class ManagedTable:
    """A managed table that one client loads and commits to."""

    def __init__(self, target: BenchServer) -> None:
        self.client = CatalogClient(target)
        name = f"t_{uuid.uuid4().hex[:12]}"
        staged = self.client.ask("POST", f"{target.tables}/staging-tables", {"name": name})
        body = {
            "name": name,
            "location": staged["location"],
            "table-type": "MANAGED",
            "columns": _COLUMNS,
            "partition-columns": [],
            "protocol": staged["required-protocol"],
            "properties": staged["required-properties"],
            "last-commit-timestamp-ms": 1_700_000_000_000,
        }
        self.client.ask("POST", f"{target.tables}/tables", body)
        self.id, self.path, self.version = staged["table-id"], f"{target.tables}/tables/{name}", 0

    def load(self) -> None:
        """Load the table, as each read and each write begins."""
        self.client.ask("GET", self.path)

    def commit(self) -> None:
        """Ratify the next version, and report the one before as published, as Spark does."""
        version = self.version + 1
        commit = {
            "version": version,
            "timestamp": 1_700_000_000_000 + version,
            "file-name": f"{version:020d}.{uuid.uuid4()}.json",
            "file-size": 700,
            "file-modification-timestamp": 1_700_000_000_000 + version,
        }
        updates: list[dict[str, Any]] = [{"action": "add-commit", "commit": commit}]
        if self.version:
            updates.append({"action": "set-latest-backfilled-version", "latest-published-version": self.version})
        requirement = {"type": "assert-table-uuid", "uuid": self.id}
        self.client.ask("POST", self.path, {"requirements": [requirement], "updates": updates})
        self.version = version


@dataclass(frozen=True)
class Latencies:
    """Latencies of one kind of request, in ms, and requests a second of all clients together."""

    p50: float
    p99: float
    rate: float


def measure(calls: Sequence[Callable[[], None]], requests: int) -> Latencies:
    """Let each client call as often as the others, all at once, `requests` times in all."""
    each = max(1, requests // len(calls))

    def run(call: Callable[[], None]) -> list[float]:
        taken = list[float]()
        for _ in range(each):
            start = time.perf_counter()
            call()
            taken.append((time.perf_counter() - start) * 1000)
        return taken

    with ThreadPoolExecutor(len(calls)) as pool:
        start = time.perf_counter()
        taken = [ms for client in pool.map(run, calls) for ms in client]
        wall = time.perf_counter() - start
    cuts = statistics.quantiles(taken, n=100)
    return Latencies(cuts[49], cuts[98], len(taken) / wall)


def measure_all(tables: Sequence[ManagedTable], requests: int) -> dict[tuple[str, int], Latencies]:
    """Measure loads and commits at each number of clients."""
    for table in tables:
        table.client.close()
    return {
        (kind, clients): measure([getattr(table, kind) for table in tables[:clients]], requests)
        for kind in ("load", "commit")
        for clients in CLIENTS
    }


def fill_store(state: Path, lake: Path, target: BenchServer, count: int) -> None:
    """Put tables into the embedded catalog's database, by its own functions and without a commit to disk for each."""
    from ratify_lakehouse.embedded.catalog import table_contract, table_creation
    from ratify_lakehouse.embedded.catalog.delta_models import CreateDeltaTable
    from ratify_lakehouse.embedded.catalog.store import namespace_store
    from ratify_lakehouse.embedded.catalog.store.catalog_database import Store

    store = Store(state / "catalog.sqlite", lake.resolve().as_uri())
    try:
        with store.write() as tx:
            schema = namespace_store.get_schema(tx, target.catalog, target.schema)
            for _ in range(count):
                name = f"f_{uuid.uuid4().hex}"
                staging = table_creation.create_staging_table(tx, schema, name, "admin")
                body = {
                    "name": name,
                    "location": staging.location,
                    "table-type": "MANAGED",
                    "columns": _COLUMNS,
                    "partition-columns": [],
                    "protocol": table_contract.required_protocol(),
                    "properties": table_contract.required_properties(staging.id),
                    "last-commit-timestamp-ms": 1_700_000_000_000,
                }
                table_creation.create_delta_table(
                    tx, schema, CreateDeltaTable.model_validate_json(json.dumps(body)), "admin"
                )
    finally:
        store.close()


@contextmanager
def embedded(home: Path) -> Generator[BenchServer]:
    """The embedded catalog in a process of its own."""
    token = home / "token"
    paths = {"state_dir": home / "state", "storage_root": home / "lake", "token_file": token}
    settings = {"port": 0, "exit_with_stdin": True} | {name: str(path) for name, path in paths.items()}
    (home / "server.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "ratify_lakehouse.embedded.catalog", str(home / "server.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        ready = json.loads(process.stdout.readline() if process.stdout else "")
        yield BenchServer(ready["url"], token.read_text().strip(), ready["catalog"])
        process.terminate()


def main() -> int:
    """Print the figures and the ratios; the exit code is 1 where an aim is missed."""
    given = _arguments()
    requests, most_commits = (200, 500) if given.quick else (2000, given.commits)
    home = Path(tempfile.mkdtemp(prefix="ratify-bench-"))
    try:
        if given.url:
            target = BenchServer(given.url.rstrip("/"), given.token_file.read_text().strip(), given.catalog)
            return _report(*_run(target, given.tables, requests, most_commits, lambda n: _fill_over_http(target, n)))
        with embedded(home) as target:

            def fill(count: int) -> None:
                fill_store(home / "state", home / "lake", target, count)

            return _report(*_run(target, given.tables, requests, most_commits, fill))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, nargs="+", default=[1000, 100_000], help="numbers of tables to measure with")
    parser.add_argument("--commits", type=int, default=10_000, help="commits on one table to measure after")
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests: for trying it out")
    parser.add_argument("--url", help="another server")
    parser.add_argument("--token-file", type=Path, help="its bearer token")
    parser.add_argument("--catalog", default="ratify", help="its catalog (default ratify)")
    given = parser.parse_args()
    if bool(given.url) != bool(given.token_file):
        parser.error("--url and --token-file go together")
    return given


Figures = dict[str, dict[tuple[str, int], Latencies]]


def _run(
    target: BenchServer, sizes: Sequence[int], requests: int, commits: int, fill: Callable[[int], None]
) -> tuple[Figures, Latencies, Latencies]:
    """Return the figures by what stood in the way, and those of one client's commits before and after many."""
    CatalogClient(target).ask("POST", "/schemas", {"name": target.schema, "catalog_name": target.catalog})
    tables = [ManagedTable(target) for _ in range(max(CLIENTS))]
    measure_all(tables, requests // 4)
    figures: Figures = {"its own tables": measure_all(tables, requests)}
    existing = len(tables)
    for size in sizes:
        console.print(f"filling up to {size:,} tables", style="dim")
        fill(max(0, size - existing))
        existing = max(existing, size)
        figures[f"{size:,} tables"] = measure_all(tables, requests)
    console.print(f"making {commits:,} commits on one table", style="dim")
    one = ManagedTable(target)
    before = measure([one.commit], requests)
    measure([one.commit], commits)
    return figures, before, measure([one.commit], requests)


def _fill_over_http(target: BenchServer, count: int) -> None:
    for _ in range(count):
        ManagedTable(target)


def _report(figures: Figures, before: Latencies, after: Latencies) -> int:
    table = Table("with", "request", "clients", "p50 ms", "p99 ms", "requests/s")
    for what, measured in figures.items():
        for (kind, clients), m in measured.items():
            table.add_row(what, kind, str(clients), f"{m.p50:.2f}", f"{m.p99:.2f}", f"{m.rate:,.0f}")
    table.add_row("few commits on it", "commit", "1", f"{before.p50:.2f}", f"{before.p99:.2f}", f"{before.rate:,.0f}")
    table.add_row("many commits on it", "commit", "1", f"{after.p50:.2f}", f"{after.p99:.2f}", f"{after.rate:,.0f}")
    console.print(table)
    first, last = next(iter(figures.values())), list(figures.values())[-1]
    most = list(figures)[-1]
    aims = [
        (f"p99 of {kind}, {clients} clients, {most} / its own", last[kind, clients].p99 / first[kind, clients].p99, True)
        for kind, clients in first
    ]
    aims.append(("p99 of commit after many commits / few", after.p99 / before.p99, True))
    scaling = last["commit", 8].rate / last["commit", 1].rate
    aims.append(("commits a second, 8 clients / 1", scaling, False))
    missed = 0
    for what, ratio, at_most in aims:
        aim = f"at most {GROWTH_AIM}" if at_most else f"at least {SCALING_AIM}"
        met = ratio <= GROWTH_AIM if at_most else ratio >= SCALING_AIM
        missed += not met
        console.print(f"{what}: {ratio:.2f} (aim: {aim}){'' if met else '  MISSED'}", highlight=False)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
