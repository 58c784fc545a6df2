"""A schema registry in memory: the part of Confluent's REST interface that keyfold asks, over httpx's mock transport.

It is a mock: tests/registry holds the same converters against Apicurio Registry itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any
from urllib.parse import unquote

import httpx

from tests.support.echo_server import serving


class MemoryRegistry(httpx.BaseTransport):
    """Keeps schemas by id and by subject; `asked` has the paths of all requests.

    `fails` answers next, each once; `always` answers every request while it is set.
    """

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        # The ids of schemas by Confluent's GUID, and by Apicurio's globalId; empty: that is the id itself.
        self.guids: dict[str, int] = {}
        self.global_ids: dict[int, int] = {}
        self.fails: list[httpx.Response | httpx.TransportError] = []
        self.always: httpx.Response | None = None
        self.asked: list[str] = []
        self.requests: list[httpx.Request] = []

    def add(self, schema: Any, subject: str = "s", **more: Any) -> int:
        """Registers a schema, and returns its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._register(subject, {"schema": text, **more})

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers, as httpx asks it."""
        path = request.url.raw_path.decode().partition("?")[0].removeprefix("/apis/ccompat/v7")
        self.asked.append(f"{request.method} {path}")
        self.requests.append(request)
        if self.fails:
            failure = self.fails.pop(0)
            if isinstance(failure, httpx.TransportError):
                raise failure
            return failure
        if self.always is not None:
            return self.always
        parts = [unquote(one) for one in path.split("/")[1:]]
        if parts[-1] == "meta" and request.headers["Content-Type"] == "application/json":
            json.loads(request.content)
        return self._answer(request.method, parts, request.content)

    def _answer(self, method: str, path: list[str], content: bytes) -> httpx.Response:
        match method, path:
            case "GET", ["schemas", *rest]:
                return self._schemas_answer(rest)
            case _, ["apis", "registry", "v2", *rest]:
                return self._own_answer(method, rest, content)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                return httpx.Response(200, json={"id": self._register(subject, json.loads(content))})
            case "POST", ["subjects", subject]:
                body = json.loads(content)
                ids = [one for one in self.subjects.get(subject, []) if self.schemas[one - 1] == body]
                return httpx.Response(200, json={"id": ids[0]}) if ids else _error(404, 40403, "Schema not found")
        return _error(404, 404, "HTTP 404 Not Found")

    def _schemas_answer(self, path: list[str]) -> httpx.Response:
        """Answers with a schema by its id or GUID, or with the kinds of schemas."""
        match path:
            case ["ids", number] if int(number) <= len(self.schemas):
                return httpx.Response(200, json=self.schemas[int(number) - 1])
            case ["guids", guid] if guid in self.guids:
                return httpx.Response(200, json=self.schemas[self.guids[guid] - 1])
            case ["types"]:
                return httpx.Response(200, json=["AVRO", "JSON", "PROTOBUF"])
        return _error(404, 40403, "Schema not found")

    def _own_answer(self, method: str, path: list[str], content: bytes) -> httpx.Response:
        """Answers as Apicurio's own interface does."""
        match method, path:
            case "GET", ["ids", "globalIds", number, *more] if (at := self._of_global(int(number))) is not None:
                schema = self.schemas[at - 1]
                references = [
                    {"artifactId": each["subject"], "version": str(each["version"]), "name": each["name"]}
                    for each in schema.get("references", [])
                ]
                return httpx.Response(200, json=references) if more else httpx.Response(200, text=schema["schema"])
            case "POST", ["groups", "default", "artifacts", _, "meta"]:
                for global_id, content_id in self.global_ids.items():
                    if self.schemas[content_id - 1]["schema"] == content.decode():
                        return httpx.Response(200, json={"globalId": global_id, "contentId": content_id})
        return _error(404, 404, "No artifact was found.", name="ArtifactNotFoundException")

    def _of_global(self, global_id: int) -> int | None:
        if self.global_ids:
            return self.global_ids.get(global_id)
        return global_id if 0 < global_id <= len(self.schemas) else None

    def _version(self, subject: str, version: str) -> httpx.Response:
        ids = self.subjects.get(subject, [])
        if not ids or (version != "latest" and int(version) > len(ids)):
            return _error(404, 40402 if ids else 40401, "Version not found" if ids else "Subject not found")
        found = ids[-1] if version == "latest" else ids[int(version) - 1]
        return httpx.Response(200, json={"id": found, "subject": subject, **self.schemas[found - 1]})

    def _register(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        found = self.schemas.index(schema) + 1
        ids = self.subjects.setdefault(subject, [])
        if found not in ids:
            ids.append(found)
            if self.global_ids:  # Apicurio gives each version of each subject one
                self.global_ids[max(self.global_ids) + 1] = found
        return found


def _error(status: int, code: int, text: str, **more: str) -> httpx.Response:
    return httpx.Response(status, json={"error_code": code, "message": text, **more})


@contextmanager
def served(memory: MemoryRegistry) -> Iterator[str]:
    """Answers over HTTP what `memory` answers, and yields the address; one request at a time."""
    lock = Lock()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Says nothing."""

        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                answer = memory.handle_request(httpx.Request(self.command, f"http://a{self.path}", content=content))
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

    with serving(Answer) as url:
        yield url
