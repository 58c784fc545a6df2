"""A server on 127.0.0.1 that repeats what it was asked: each answer is made of the request's path and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = Callable[[str, Mapping[str, str]], tuple[int, bytes] | tuple[int, bytes, Mapping[str, str]]]
"""Makes the status and the body of an answer, and its headers if it has others, of a request's path and headers."""


@contextmanager
def echo_server(answer: Answer) -> Iterator[str]:
    """Gives the URL of a server that answers with `answer` during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body, *headers = answer(self.path, dict(self.headers))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers[0] if headers else {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_POST = do_HEAD = do_GET  # noqa: N815  # BaseHTTPRequestHandler finds it by the method

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with serving(Handler) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Gives the URL of a server that answers by `handler` during the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # how often it looks for its end
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
