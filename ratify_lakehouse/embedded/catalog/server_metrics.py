"""Observability: a log line and an id for each request, and metrics for Prometheus."""

import json
import logging
import re
import secrets
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ratify_lakehouse.embedded.catalog.store.catalog_database import Store
from ratify_lakehouse.embedded.catalog.store.table_updates import unpublished_by_table

_access = logging.getLogger("ratify_lakehouse.embedded.catalog.access_log")
_LOG_BYTES, _LOG_FILES = 10 * 1024 * 1024, 5
# A client's request id goes into the log and the answer, so only characters that are harmless in both are accepted.
_REQUEST_ID = re.compile(r"[0-9A-Za-z._:-]{1,128}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


def log_access_to(path: Path) -> None:
    """Write the access log to `path`, rotated so that at most 60 MB are on disk."""
    handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    _access.handlers = [handler]
    _access.propagate = False
    _access.setLevel(logging.INFO)


class ServerMetrics:
    """The metrics of one server, in its own registry."""

    def __init__(self, store: Store) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ratify_catalog_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "ratify_catalog_request_seconds",
            "Time from a request to the end of its answer",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.commits = Counter("ratify_catalog_commits", "Commits proposed", ["outcome"], registry=self.registry)
        for outcome in ("ratified", "conflicted", "replayed"):
            self.commits.labels(outcome)
        self.registry.register(_Unpublished(store))

    def page(self) -> Response:
        """All metrics in Prometheus' text format."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class _Unpublished(Collector):
    """Read from the store at each scrape, so that it is also correct after a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterable[Any]:
        gauge = GaugeMetricFamily(
            "ratify_catalog_unpublished_commits",
            "Ratified commits that wait to be published, of tables that have any",
            labels=["catalog", "schema", "table"],
        )
        with self._store.read() as tx:
            for names, count in unpublished_by_table(tx):
                gauge.add_metric(names, count)
        yield gauge


class Observed:
    """ASGI middleware outside of error handling: an id, a log line and a count for each request."""

    def __init__(self, app: Starlette, metrics: ServerMetrics) -> None:
        self._app = app
        self._metrics = metrics
        self._routes: dict[Any, str] = {route.endpoint: route.path for route in app.routes if isinstance(route, Route)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get("x-request-id", "")
        request_id = sent if _REQUEST_ID.fullmatch(sent) else secrets.token_hex(8)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        start = time.perf_counter()
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._note(scope, status, time.perf_counter() - start)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        route = self._routes.get(scope.get("endpoint"), "none")
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": scope["state"]["request_id"],
            "principal": scope["state"].get("principal"),
            # Without the query, where some clients put tokens.
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "ms": round(seconds * 1000, 2),
        }
        _access.info(json.dumps(line))
