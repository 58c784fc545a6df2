"""A worker that listens, as a process on the session's broker, and a client of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment, Process
from tests.support.kafka import wait_until

TIMEOUT_S = 30.0


class RestProcess(Process):
    """`keyfold run --worker worker.json` in `folder`: a worker without connector files, unless `files` are named."""

    def __init__(self, folder: Path, bootstrap: str, files: Iterable[Path] = (), **settings: Any) -> None:
        worker = folder / "worker.json"
        own = {"listeners": "http://127.0.0.1:0"}
        worker.write_text(json.dumps({**Deployment(folder, bootstrap, "none").worker, **own, **settings}))
        named = [str(path) for path in files]
        log = folder / "worker.log"
        self._seen = len(log.read_text()) if log.exists() else 0
        super().__init__(["run", *named, "--worker", str(worker)], log, {})
        self.url = ""
        self.client = httpx.Client()

    def __enter__(self) -> Self:
        wait_until(self._is_listening, "the worker listens", PROCESS_TIMEOUT_S)
        self.client = httpx.Client(base_url=self.url, timeout=TIMEOUT_S)
        wait_until(lambda: self.ask("GET", "/health").status_code == 200, "the worker is healthy", PROCESS_TIMEOUT_S)
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        super().__exit__(*exc)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Sends a request."""
        return self.client.request(method, path, **more)

    def create(self, deployment: Deployment, **more: Any) -> httpx.Response:
        """Makes the connector of `deployment` over REST."""
        config = {key: value for key, value in deployment.settings.items() if key != "name"}
        return self.ask("POST", "/connectors", json={"name": deployment.name, "config": config, **more})

    def state(self, name: str) -> str:
        """Returns the state of a connector, "" where there is none."""
        found = self.ask("GET", f"/connectors/{name}/status")
        return str(found.json()["connector"]["state"]) if found.status_code == 200 else ""

    def until_state(self, name: str, state: str) -> None:
        """Waits until a connector is in `state`."""
        wait_until(lambda: self.state(name) == state, f"{name} is {state}", PROCESS_TIMEOUT_S)

    def _is_listening(self) -> bool:
        said = re.search(r"listening on (http\S+)", self.printed()[self._seen :])
        self.url = said[1] if said else ""
        assert said or self.process.poll() is None, f"the worker has ended:\n{self.tail()}"
        return bool(self.url)
