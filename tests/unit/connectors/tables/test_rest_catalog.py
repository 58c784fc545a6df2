"""What an Iceberg catalog answers is bounded, names no code, and its secrets are shown to nobody."""

from __future__ import annotations

import gc
import json
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from compactor.errors import SnapshotError
from connectors.config.secrets import is_secret, logged_text
from connectors.known_values import hide_all
from connectors.tables.metadata_bounds import METADATA_BYTES
from connectors.tables.rest_catalog import MOST_ISSUED, BoundedRestCatalog
from tests.support.echo_server import echo_server, serving
from tests.support.iceberg_rest import iceberg_rest
from tests.support.kafka import wait_until
from tests.support.tables import SCHEMA, Tables, row

AB = [row(0, "a"), row(1, "b")]
NO_CONFIG: dict[str, Any] = {"defaults": {}, "overrides": {}}


def tables_of(url: str, folder: Path, **properties: str) -> Tables:
    """Returns the tables of a connector with a REST catalog."""
    own = {"uri": url, "oauth2-server-uri": f"{url}/v1/oauth/tokens", "warehouse": f"file://{folder}/warehouse"}
    catalog = {"type": "rest", **own, **properties}
    return Tables("iceberg", folder, **{f"iceberg.catalog.{name}": text for name, text in catalog.items()})


def test_tables_are_committed_over_rest(tmp_path: Path) -> None:
    """With a login, a token that the catalog issues for it, and a first and a second version."""
    issued = {"s3.secret-access-key": "issued-with-the-table-8Xq1"}
    with iceberg_rest(tmp_path, "token-of-a-login-5Tz9", issued) as url:
        tables = tables_of(url, tmp_path, credential="id:secret-of-a-client")
        tables.commit(AB)
        tables.commit([row(1, "b"), row(2, "c")])
        catalog = BoundedRestCatalog(
            is_secret, "c", {"uri": url, "token": "token-of-a-login-5Tz9", "warehouse": f"file://{tmp_path}/warehouse"}
        )
        read = catalog.load_table(("c", "t")).scan().to_arrow().sort_by("_offset")
    assert read["name"].to_pylist() == ["b", "c"]
    assert hide_all("token-of-a-login-5Tz9 and issued-with-the-table-8Xq1") == "[hidden] and [hidden]"


ISSUES: dict[str, Callable[[str], dict[str, Any]]] = {
    "defaults": lambda secret: {"defaults": {"token": secret}, "overrides": {}},
    "overrides": lambda secret: {"defaults": {}, "overrides": {"credential": secret}},
    "a table's config": lambda secret: {"config": {"s3.secret-access-key": secret}, "metadata": {}},
    "its credentials": lambda secret: {
        "storage-credentials": [{"prefix": "s3://", "config": {"s3.session-token": secret}}]
    },
    "its properties": lambda secret: {"metadata": {"properties": {"adls.sas-token.account": secret}}},
    "a token": lambda secret: {"access_token": secret, "token_type": 7},
    "a token to go on with": lambda secret: {"refresh_token": secret, "access_token": ["no text"]},
}


@pytest.mark.parametrize(
    ("issue", "shape"),
    [
        *((issue, "aaaa{}opaque7") for issue in ISSUES),
        ("defaults", "lower-case-words-{}-of-a-token"),
        ("a token", "a{}/with+signs=&<9>"),
    ],
)
def test_what_a_catalog_issues_is_shown_to_nobody(issue: str, shape: str, tmp_path: Path) -> None:
    """It may stand in that answer's own fault, or be repeated by a later one as anything."""
    secret = shape.format("".join(word[0] for word in issue.split()) * 5)
    answers = iter([ISSUES[issue](secret)])

    def answer(path: str, _: Mapping[str, str]) -> tuple[int, bytes]:
        if "config" in path and issue not in ("defaults", "overrides"):
            return 200, json.dumps(NO_CONFIG).encode()
        refusal = {"error": {"message": f"no: {secret}", "type": "Refused", "code": 400}}
        issued = next(answers, None)
        return (400, json.dumps(refusal).encode()) if issued is None else (200, json.dumps(issued).encode())

    said = []
    with echo_server(answer) as url:
        login = {"credential": "id:of-a-client"} if "token" in issue else {}
        tables = tables_of(url, tmp_path, **login)
        for _ in range(2):
            with pytest.raises(SnapshotError) as caught:
                tables.commit(AB)
            said.append(caught.value.message + logged_text("".join(traceback.format_exception(caught.value))))
    assert not [text for text in said if secret[:8] in text or secret[-8:] in text], said
    assert "no: [hidden]" in said[1]


def test_an_answer_that_is_none_is_not_quoted(tmp_path: Path) -> None:
    """A page of whatever answers there may have anything in it."""
    with echo_server(lambda *_: (502, b"<html>page-of-a-proxy</html>")) as url, pytest.raises(SnapshotError) as caught:
        tables_of(url, tmp_path).commit(AB)
    assert "ServerError" in caught.value.message
    assert "page-of" not in caught.value.message


