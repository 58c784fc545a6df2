"""Every case that a Storage has to pass, over each store: those of test_storage.py, and those of a store that fails."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.storage.limits import StoreTimes
from compactor.storage.locations import open_storage
from compactor.storage.object_store import ObjectStorage
from tests.support.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.stores.running import RunningStore
from tests.unit.compactor.storage import test_object_store, test_storage

times = test_object_store.times


@pytest.fixture
def proxy(store: RunningStore) -> Iterator[FaultyProxy]:
    """A proxy before the store, without faults at first."""
    with faulty_proxy(store.url) as running:
        yield running


@pytest.fixture
def storage(store: RunningStore, proxy: FaultyProxy, times: StoreTimes) -> ObjectStorage:
    """A new folder of the store, through the proxy."""
    options = replace(store.options(proxy.url), times=times)
    opened = open_storage(f"{store.location}/{secrets.token_hex(8)}", options)
    assert isinstance(opened, ObjectStorage)
    return opened


def _cases(module: ModuleType) -> dict[str, Any]:
    """Returns the tests of `module` that take any storage, or a running store, by name."""
    found = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    return {
        name: test for name, test in found.items() if {"storage", "store"} & inspect.signature(test).parameters.keys()
    }


globals().update(_cases(test_storage) | _cases(test_object_store))
