"""A proxy before a catalog that spoils its answers to commits, as a network and its gateways may at the worst moment."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx

CUT = "a cut connection"
TIME_OUT = "a time-out"

Answer = int | str
"""An HTTP status, CUT, or TIME_OUT."""

# Those of unity-catalog-delta-v1.yaml; gateways answer 502 and 503.
_TYPES = {
    401: "NotAuthorizedException",
    403: "PermissionDeniedException",
    404: "NoSuchTableException",
    409: "CommitVersionConflictException",
    429: "ResourceExhaustedException",
    500: "InternalServerErrorException",
}


class Moment(StrEnum):
    """When the catalog gets a request whose answer is spoiled."""

    BEFORE = "never"
    """It never does. The answer looks like the catalog's."""
    AFTER = "before the answer"
    """The answer looks like the catalog's, and is another one."""
    LATE = "long after the answer"
    """The answer is the gateway's page; `FaultyNetwork.deliver` is the moment."""


@dataclass
class FaultyNetwork:
    """The next requests to commit get each of `answers` in turn, and then always `then`; None: that of the catalog.

    Attributes:
        spoiled: How many got another answer than the catalog's.
        requests: How many there were.
    """

    url: str = ""
    moment: Moment = Moment.AFTER
    answers: Sequence[Answer | None] = ()
    then: Answer | None = None
    spoiled: int = 0
    requests: int = 0
    late: list[partial[httpx.Response]] = field(default_factory=list)

    def spoil(self, moment: Moment, *answers: Answer | None, then: Answer | None = None) -> None:
        """Spoil the requests from now on."""
        self.moment, self.answers, self.then = moment, answers, then
        self.spoiled = self.requests = 0

    def deliver(self) -> None:
        """Let the catalog have the requests that are late."""
        while self.late:
            self.late.pop(0)()

    def next_answer(self) -> Answer | None:
        answer = self.answers[self.requests] if self.requests < len(self.answers) else self.then
        self.requests += 1
        self.spoiled += answer is not None
        return answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    network: FaultyNetwork
    client: httpx.Client

    def answer_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        request = partial(self.client.request, self.command, self.path, content=body, headers=headers)
        answer = self.network.next_answer() if b"add-commit" in body else None
        if answer is None:
            try:
                self._pass_on(request())
            except httpx.TransportError:
                # The catalog is away: so is this one.
                self.close_connection = True
            return
        if self.network.moment is Moment.AFTER:
            request()
        elif self.network.moment is Moment.LATE:
            self.network.late.append(request)
        self._spoil(answer)

    # Names that http.server looks for.
    do_GET = do_POST = do_HEAD = do_DELETE = answer_request  # noqa: N815

    def _spoil(self, answer: Answer) -> None:
        if isinstance(answer, str):
            if answer == TIME_OUT:
                # Until the client gives up and closes the connection.
                self.rfile.read(1)
            self.close_connection = True
        elif self.network.moment is Moment.LATE or answer in (502, 503):
            self._send(answer, "text/html", b"<html><title>gateway</title></html>")
        elif answer == 200:
            # The nastiest success: of another request for the same table.
            self._pass_on(self.client.get(self.path, headers={"Authorization": self.headers["Authorization"]}))
        else:
            error = {"message": "spoiled", "type": _TYPES[answer], "code": answer}
            self._send(answer, "application/json", json.dumps({"error": error}).encode())

    def _pass_on(self, answer: httpx.Response) -> None:
        self._send(answer.status_code, answer.headers.get("Content-Type", "application/json"), answer.content)

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: the test reports failures."""


@contextmanager
def faulty_network(url: str) -> Generator[FaultyNetwork]:
    """Run such a proxy before the catalog at `url`; it passes everything on until `spoil` is called."""
    state = FaultyNetwork()
    # Loading the certificates costs 0.2 s, and the catalog speaks plain HTTP.
    with httpx.Client(base_url=url, trust_env=False, timeout=60, verify=False) as connected:  # noqa: S501

        class Handler(_Handler):
            network = state
            client = connected

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            state.url = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield state
            finally:
                server.shutdown()
                thread.join()
