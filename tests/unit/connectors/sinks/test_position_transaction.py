"""How long positions may be undecided while a rebuild initialises transactional ids."""

from __future__ import annotations

import pytest

from connectors.kafka.client_settings import Setting
from connectors.sinks.position_transaction import LONGEST_MS, timeout_ms


@pytest.mark.parametrize(
    ("config", "needed_s", "expected", "why"),
    [
        ({}, 0, 60_000, "librdkafka's own, which every broker takes"),
        ({}, 10, 60_000, "256 ids need no more"),
        ({}, 124, 174_000, "3,100 ids, and the requests of the transaction itself"),
        ({}, 5_000, LONGEST_MS, "brokers refuse more than their default limit"),
        ({"transaction.timeout.ms": "300000"}, 124, 300_000, "the connector's is longer"),
        ({"transaction.timeout.ms": 10_000}, 124, 174_000, "the connector's is for its own, short transactions"),
        ({"transaction.timeout.ms": 3_600_000}, 124, 3_600_000, "the brokers' limit was raised"),
    ],
)
def test_the_time_out_grows_with_what_is_done_meanwhile(
    config: dict[str, Setting], needed_s: float, expected: int, why: str
) -> None:
    """It is never shorter than the connector's own, and raised no higher than brokers take by default."""
    assert timeout_ms(config, needed_s) == expected, why
