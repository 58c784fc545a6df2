"""A worker with the REST interface, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rest import RestWorker, rest_worker, stand_ins


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestWorker]:
    stand_ins(monkeypatch.setattr)
    with rest_worker(tmp_path) as found:
        yield found
