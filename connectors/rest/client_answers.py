"""What `keyfold connectors` reads of a worker's answers: no more than it shows, as any server may answer."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ShownState(Struct, frozen=True):
    """A connector's state, the worker that runs it, and why it is FAILED."""

    state: str
    worker_id: str
    trace: str | None = None


class ShownStatus(Struct, frozen=True):
    """The state of a connector and of its tasks."""

    connector: ShownState
    tasks: list[Any]


class ShownInfo(Struct, frozen=True):
    """A connector's config; secrets are hidden."""

    config: dict[str, str]


class ShownConnector(Struct, frozen=True):
    """A connector in the list of all."""

    status: ShownStatus
    info: ShownInfo


class ShownPartition(Struct, frozen=True):
    """A partition of a source topic."""

    kafka_topic: str
    kafka_partition: int


class ShownOffset(Struct, frozen=True):
    """The next source offset."""

    kafka_offset: int


class ShownPosition(Struct, frozen=True):
    """The offset up to which a partition has been published."""

    partition: ShownPartition
    offset: ShownOffset


class ShownPositions(Struct, frozen=True):
    """The offsets up to which a connector has published its partitions."""

    offsets: list[ShownPosition]
