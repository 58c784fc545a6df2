"""An Iceberg catalog over REST on 127.0.0.1, with an SQL catalog behind it: what a worker needs of the protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import CommitTableRequest, Table

from tests.support.echo_server import serving

_UNSET = {"location": None, "partition-spec": None, "write-order": None}


@contextmanager
def iceberg_rest(
    folder: Path, token: str, issued: Mapping[str, str], altered: Callable[[Any], Any] = lambda answer: answer
) -> Iterator[str]:
    """Gives its URL. It issues `token` for any login and wants it back; each table comes with the config `issued`.

    `altered` makes what is answered of what should be, about a table and to the first question.
    """
    address = {"uri": f"sqlite:///{folder}/rest.db", "warehouse": f"file://{folder}/warehouse"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, answer = 200, self.answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            except NoSuchTableError as error:
                status, answer = 404, {"error": {"message": str(error), "type": "NoSuchTable", "code": 404}}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815  # BaseHTTPRequestHandler finds it by the method

        def answer(self, body: bytes) -> Any:
            path = self.path.partition("?")[0].split("/")[2:]
            if path[0] == "oauth":
                return {"access_token": token, "token_type": "bearer"}
            assert self.headers["Authorization"] == f"Bearer {token}"
            if path[0] == "config":
                return altered({"defaults": {}, "overrides": {}})
            catalog = load_catalog("behind", type="sql", **address)
            if path[2:3] != ["tables"]:
                return _namespace(catalog, body)
            table = _table(catalog, path[1], path[3:], body)
            metadata = json.loads(table.metadata.model_dump_json())
            answer = {"metadata-location": table.metadata_location, "metadata": metadata, "config": dict(issued)}
            return altered(answer)

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    with serving(Handler) as url:
        yield url


def _namespace(catalog: Catalog, body: bytes) -> Any:
    name = json.loads(body)["namespace"] if body else ["c"]
    catalog.create_namespace_if_not_exists(tuple(name))
    return {"namespace": name, "properties": {}}


def _table(catalog: Catalog, namespace: str, names: list[str], body: bytes) -> Table:
    if not names:
        made = CreateTableRequest.model_validate({**_UNSET, **json.loads(body)})
        return catalog.create_table((namespace, made.name), made.table_schema, properties=made.properties)
    table = catalog.load_table((namespace, *names))
    if body:
        changes = CommitTableRequest.model_validate_json(body)
        catalog.commit_table(table, changes.requirements, changes.updates)
        table = table.refresh()
    return table
