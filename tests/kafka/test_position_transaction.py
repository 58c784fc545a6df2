"""Positions in a transaction that is undecided for a while: they are committed, or it is known why not."""

from __future__ import annotations

from uuid import uuid4

import pytest

from compactor.errors import KeyfoldError
from compactor.model.position import Position
from compactor.model.record import TopicPartition
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import Setting
from connectors.kafka.producers import DEADLINE_S
from connectors.sinks.position_transaction import PositionTransaction
from connectors.sinks.producer_session import read_positions
from tests.support.clients import client_settings
from tests.support.kafka import create_topic, wait_until

# The broker looks every 10 s for transactions that have timed out.
ABORTED_S = 60.0


@pytest.mark.parametrize("ended_by", ["its own commit", "a newer producer", "the coordinator"])
def test_who_ended_a_transaction_is_told(broker: EmbeddedKafka, ended_by: str) -> None:
    """A newer producer's and the coordinator's end give one error code: the time tells them apart."""
    name = f"t-{uuid4().hex[:8]}"
    topic, group = create_topic(broker.bootstrap, name, 1), f"connect-{name}"
    own: dict[str, Setting] = {"transaction.timeout.ms": 1_000} if ended_by == "the coordinator" else {}
    clients = client_settings({"bootstrap.servers": broker.bootstrap}, name, **own)
    tp, position = TopicPartition(topic, 0), Position(offset=5, catalog_id="c")
    transaction = PositionTransaction(clients, f"{name}-0", group, needed_s=1 - DEADLINE_S if own else 0)
    assert transaction.put({tp: position})
    if ended_by == "a newer producer":
        PositionTransaction(clients, f"{name}-0", group, needed_s=0).close()
    admin = Admin({"bootstrap.servers": broker.bootstrap})
    if ended_by == "the coordinator":
        wait_until(lambda: is_decided(admin, group, tp), "the coordinator aborts the transaction", ABORTED_S)
    committed = transaction.commit()
    assert (committed, transaction.has_timed_out) == (ended_by == "its own commit", ended_by == "the coordinator")
    assert read_positions(admin, group, [tp]) == {tp: position if committed else None}
    transaction.close()


def is_decided(admin: Admin, group: str, tp: TopicPartition) -> bool:
    """Returns whether the group has no undecided position for `tp`."""
    try:
        read_positions(admin, group, [tp])
    except KeyfoldError:
        return False
    return True
