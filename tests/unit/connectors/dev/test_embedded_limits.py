"""A broker that ended at a limit of its machine: the error names the limit, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import UnreachableError

FILES = "java.nio.file.FileSystemException: data/t-1/00000000000000000000.log: Too many open files"
MAPS = "java.io.IOException: Map failed"
HEAP = "java.lang.OutOfMemoryError: Java heap space"
OTHER = "java.lang.IllegalStateException: something else"


@pytest.mark.parametrize(
    ("line", "words"),
    [(FILES, "limit of open files"), (MAPS, "limit of memory maps"), (HEAP, "heap is full"), (OTHER, "Read its log")],
)
def test_the_error_names_the_limit(tmp_path: Path, line: str, words: str) -> None:
    """Lines as Kafka 4.3 logs them; they need not be the last ones."""
    broker = ended(tmp_path, [line, *("\tat kafka.log.LogManager" for _ in range(40))])
    with pytest.raises(UnreachableError, match=words):
        broker.require_running()


def test_lines_that_name_every_partition_are_cut_off(tmp_path: Path) -> None:
    """A broker with thousands of them writes lines of as many names when it ends."""
    broker = ended(tmp_path, [f"Removed fetcher for {'many-1, ' * 5_000}"] * 20)
    with pytest.raises(UnreachableError) as caught:
        broker.require_running()
    assert "Removed fetcher for many-1" in str(caught.value)
    assert len(str(caught.value)) < 10_000


def ended(folder: Path, lines: list[str]) -> EmbeddedKafka:
    """Returns a broker that does not run and has logged `lines`."""
    broker = EmbeddedKafka(folder)
    broker.log_file.write_text("\n".join(lines), encoding="utf-8")
    return broker
