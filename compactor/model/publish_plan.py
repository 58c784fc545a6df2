"""What publishing is asked for and answers with, in whichever process: plans, one a bucket, and what was sent."""

from __future__ import annotations

from msgspec import Struct

from compactor.model.record import OfPartition


class PublishTarget(OfPartition, Struct, frozen=True, kw_only=True):
    """What one partition is to be sent: the survivors of [start, end), and its rejected records.

    `found` is the position that the group must still hold when the task begins (None: none);
    `output_offset` the high watermark that its metadata says. start == end commits the position again.
    """

    topic: str
    partition: int
    bucket: int
    output: str | None
    start: int
    end: int
    found: int | None = None
    output_offset: int | None = None


class PublishPlan(Struct, frozen=True, kw_only=True):
    """What one transactional id does next, and on whose behalf."""

    bucket: int
    epoch: int
    catalog_id: str
    targets: tuple[PublishTarget, ...]


class PublishResult(OfPartition, Struct, frozen=True, kw_only=True):
    """One target, sent completely; `bytes` by `record.measure`, `refused` records by the broker."""

    topic: str
    partition: int
    end: int
    output_offset: int | None = None
    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    refused: int = 0
    transactions: int = 0
