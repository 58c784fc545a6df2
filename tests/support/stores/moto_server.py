"""A server of S3 and Glue (moto), with one bucket; everything is in its memory.

It is a process of its own: a library that waits for an answer may hold Python's lock meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from connectors.dev.embedded_kafka import free_port
from tests.support.kafka import wait_until
from tests.support.stores.running import BUCKET, RunningStore, has_bucket, s3_keys

STARTED_S: Final = 60.0


@contextmanager
def moto_server() -> Iterator[RunningStore]:
    """Runs one during the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: has_bucket(url), "moto answers", STARTED_S)
        yield RunningStore("moto", url, f"s3://{BUCKET}", s3_keys)
    finally:
        process.kill()
        process.wait()
