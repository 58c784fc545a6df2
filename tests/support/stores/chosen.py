"""The object store on which workers of tests keep their files, chosen by environment variables; folders otherwise.

STORE         moto, s3proxy or azurite, which `make stores` fetches
STORE_FAULTS  what workers see of it: 503 (to a tenth of all requests), lost (the answers to a twentieth),
              slow (20 ms more each); tests themselves see it as it is
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from compactor.storage.base import Storage
from compactor.storage.locations import open_storage
from tests.support.stores.faulty_proxy import Faults, FaultyProxy, faulty_proxy
from tests.support.stores.running import RunningStore

STORE: Final = "STORE"
FAULTS: Final = "STORE_FAULTS"

KINDS: Final = {
    "503": Faults(refused=0.1, statuses=(503, 429)),
    "lost": Faults(lost=0.05),
    "slow": Faults(delay_s=0.02),
}


def _server(name: str, folder: Path) -> AbstractContextManager[RunningStore]:
    """Returns the server of this name; its imports are slow, and only who names it has to wait for them."""
    if name == "moto":
        from tests.support.stores.moto_server import moto_server

        return moto_server()
    if name == "s3proxy":
        from tests.support.stores.s3proxy import s3proxy

        return s3proxy(folder)
    from tests.support.stores.azurite import azurite

    return azurite(folder)


class ChosenStore(Struct, frozen=True):
    """A running store, and the endpoint at which workers meet it."""

    store: RunningStore
    worker_url: str

    def location(self, name: str) -> str:
        """Returns a location in its bucket."""
        return f"{self.store.location}/{name}"

    def worker_keys(self) -> dict[str, str]:
        """Returns what a worker file has of it."""
        return self.store.worker_keys(self.worker_url)

    def open(self, location: str) -> Storage:
        """Opens a location of its bucket for the test itself."""
        return open_storage(location, self.store.options())


_CHOSEN: Final[list[ChosenStore]] = []


def chosen() -> ChosenStore | None:
    """Returns the store that runs for this session; None where workers keep their files in folders."""
    return _CHOSEN[-1] if _CHOSEN else None


@contextmanager
def chosen_store(folder: Path) -> Iterator[FaultyProxy | None]:
    """Runs what the environment names during the block, if anything, with its logs in `folder`.

    Gives the proxy that workers ask where there are faults, and that a test may change.
    """
    name = os.environ.get(STORE)
    if not name:
        yield None
        return
    with running_store(name, os.environ.get(FAULTS, ""), folder) as proxy:
        yield proxy


@contextmanager
def running_store(name: str, kind: str, folder: Path) -> Iterator[FaultyProxy]:
    """Runs the store `name` for the workers of the block, with faults of `kind` (none where empty)."""
    with _server(name, folder) as store, faulty_proxy(store.url) as proxy:
        proxy.faults = KINDS[kind] if kind else proxy.faults
        _CHOSEN.append(ChosenStore(store, proxy.url if kind else store.url))
        try:
            yield proxy
        finally:
            _CHOSEN.pop()
            if kind:
                print(f"{name}, {kind}: {dict(proxy.counts)}")
