"""A data directory of `keyfold kafka` belongs to one broker at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compactor.catalog import owner_lock
from compactor.storage.local import LocalStorage
from connectors.dev import embedded_kafka as embedded
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_CONFIG, ConfigError, exit_code


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the directory comes no further than to its first file."""

    def fails(*_: object) -> None:
        raise OSError("no Java")

    monkeypatch.setattr(embedded, "write_files", fails)


def test_a_second_broker_does_not_touch_the_directory_of_a_live_one(tmp_path: Path) -> None:
    """It names the directory and the process, and leaves every file as it is; the exit code is 3."""
    first = owner_lock.OwnerLock(LocalStorage(str(tmp_path)))
    assert first.claim(owner_lock.this_process())
    try:
        with pytest.raises(ConfigError) as raised:
            EmbeddedKafka(tmp_path).start()
    finally:
        first.release()
    assert str(tmp_path) in raised.value.message
    assert str(os.getpid()) in raised.value.message
    assert "--data-dir" in raised.value.action
    assert exit_code(raised.value) == EXIT_CONFIG
    assert [path.name for path in tmp_path.iterdir()] == [owner_lock.NAME]


def test_a_start_that_fails_gives_the_directory_back(tmp_path: Path) -> None:
    """The next one takes it."""
    for _ in range(2):
        with pytest.raises(OSError, match="no Java"):
            EmbeddedKafka(tmp_path).start()
