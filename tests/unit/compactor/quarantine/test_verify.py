"""What damage costs to find: publishing waits for it, however many partitions a file holds."""

from __future__ import annotations

import io
import os
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from compactor.quarantine import verify
from compactor.storage.local import LocalStorage
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import row

PARTITIONS = 6


class Kills(LocalStorage):
    """A store of which to read some bytes ends any process but this one, as what reads Parquet may."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.owner = os.getpid()
        self.at = range(0)

    def open_input(self, path: str, size: int | None = None) -> Any:
        return (
            super().open_input(path, size) if os.getpid() == self.owner else _Trap(f"{self.location}/{path}", self.at)
        )


class _Trap(io.FileIO):
    def __init__(self, path: str, at: range) -> None:
        super().__init__(path)
        self._at = at

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def read(self, size: int | None = None) -> bytes:
        asked = self.size() if size is None else size
        if self.tell() < self._at.stop and self.tell() + asked > self._at.start:
            os._exit(1)
        return super().read(asked)


@pytest.fixture
def connector(tmp_path: Path) -> BrokerlessConnector:
    """Partitions that share a file, each in a row group of its own."""
    made = BrokerlessConnector(cast("Any", None), tmp_path, partitions=PARTITIONS)
    chance = random.Random(1)
    made.ingest([row(partition, 0, b"k", chance.randbytes(100_000)) for partition in range(PARTITIONS)])
    made.publish()
    return made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The processes that were started to read what is damaged."""
    found: list[object] = []

    class Counted(ProcessPoolExecutor):
        def __init__(self, *args: Any, **named: Any) -> None:
            found.append(self)
            super().__init__(*args, **named)

    monkeypatch.setattr(verify, "ProcessPoolExecutor", Counted)
    return found


def pages(connector: BrokerlessConnector) -> tuple[Path, list[range]]:
    """The one file, and where in it the values of each partition are."""
    (file,) = connector.log().runs[0].files
    path = Path(connector.storage.location) / file.path
    groups = pq.read_metadata(path)
    at = groups.schema.names.index("value")
    columns = [groups.row_group(group).column(at) for group in range(groups.num_row_groups)]
    return path, [range(one.data_page_offset, one.data_page_offset + one.total_compressed_size) for one in columns]


def damage(path: Path, at: range) -> None:
    data = bytearray(path.read_bytes())
    data[at[len(at) // 2]] ^= 1
    path.write_bytes(data)


def held(connector: BrokerlessConnector) -> list[int]:
    connector.quarantine.quarantine_damaged(connector.catalog.state.logs, verify.published_range, 0)
    return [log.partition for log in connector.catalog.state.logs if log.quarantine]


def test_one_process_reads_what_all_partitions_of_a_damaged_file_need(
    connector: BrokerlessConnector, started: list[object]
) -> None:
    """A thousand of them would otherwise be a thousand starts, and minutes in which nothing is published."""
    path, groups = pages(connector)
    damage(path, groups[2])
    assert held(connector) == [2]
    assert len(started) == 1
    damage(path, groups[2])
    connector.quarantine.recheck(120_000)
    assert not any(log.quarantine for log in connector.catalog.state.logs)


def test_a_file_that_ends_one_reader_after_the_other_is_given_up(
    connector: BrokerlessConnector, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read by then counts; for the rest no more processes are started."""
    monkeypatch.setattr(verify, "MAX_ENDED_READERS", 2)
    storage = Kills(connector.storage.location)
    path, groups = pages(connector)
    damage(path, groups[-1])
    storage.at = range(groups[1].start, groups[-2].stop)
    connector.storage = storage
    connector.restart()
    assert held(connector) == [*range(1, PARTITIONS)]
    assert len(started) == 2
    errors = [log.quarantine.error for log in connector.catalog.state.logs if log.quarantine]
    assert all("reading it ends the reader" in error for error in errors)
