"""Runs Apicurio Registry 3.0.9 on a free port of this machine, with its schemas in memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import httpx

from connectors.dev.embedded_kafka import free_port
from connectors.jvm.java import find_java
from tests.support.fetched import ensure_unpacked, ivy_module
from tests.support.kafka import wait_until

VERSION: Final = "3.0.9"
SHA256: Final = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
STARTED_S: Final = 90.0
_NAME: Final = "apicurio-registry-app"
_MODULE: Final = ivy_module(
    "apicurio",
    f"""<dependency org="io.apicurio" name="{_NAME}" rev="{VERSION}" conf="default->default" transitive="false">
      <artifact name="{_NAME}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>""",
)
_SETTINGS: Final = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
"""Maven Central, without the POM of a module: that of this one names a parent that was never released."""


def ensure_apicurio() -> Path:
    """Returns the folder with the registry, which is fetched now (109 MB) where it is not there."""
    return ensure_unpacked(f"apicurio-{VERSION}", _MODULE, SHA256, _SETTINGS)


class Apicurio:
    """A registry; `url` is that of its Confluent-compatible REST interface."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._log = folder / "apicurio.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it answers as Confluent's registry does."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> Self:
        """Starts it, empty, and waits until it answers."""
        home = ensure_apicurio()
        command = [
            find_java(), "-Xmx256m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}",
            "-jar", f"{_NAME}-{VERSION}-runner.jar",
        ]  # fmt: skip
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log, env=dict(os.environ))
        wait_until(self._answers, "Apicurio Registry answers", STARTED_S)
        return self

    def stop(self) -> None:
        """Ends it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Asks it something, for a test."""
        return httpx.request(method, self.url + path, json=body, timeout=10.0)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=2.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False


@contextmanager
def apicurio(folder: Path) -> Iterator[Apicurio]:
    """Runs one during the block."""
    registry = Apicurio(folder)
    try:
        yield registry.start()
    finally:
        registry.stop()
