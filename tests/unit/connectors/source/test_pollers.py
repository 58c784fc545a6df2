"""Who follows the brokers for whom, and since when."""

from __future__ import annotations

import pytest

from connectors.kafka.client_settings import ClientSettings, Setting
from tests.support.kafka import wait_until
from tests.support.polled import TIMEOUT_S, PollingWorker, options


def test_connectors_with_equal_settings_share_a_poller(worker: PollingWorker) -> None:
    """Names differ by connector, and change nothing of what is read."""
    first = worker.borrow(connector="one")
    assert worker.borrow(connector="two") is first
    assert first.clients.consumer()["client.id"] == "connector-consumer-one"


@pytest.mark.parametrize(
    "other", [{"bootstrap.servers": "127.0.0.1:2"}, {"sasl.username": "other"}, {"fetch.min.bytes": 7}], ids=str
)
def test_connectors_with_other_settings_do_not(worker: PollingWorker, other: dict[str, Setting]) -> None:
    """Other brokers, another principal, another way to fetch: a consumer of one is none of the other."""
    assert worker.borrow() is not worker.borrow("c", **other)


def test_consumers_that_differ_are_not_shared(worker: PollingWorker) -> None:
    """Settings of consumers alone count too: one consumer reads for all of them."""
    named = options("c", "a").clients
    other = ClientSettings(named.admin(), {**named.consumer(), "fetch.min.bytes": 7}, {})
    found = worker.pollers.borrow(other)
    worker.borrowed.append(found)
    assert worker.borrow() is not found


def test_a_poller_ends_with_its_last_user(worker: PollingWorker) -> None:
    """The next connector with its settings gets a new one."""
    first = worker.borrow(connector="one")
    worker.borrow(connector="two")
    worker.give_back(first)
    assert first.is_alive()
    worker.give_back(first)
    wait_until(lambda: not first.is_alive(), "its thread ends", TIMEOUT_S)
    again = worker.borrow()
    assert again is not first
    assert again.is_alive()


def test_a_poller_lives_while_a_connector_is_about_to_be_added(worker: PollingWorker) -> None:
    """A connector asks the brokers where it begins before it is planned for, and the last other one may end then."""
    poller = worker.borrow(connector="ends")
    subscription = worker.subscribed(poller, "a")
    assert worker.borrow(connector="begins") is poller
    poller.remove(subscription)
    worker.give_back(poller)
    begun = worker.subscribed(poller, "b")
    wait_until(lambda: begun.portion.claimable, "the one that began is offered", TIMEOUT_S)


def test_a_poller_that_cannot_be_made_is_borrowed_by_nobody(worker: PollingWorker) -> None:
    """A certificate that is away for a moment: the next one is given back, and ends, as if there had been no first."""
    worker.refuses = True
    for _ in range(2):
        with pytest.raises(ValueError, match="no such file"):
            worker.borrow()
    worker.refuses = False
    poller = worker.borrow()
    worker.give_back(poller)
    wait_until(lambda: not poller.is_alive(), "its thread ends", TIMEOUT_S)
