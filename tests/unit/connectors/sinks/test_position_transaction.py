"""How long positions may be undecided while a rebuild initialises transactional ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import sentinel

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.errors import BrokerRefusedError
from connectors.kafka.client_settings import Setting
from connectors.sinks.position_transaction import LONGEST_MS, longest_lived, timeout_ms


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


class Brokers:
    """Brokers that allow transactions of `most_ms`, and refuse a longer one with `code`."""

    def __init__(self, most_ms: int, code: int = KafkaError.INVALID_TRANSACTION_TIMEOUT) -> None:
        self.most_ms, self.code = most_ms, code

    def initialise(self, settings: Mapping[str, Setting]) -> Any:
        if int(settings["transaction.timeout.ms"]) > self.most_ms:
            raise BrokerRefusedError("Refused.") from KafkaException(KafkaError(self.code))
        return sentinel.producer


@pytest.mark.parametrize(("most_ms", "expected"), [(900_000, 52_000), (52_000, 52_000), (30_000, 30_000)])
def test_brokers_that_allow_no_long_transaction_get_the_connectors_own(most_ms: int, expected: int) -> None:
    """A rebuild of few ids is done in less: a limit that publishing keeps does not make it impossible."""
    own: dict[str, Setting] = {"transaction.timeout.ms": 30_000}
    assert longest_lived(own, "c-0", 2, Brokers(most_ms).initialise) == (sentinel.producer, expected)


@pytest.mark.parametrize(
    ("own_ms", "brokers"),
    [
        pytest.param(30_000, Brokers(20_000), id="the connector's own is too long as well"),
        pytest.param(60_000, Brokers(20_000), id="no more than its own was asked for"),
        pytest.param(30_000, Brokers(30_000, KafkaError.UNSUPPORTED_VERSION), id="another reason"),
    ],
)
def test_what_a_shorter_time_out_does_not_mend_is_raised(own_ms: int, brokers: Brokers) -> None:
    """The error is that of the brokers."""
    with pytest.raises(BrokerRefusedError):
        longest_lived({"transaction.timeout.ms": own_ms}, "c-0", 2, brokers.initialise)
