"""Runs Iceberg's own REST catalog (its test fixture) on a free port, with its tables in an SQLite file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx

from connectors.dev.embedded_kafka import free_port
from connectors.jvm.java import find_java
from tests.support.fetched import dependency, ensure_jars, ivy_module
from tests.support.kafka import wait_until
from tests.support.stores.s3proxy import fingerprint

VERSION: Final = "1.11.0"
SHA256: Final = "b5ebc6f3869b5163504c075e02497a488d79eb34787eae27d094e9aeb1243320"
"""Of the list of all of its files, as `fingerprint` makes it."""
STARTED_S: Final = 60.0

_JETTY: Final = "12.1.9"
_MODULE: Final = ivy_module(
    "iceberg-rest",
    f"""<dependency org="org.apache.iceberg" name="iceberg-open-api" rev="{VERSION}" transitive="false">
      <artifact name="iceberg-open-api" type="jar" ext="jar" m:classifier="test-fixtures"/></dependency>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{VERSION}" conf="default->default">
      <artifact name="iceberg-core" type="jar" ext="jar"/>
      <artifact name="iceberg-core" type="jar" ext="jar" m:classifier="tests"/></dependency>""",
    dependency("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY),
    dependency("org.eclipse.jetty.compression", "jetty-compression-server", _JETTY),
    dependency("org.eclipse.jetty.compression", "jetty-compression-gzip", _JETTY),
    dependency("org.xerial", "sqlite-jdbc", "3.50.3.0"),
)
_OF_SPARK: Final = ("hadoop-client-", "log4j-api", "log4j-core", "log4j-slf4j2")
"""What the catalog needs besides, and PySpark has."""


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Runs one during the block, with its files in `folder`; gives its URL."""
    port = free_port()
    variables = {
        "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_REST_PORT": str(port),
    }
    classes = ":".join([f"{ensure_jars(f'iceberg-rest-{VERSION}', _MODULE, _check)}/*", *_jars_of_spark()])
    command = [find_java(), "-Xmx256m", "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "rest-catalog.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env={**os.environ, **variables})
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(url), "Iceberg's REST catalog answers", STARTED_S)
        yield url
    finally:
        process.kill()
        process.wait()


def _jars_of_spark() -> list[str]:
    spec = find_spec("pyspark")
    assert spec is not None
    places = list(spec.submodule_search_locations or [])
    return [str(jar) for place in places for name in _OF_SPARK for jar in Path(place, "jars").glob(f"{name}*.jar")]


def _check(folder: Path) -> None:
    assert fingerprint(folder) == SHA256, "the JARs are not those that are pinned here"


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/config", timeout=5.0).is_success
    except httpx.HTTPError:
        return False
