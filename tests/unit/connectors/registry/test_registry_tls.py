"""A registry behind TLS is asked with the certificates that a file names, and its own where it asks for one."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from connectors.errors import RegistryError
from connectors.options import OptionsError, read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import OPTIONS, registry_settings
from tests.support.certificates import certificate
from tests.support.clocks import ManualClock

TRUST = "schema.registry.ssl.truststore.location"
KEYSTORE = "schema.registry.ssl.keystore.location"


class Answer(BaseHTTPRequestHandler):
    """Answers every question with one schema."""

    def do_GET(self) -> None:  # its name there
        """Answers."""
        body = json.dumps({"schema": '"string"'}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def served(key: Path, own: Path, clients: Path | None = None) -> Iterator[str]:
    """Yields the address of a registry with this certificate, which asks for one of `clients`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, key)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    server = HTTPServer(("127.0.0.1", 0), Answer)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that breaks off is what is tested
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(url: str, **texts: str) -> str:
    """Asks for a schema, and returns its text."""
    settings = registry_settings(read(OPTIONS, {"schema.registry.url": url, **texts}))
    registry = SchemaRegistry(settings, clock=ManualClock())
    try:
        return registry.schema(1).text
    finally:
        registry.close()


def test_a_registry_with_a_certificate_of_its_own_is_trusted_where_the_file_says_so(tmp_path: Path) -> None:
    """Otherwise it does not answer: nobody knows who it is."""
    key, own = certificate(tmp_path, "registry")
    with served(key, own) as url:
        assert asked(url, **{TRUST: str(own)}) == '"string"'
        with pytest.raises(RegistryError, match="does not answer"):
            asked(url)


@pytest.mark.parametrize("variable", ["ALL_PROXY", "HTTPS_PROXY", "https_proxy"])
def test_a_registry_is_asked_without_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """As Java's clients ask it; nothing listens at this proxy. Certificates of the environment count."""
    key, own = certificate(tmp_path, "registry")
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    with served(key, own) as url:
        assert asked(url) == '"string"'


def test_a_registry_is_asked_through_the_proxy_that_is_named() -> None:
    """By Confluent's names; both belong together."""
    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = Thread(target=server.handle_request, daemon=True)
    thread.start()
    try:
        assert asked("http://registry.invalid", **{"proxy.host": "127.0.0.1", "proxy.port": str(server.server_port)})
    finally:
        thread.join(10)
        server.server_close()
    with pytest.raises(OptionsError, match="together"):
        asked("http://registry.invalid", **{"proxy.host": "127.0.0.1"})


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    """The one of the keystore, with its key in the same file."""
    key, own = certificate(tmp_path, "registry")
    client_key, client = certificate(tmp_path, "client")
    both = tmp_path / "both.pem"
    both.write_bytes(client.read_bytes() + client_key.read_bytes())
    with served(key, own, clients=client) as url:
        assert asked(url, **{TRUST: str(own), KEYSTORE: str(both)}) == '"string"'
        with pytest.raises(RegistryError, match="does not answer"):
            asked(url, **{TRUST: str(own)})


def test_a_certificate_without_its_key_is_refused_before_a_start(tmp_path: Path) -> None:
    """On the keystore's key."""
    _, own = certificate(tmp_path, "client")
    texts = {"schema.registry.url": "https://a:1", KEYSTORE: str(own)}
    with pytest.raises(OptionsError) as caught:
        registry_settings(read(OPTIONS, texts))
    assert [name for name, _ in caught.value.faults] == [KEYSTORE]
