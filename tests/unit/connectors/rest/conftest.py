"""A worker with the REST interface, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.rest.listeners import LIMITS, ClientLimits
from tests.support.rest import RestWorker, limited_rest_worker


@pytest.fixture
def limits() -> ClientLimits:
    """The worker's; a test that needs others is parametrized with them."""
    return LIMITS


@pytest.fixture
def worker(tmp_path: Path, limits: ClientLimits) -> Iterator[RestWorker]:
    with limited_rest_worker(tmp_path, limits) as found:
        yield found
