"""An S3 server in this process (moto), with one bucket; everything is in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from moto.server import ThreadedMotoServer

from tests.support.stores.running import BUCKET, RunningStore, s3_keys


@contextmanager
def moto_server() -> Iterator[RunningStore]:
    """Runs one during the block."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").disabled = True  # a line for each request
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        httpx.put(f"{url}/{BUCKET}").raise_for_status()
        yield RunningStore("moto", url, f"s3://{BUCKET}", s3_keys)
    finally:
        server.stop()
