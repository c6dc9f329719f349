"""A server that gives prepared answers."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple
from unittest import TestCase

# Time within which a server notices that its test has ended.
POLL_SECS = 0.01


class Arrived(NamedTuple):
    """A request that arrived."""

    method: str
    path: str
    key: str | None
    body: bytes


# Answers one request.
Answer = Callable[[BaseHTTPRequestHandler], None]


def scripted(test: TestCase, *answers: Answer) -> tuple[str, list[Arrived]]:
    """Gives one answer after the other, and repeats the last one. Returns its URL and the requests that arrived."""
    arrived: list[Arrived] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            answer = answers[min(len(arrived), len(answers) - 1)]
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            arrived.append(Arrived(self.command, self.path, self.headers.get("Idempotency-Key"), body))
            answer(self)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_request

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=[POLL_SECS], daemon=True).start()
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}", arrived


def answer(status: int, body: Any, **headers: str) -> Answer:
    """Answers with a text, or with JSON."""
    content = (body if isinstance(body, str) else json.dumps(body)).encode()

    def send(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return send


def problem(status: int, code: str, **headers: str) -> Answer:
    return answer(status, {"status": status, "code": code, "detail": "Detail.", "errors": []}, **headers)


def hang_up(request: BaseHTTPRequestHandler) -> None:
    """Closes the connection without an answer."""
    request.close_connection = True


def cut_off(request: BaseHTTPRequestHandler) -> None:
    """Closes the connection in the middle of the body."""
    request.send_response(200)
    request.send_header("Content-Length", "100")
    request.end_headers()
    request.wfile.write(b'{"payment_id":')
    request.close_connection = True
