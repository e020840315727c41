"""The HTTP application of `ratify hook`: it writes notifications into the folder that the sensor reads them from."""

import logging
import secrets

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ratify_lakehouse.ingest.discovery.notifications import MAX_BYTES, BadMessage, FolderQueue, created

_log = logging.getLogger(__name__)


def hook_app(queue: FolderQueue, token: str) -> Starlette:
    """Return the application: POST / answers 202 when the message is on the disk.

    It answers 401 without the token, 413 for more than `MAX_BYTES`, 400 for what is not a notification, and 503 when the
    message cannot be written; none of these is stored.
    """

    async def receive(request: Request) -> JSONResponse:
        given = request.headers.get("Authorization", "").encode()
        if not secrets.compare_digest(given, f"Bearer {token}".encode()):
            return _error(401, "send the token of the hook: Authorization: Bearer …")
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BYTES:
                return _error(413, f"a message has at most {MAX_BYTES} bytes")
        try:
            text = body.decode()
            created(text)
            name = await run_in_threadpool(queue.put, text)
        except (UnicodeDecodeError, BadMessage) as error:
            return _error(400, str(error))
        except OSError:
            _log.exception("the message cannot be stored")
            return _error(503, "the message cannot be stored at the moment: send it again later")
        return JSONResponse({"message": name}, 202)

    return Starlette(routes=[Route("/", receive, methods=["POST"])])


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
