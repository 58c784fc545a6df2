"""Consumers that read given offsets of given partitions, kept between uses.

They never join a group: `group.id` is only what librdkafka asks for before it lets anybody assign. A Python
worker of Spark may live through many micro-batches, so a finished consumer is put aside and taken again by
the next task with the same settings; when there is none, a new one is made.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import msgspec
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from connectors.errors import UnreachableError

Setting = str | int | float | bool

PINNED: Final[dict[str, Setting]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": False,
    "allow.auto.create.topics": False,
}
"""What no override may change: reading is exact because of it."""

DEFAULTS: Final[dict[str, Setting]] = {
    # With librdkafka's own 100,000 records and 1 s of back-off a process reads a third of what it can; a million small
    # records take 400 MiB while they wait, whatever their own bytes are.
    "queued.min.messages": 200_000,
    "fetch.queue.backoff.ms": 1,
    # What is read is always there; a long poll would only hold up the next assignment of a kept consumer.
    "fetch.wait.max.ms": 20,
    "max.partition.fetch.bytes": 8 << 20,
    "receive.message.max.bytes": 1 << 30,
    "queued.max.messages.kbytes": 64 << 10,
    "check.crcs": True,
    # What goes wrong is raised; librdkafka's own lines would only repeat it, several times a second.
    "log_level": 2,
}

_CONSUMERS_ONLY: Final = frozenset(
    (
        *("group.id", "group.instance.id", "group.protocol", "group.remote.assignor", "group.protocol.type"),
        *("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
        *("coordinator.query.interval.ms", "enable.auto.commit", "auto.commit.interval.ms", "auto.offset.reset"),
        *("enable.auto.offset.store", "queued.min.messages", "queued.max.messages.kbytes", "fetch.wait.max.ms"),
        *("fetch.queue.backoff.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes", "fetch.max.bytes"),
        *("fetch.min.bytes", "fetch.error.backoff.ms", "isolation.level", "enable.partition.eof", "check.crcs"),
        *("allow.auto.create.topics", "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms"),
        *("consume.callback.max.messages",),
    )
)


class ClientFactory(msgspec.Struct, frozen=True):
    """The librdkafka settings of one connector's reading clients. Its repr shows none of them."""

    connector: str
    consumer: Mapping[str, Setting]
    admin: Mapping[str, Setting] | None = None

    def __repr__(self) -> str:
        return f"Clients(connector={self.connector!r})"

    def consumer_settings(self) -> dict[str, Setting]:
        """Everything for a Consumer: defaults, what is configured, what is pinned, each over the one before."""
        named = {"group.id": f"connect-{self.connector}", "client.id": f"connector-consumer-{self.connector}"}
        return {**named, **DEFAULTS, **self.consumer, **PINNED}

    def admin_settings(self) -> dict[str, Setting]:
        """Everything for an AdminClient; without settings of its own it takes the consumer's connection."""
        named = {"client.id": f"connector-admin-{self.connector}"}
        configured = self.consumer if self.admin is None else self.admin
        chosen = {name: value for name, value in configured.items() if name not in _CONSUMERS_ONLY}
        return {**named, "log_level": DEFAULTS["log_level"], **chosen}


class Session:
    """A consumer with nothing assigned, and an admin client of the same connector, made when first used."""

    def __init__(self, clients: ClientFactory) -> None:
        self._clients = clients
        self.consumer = Consumer(self._clients.consumer_settings())

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Reads from these offsets on, and nothing else. A pause would outlive the assignment that it was made in.

        librdkafka stops the old assignment on a thread of its own: until then its messages are still taken for
        the new one's, and its positions answered. `unassign` first puts that stop ahead of the new start, and no
        partition may answer a position before anything of it was delivered. Raises UnreachableError otherwise.
        """
        self.consumer.resume(self.consumer.assignment())
        self.consumer.unassign()
        if not partitions:
            return
        self.consumer.assign(partitions)
        until = time.monotonic() + _STOPPED_S
        while any(found.offset >= 0 for found in self.consumer.position(partitions)):
            if time.monotonic() >= until:
                raise UnreachableError(
                    f"A consumer did not give up {partitions[0].topic}-{partitions[0].partition}'s old assignment.",
                    "The range is read again with a new consumer.",
                )
            time.sleep(0.001)

    @cached_property
    def admin(self) -> AdminClient:
        """For what a consumer cannot ask: topic ids and many offsets at once."""
        return AdminClient(self._clients.admin_settings())

    def close(self) -> None:
        """Gives the connections up."""
        self.consumer.close()


_STOPPED_S: Final = 10.0
_idle: dict[str, list[Session]] = {}
_lock: Final = threading.Lock()


@contextmanager
def borrowed(clients: ClientFactory) -> Iterator[Session]:
    """A session for this task alone. It is kept for the next one, or closed if the task did not end well."""
    key = _key(clients)
    session = _take(key) or Session(clients)
    try:
        yield session
        session.assign([])
    except BaseException:
        session.close()
        raise
    with _lock:
        _idle.setdefault(key, []).append(session)


def close_idle() -> None:
    """Closes every kept session of this process."""
    with _lock:
        sessions = [session for kept in _idle.values() for session in kept]
        _idle.clear()
    for session in sessions:
        session.close()


def _take(key: str) -> Session | None:
    with _lock:
        kept = _idle.get(key)
        return kept.pop() if kept else None


def _key(clients: ClientFactory) -> str:
    """Sessions are of one process: librdkafka's threads do not live through a fork."""
    return json.dumps([os.getpid(), clients.consumer_settings(), clients.admin_settings()], sort_keys=True)
