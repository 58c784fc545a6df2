"""A worker whose connectors share what asks the brokers, without a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.source.poller import Pace
from tests.support.polled import PollingWorker


@pytest.fixture
def pace() -> Pace:
    return Pace(poll_ms=10, pause_ms=5)


@pytest.fixture
def worker(pace: Pace) -> Iterator[PollingWorker]:
    found = PollingWorker(pace)
    yield found
    for one in list(found.borrowed):
        found.give_back(one)
