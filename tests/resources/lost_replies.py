"""A proxy before a catalog that passes commits on and keeps the answers, as a network may do at the worst moment."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx

ALL = 1_000_000


@dataclass
class LostReplies:
    """`lose` more answers to accepted commits are kept back; `lost` were."""

    url: str = ""
    lose: int = ALL
    lost: int = 0


@contextmanager
def lost_replies(url: str) -> Generator[LostReplies]:
    """Run such a proxy before the catalog at `url`."""
    state = LostReplies()
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                answer = client.request(self.command, self.path, content=body, headers=headers)
                if b"add-commit" in body and answer.status_code == httpx.codes.OK and state.lost < state.lose:
                    state.lost += 1
                    self.close_connection = True
                    return
                self.send_response(answer.status_code)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.send_header("Content-Length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            # Names that http.server looks for.
            do_GET = do_POST = do_HEAD = do_DELETE = pass_on  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing: the test reports failures."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            state.url = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever)
            thread.start()
            try:
                yield state
            finally:
                server.shutdown()
                thread.join()
