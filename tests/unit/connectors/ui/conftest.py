"""A worker with its page, over a real socket, asked as a browser asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rest import RestWorker, rest_worker


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RestWorker]:
    with rest_worker(tmp_path) as found:
        yield found
