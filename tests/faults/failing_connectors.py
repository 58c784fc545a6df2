"""Connectors that fail again and again beside those of a soak: what each start of theirs leaves would pile up."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from compactor.runs import paths
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic, produce

RECORDS: Final = 3_000
VALUE: Final = b"v" * 8_000
"""Records of this size fill a row group before all of them are read: a reader has some left when its store fails."""
_SETTINGS: Final[Mapping[str, Any]] = {
    "tasks.max": 1,
    "snapshot.location": "none",
    "restart.backoff.initial.ms": 500,
    "restart.backoff.max.ms": 1_000,
}


class FailingConnectors:
    """One whose schema registry is away, and one whose store takes no file, in the worker of `worker`."""

    def __init__(self, worker: Deployment) -> None:
        self._all = [_made(worker), _made(worker)]
        with socket.create_server(("127.0.0.1", 0)) as closed:
            url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        registry, store = self._all
        registry.settings |= {
            "compaction.key.identity": "avro",
            "key.converter": "keyfold.Avro",
            "key.converter.schema.registry.url": url,
        }
        store.settings["min.compaction.lag.ms"] = 1_000  # so that nothing is folded as it comes
        folder = Path(worker.worker["storage.location"]) / store.name
        folder.mkdir(parents=True)
        (folder / paths.RUNS).write_text("not a folder, so that no file can be made in it", encoding="utf-8")

    def files(self) -> list[str]:
        """Writes a connector file for each; returns their paths."""
        found = [(one.folder / f"{one.name}.json", one.settings) for one in self._all]
        for path, settings in found:
            path.write_text(json.dumps(settings), encoding="utf-8")
        return [str(path) for path, _ in found]

    def starts(self) -> list[int]:
        """Counts how often each was started."""
        return [one.state().epoch for one in self._all]


def _made(worker: Deployment) -> Deployment:
    topic = create_topic(worker.bootstrap, f"x-{uuid4().hex[:10]}", 1, cleanup_policy="delete")
    produce(worker.bootstrap, topic, [(0, b"\0\0\0\0\x01\x02k", VALUE)] * RECORDS)
    found = Deployment(worker.folder, worker.bootstrap, topic)
    found.settings |= _SETTINGS
    return found