class _Endless(BaseHTTPRequestHandler):
    """Answers with blanks, without end."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        blanks = b" " * (1 << 16)
        try:
            while True:
                self.wfile.write(blanks)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


class _Dripping(_Endless):
    """Sends a header every now and then, without end."""

    def do_GET(self) -> None:
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                self.wfile.write(b"x: y\r\n")
                threading.Event().wait(0.01)
        except OSError:
            self.close_connection = True


def test_an_answer_is_read_to_its_bound(tmp_path: Path) -> None:
    """What is larger is none: the memory of a worker is not the catalog's."""
    with serving(_Endless) as url, pytest.raises(SnapshotError, match=f"it is larger than {METADATA_BYTES} bytes"):
        tables_of(url, tmp_path).commit(AB)


@pytest.mark.parametrize("values", [b"0," * 200_000, b"[" * 35_000 + b"]" * 35_000 + b",", b'{"a":1},' * 70_000])
def test_the_values_of_an_answer_are_bounded(values: bytes, tmp_path: Path) -> None:
    """To read many small ones takes far longer than their bytes say, and holds up all threads."""
    many = b'{"defaults": {"a": [' + values + b'[]]}, "overrides": {"b": {}}}'
    with echo_server(lambda *_: (200, many)) as url, pytest.raises(SnapshotError, match="more values than a catalog's"):
        tables_of(url, tmp_path).commit(AB)


def test_an_answer_that_drips_is_given_up_in_time() -> None:
    """Each of its bytes would come in time; no thread waits for it afterwards."""
    with serving(_Dripping) as url:
        began = time.monotonic()
        with pytest.raises(httpx.ReadTimeout):
            BoundedRestCatalog(is_secret, "c", {"uri": url}, seconds=0.3)
        assert time.monotonic() - began < 5
        asking = {thread for thread in threading.enumerate() if thread.name == "http-request"}
        wait_until(lambda: not any(thread.is_alive() for thread in asking), "its thread ends", 10)


def test_connections_end_with_what_needs_them(tmp_path: Path) -> None:
    """Each commit has a catalog of its own, and Python's collector may not come for hours."""
    with iceberg_rest(tmp_path, "token", {}) as url:
        catalog = BoundedRestCatalog(is_secret, "c", {"uri": url, "token": "token"})
        catalog.create_namespace_if_not_exists("c")
        here = weakref.ref(catalog)
        gc.collect()
        gc.disable()
        try:
            del catalog
            assert here() is None
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "secrets", [{f"token-{number}": "x" for number in range(MOST_ISSUED + 1)}, {"token": "x" * (17 << 10)}]
)
def test_what_is_issued_is_bounded(secrets: dict[str, str]) -> None:
    """All of it is to be hidden, and more of it is no catalog's."""
    answer = json.dumps({"defaults": secrets, "overrides": {}}).encode()
    with echo_server(lambda *_: (200, answer)) as url, pytest.raises(ValueError, match="it issues more than 100"):
        BoundedRestCatalog(is_secret, "c", {"uri": url})


def test_a_redirection_is_not_followed(tmp_path: Path) -> None:
    """What is sent, and what comes back, is between the worker and the address that its operator has named."""
    asked: list[str] = []

    def answer(path: str, _: Mapping[str, str]) -> tuple[int, bytes, Mapping[str, str]]:
        asked.append(path)
        return 302, b"", {"Location": "/elsewhere"}

    with echo_server(answer) as url, pytest.raises(SnapshotError, match="it answers 302"):
        tables_of(url, tmp_path).commit(AB)
    assert [path for path in asked if "elsewhere" in path] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auth", {"type": "custom", "impl": "tests.support.tables.Tables"}),
        ("py-io-impl", "tests.support.tables.Tables"),
        ("ssl", {"cabundle": "/etc/passwd"}),
    ],
)
def test_an_answer_names_no_code_and_no_file(name: str, value: object, tmp_path: Path) -> None:
    """The library would import the class and call it; the operator's file may not name one either."""
    issued = {} if name != "py-io-impl" else {name: str(value)}
    with iceberg_rest(tmp_path, "token", issued) as url:

        class Overriding(BoundedRestCatalog):
            def answer_to(self, *asked: Any) -> Any:
                answer = super().answer_to(*asked)
                is_config = "/v1/config" in asked[0].url
                body = json.dumps({"defaults": {}, "overrides": {name: value}}).encode()
                return type(answer)(200, body) if is_config else answer

        catalog = Overriding(is_secret, "c", {"uri": url, "token": "token"})
        catalog.create_namespace_if_not_exists("c")
        assert catalog.create_table(("c", "t"), SCHEMA).io is not None
    assert name not in catalog.properties
