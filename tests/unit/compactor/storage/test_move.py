"""A connector's folder that is copied into a bucket, or out of one, as docs/operating.md says: it goes on there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import pytest
from msgspec.structs import replace

from compactor.catalog.owner_lock import OwnerLock, live_owner, this_process
from compactor.model.log import BASE
from compactor.storage.base import Storage
from compactor.storage.limits import StoreTimes
from compactor.storage.local import LocalStorage
from compactor.storage.locations import open_storage
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import row
from tests.support.local_spark import LocalSpark
from tests.support.stores.running import BUCKET, RunningStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(moto: RunningStore) -> RunningStore:
    return moto


def copied(store: RunningStore, folder: Path, prefix: str) -> Storage:
    """Copies each file as a tool of the store does: its bytes, and nothing else."""
    for file in folder.rglob("*"):
        if file.is_file():
            target = f"{store.url}/{BUCKET}/{prefix}/{file.relative_to(folder)}"
            httpx.put(target, content=file.read_bytes()).raise_for_status()
    return open_storage(f"{store.location}/{prefix}", store.options())


def copied_back(source: Storage, folder: Path) -> Storage:
    """Copies each object into a file of its name."""
    for info in source.walk(""):
        file = folder / info.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source.read(info.path))
    return LocalStorage(str(folder))


def test_a_copied_folder_goes_on_in_a_bucket_and_back(store: RunningStore, tmp_path: Path) -> None:
    """What was taken in before and after each move is there; a lock that came along ends by itself."""
    connector = BrokerlessConnector(cast("SparkSession", LocalSpark()), tmp_path / "first")
    lock = OwnerLock(connector.storage)
    assert lock.claim(this_process(1))
    for step, key in enumerate((b"a", b"b", b"a")):
        connector.ingest([row(0, step, key, b"%d" % step)])
        connector.publish()
        connector.cleaner.clean(0)
        if step == 0:
            bucket = copied(store, tmp_path / "first", "moved/c")
            assert live_owner(bucket) is not None
            later = replace(store.options(), times=StoreTimes(lease_ms=-1))
            assert live_owner(open_storage(f"{store.location}/moved/c", later)) is None
            connector.storage = bucket  # type: ignore[assignment]
        elif step == 1:
            connector.storage = cast("LocalStorage", copied_back(connector.storage, tmp_path / "second"))
        connector.restart()
    assert connector.rows() == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert [run.level for run in connector.log().runs] in ([], [BASE])
    assert connector.catalog.epoch == 4
