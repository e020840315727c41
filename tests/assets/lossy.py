"""A proxy in front of the catalog that loses answers: the catalog has accepted, and whoever asked never hears of it."""

import http.client
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_NOT_PASSED_ON = {"host", "connection", "transfer-encoding", "content-length", "date"}


class Lossy:
    """`drop` more answers to accepted commits are lost; `dropped` were."""

    def __init__(self, catalog: str) -> None:
        self._catalog = urlsplit(catalog).netloc
        self.drop = 0
        self.dropped = 0
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Pass a request on, and its answer back unless it is to be lost."""
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        connection = http.client.HTTPConnection(self._catalog, timeout=60)
        passed = {name: value for name, value in handler.headers.items() if name.lower() not in _NOT_PASSED_ON}
        connection.request(handler.command, handler.path, body, passed)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if b"add-commit" in body and response.status == 200 and self.drop:
            self.drop, self.dropped = self.drop - 1, self.dropped + 1
            handler.close_connection = True
            return
        handler.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _NOT_PASSED_ON:
                handler.send_header(name, value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


@contextmanager
def losing_answers_of(catalog: str) -> Generator[Lossy]:
    """Start the proxy."""
    lossy = Lossy(catalog)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

        def do_GET(self) -> None:
            lossy.answer(self)

        def do_POST(self) -> None:
            lossy.answer(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    lossy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield lossy
    server.shutdown()
    server.server_close()
