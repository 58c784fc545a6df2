"""An S3 server in this process (moto), with one bucket; everything is in memory."""

from __future__ import annotations

import httpx
from moto.server import ThreadedMotoServer

from compactor.storage.locations import StoreOptions

BUCKET = "keyfold-tests"


class MotoServer:
    """The server; `url` is its endpoint."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        httpx.put(f"{self.url}/{BUCKET}").raise_for_status()

    def options(self, url: str | None = None) -> StoreOptions:
        """Returns how it is reached, at `url` where a proxy is in between."""
        found = {"endpoint": url or self.url, "region": "us-east-1", "access_key_id": "k", "secret_access_key": "s"}
        return StoreOptions(s3=found, allow_http=frozenset({"s3"}))

    def stop(self) -> None:
        """Ends it."""
        self._server.stop()
