"""Runs S3Proxy 4.1.0, an S3 server in Java, on a free port of this machine, with its objects in memory."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from connectors.dev.embedded_kafka import free_port
from connectors.jvm.java import find_java
from tests.support.fetched import dependency, ensure_jars, ivy_module
from tests.support.kafka import wait_until
from tests.support.stores.running import BUCKET, RunningStore, has_bucket, s3_keys

VERSION: Final = "4.1.0"
SHA256: Final = "1cfd2e2f9408463bc71aa2dd0d6bcd544e1798fba7aed6706990d59ed13ac128"
"""Of the list of all of its files, as `fingerprint` makes it."""
STARTED_S: Final = 60.0

_IVY_MODULE: Final = ivy_module("s3proxy", dependency("org.gaul", "s3proxy", VERSION))
_LOG: Final = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %level %logger %msg%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""  # noqa: E501 - XML


def ensure_s3proxy() -> Path:
    """Returns the folder with its JARs, which are fetched from Maven now (57 MB) where they are not there."""
    return ensure_jars(f"s3proxy-{VERSION}", _IVY_MODULE, _check)


def _check(folder: Path) -> None:
    assert fingerprint(folder) == SHA256, "the JARs are not those that are pinned here"


def fingerprint(folder: Path) -> str:
    """Returns the SHA-256 of the names and SHA-256 of all files in `folder`."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@contextmanager
def s3proxy(folder: Path) -> Iterator[RunningStore]:
    """Runs one during the block; its settings and its log are in `folder`."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings, logback = folder / "s3proxy.properties", folder / "logback.xml"
    settings.write_text(
        f"s3proxy.endpoint={url}\ns3proxy.authorization=none\njclouds.provider=transient-nio2\n"
        "jclouds.identity=x\njclouds.credential=x\n",
        encoding="utf-8",
    )
    logback.write_text(_LOG, encoding="utf-8")
    classes, main = f"{ensure_s3proxy()}/*", "org.gaul.s3proxy.Main"
    options = ["-Xmx512m", f"-Dlogback.configurationFile={logback}", "-cp", classes]
    with (folder / "s3proxy.log").open("ab") as log:
        process = subprocess.Popen(
            [find_java(), *options, main, "--properties", str(settings)], stdout=log, stderr=log, cwd=folder
        )
    try:
        wait_until(lambda: has_bucket(url), "S3Proxy answers", STARTED_S)
        yield RunningStore("s3proxy", url, f"s3://{BUCKET}", s3_keys)
    finally:
        process.kill()
        process.wait()
