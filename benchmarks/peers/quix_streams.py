"""Quix Streams as a peer, in a virtual environment of its own: it requires an older confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from benchmarks.harness.environments import python_with
from benchmarks.harness.process import Used, running
from benchmarks.harness.topics import committed_to_end, create_topic, end_offsets
from connectors.jvm.cache import default_cache

VERSION: Final = "3.28.1"
_PROGRAM: Final = Path(__file__).with_name("quix_latest.py")


class QuixStreams:
    """Keeps the latest value of each key in RocksDB and sends every record on; exactly once, otherwise defaults."""

    name = "Quix Streams"

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        python = quix_python(default_cache())
        group = f"quix-{uuid4().hex[:8]}"
        create_topic(bootstrap, f"{group}-out", len(end_offsets(bootstrap, topic)), "compact")
        arguments = [bootstrap, topic, f"{group}-out", group, str(folder / "state")]
        command = [str(python), str(_PROGRAM), *arguments]
        with running(command, folder / "quix.log") as started:
            return started.used(committed_to_end(bootstrap, group, topic))


def quix_python(cache: Path, install: Callable[[str, Path, Path], None] | None = None) -> Path:
    """Returns the Python of its environment below `cache`, which is made on first use.

    Raises:
        MissingError: it cannot be installed.
    """
    return python_with("quixstreams", VERSION, cache, install)
