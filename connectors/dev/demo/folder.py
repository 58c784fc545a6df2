"""Makes the demo's folder, which holds everything that the demo leaves and is emptied by the next run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from connectors.errors import ConfigError

_CONFIGS: Final = Path(__file__).parents[3] / "configs"
_MARKER: Final = ".keyfold-demo"


class DemoFolder:
    """Names the demo's files and folders below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.kafka = self.root / "kafka"
        self.worker_file = self.root / "worker.json"
        self.connector_file = self.root / "flights.json"
        self.storage = self.root / "storage"
        self.snapshots = self.root / "snapshots"
        self.database = self.root / "flights.duckdb"

    def make_anew(self) -> None:
        """Removes what an earlier demo left; ConfigError for a folder that holds anything else."""
        if self.root.exists() and any(self.root.iterdir()) and not (self.root / _MARKER).exists():
            raise ConfigError(
                f"{shown(self.root)} is not empty, and no demo made it; nothing was removed.", "Give another --dir."
            )
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        (self.root / _MARKER).touch()

    def write_files(self, bootstrap: str, configs: Path = _CONFIGS) -> None:
        """Writes worker and connector file of `configs`, with this folder's places and the broker's address."""
        places = {"bootstrap.servers": bootstrap, "storage.location": str(self.storage)}
        _write(self.worker_file, {**_config(configs / "worker.json"), **places})
        _write(self.connector_file, {**_config(configs / "flights.json"), "snapshot.location": str(self.snapshots)})


def shown(path: Path) -> str:
    """Returns `path` as a person types it: relative if it is below the current folder."""
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path)


def _config(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"The demo's file {file} is not there: a keyfold that pip has copied comes without it.",
            "Run `make demo` in a clone of keyfold.",
        ) from None
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
