"""Says how far a reader of the changelog is, until when it can go on from there, and what it has already.

Everything here is pure. Offsets are the next to read, times are ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.decode_errors import UNDECODABLE, why
from compactor.json_types import decoded_as
from compactor.snapshot.manifest import Manifest
from connectors.errors import ResumeError
from connectors.sinks.encode import IDENTITY, RESET, SYNTHETIC
from connectors.sinks.output_reader import Headers, keyfold_source, named_generation

VERSION: Final = 1
BEGIN_AGAIN: Final = "Begin again with the newest snapshot: open_table, or keyfold bootstrap."
"""The next action of a reader that cannot go on from its position."""


class ReaderPosition(Struct, frozen=True, kw_only=True):
    """Up to which offsets of the changelog a reader has read; it can be stored, and gone on from later.

    `offsets` are the next to read, by output partition. `source_offsets` and `generations`, by source partition, say
    what the snapshot stands for that the reader began with. `since_ms`: all that readers saw of the output at this time
    lies before `offsets`. If that is not known, `safe_until_ms` says until when the reader can go on; None is for ever.
    `typed`: the changes before it had typed keys or fields.
    """

    format_version: int = VERSION
    snapshot: str
    topic: str
    output_topic: str
    output_topic_id: str
    offsets: dict[str, int]
    source_offsets: dict[str, int]
    generations: dict[str, int] = {}
    since_ms: int | None = None
    safe_until_ms: int | None = None
    typed: bool = False

    def encode(self) -> str:
        """Encodes it as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, data: str | bytes) -> ReaderPosition:
        """Decodes what `encode` has returned. Raises ResumeError if it is damaged, or of a later format."""
        try:
            position = decoded_as(data, cls)
            _ = position.numbers
        except (*UNDECODABLE, ValueError) as error:
            raise ResumeError(f"A stored position cannot be read: {why(error)}.", BEGIN_AGAIN) from None
        if position.format_version != VERSION:
            raise ResumeError(
                f"A stored position has format {position.format_version}, this keyfold reads {VERSION}.",
                f"Use a newer keyfold. {BEGIN_AGAIN}",
            )
        return position

    @property
    def numbers(self) -> dict[int, int]:
        """The offsets by the numbers of the partitions."""
        return {int(partition): offset for partition, offset in self.offsets.items()}

    def at(self, offsets: Mapping[int, int], since_ms: int | None) -> ReaderPosition:
        """Returns the position at `offsets`; `since_ms` is None while it is not known."""
        texts = {str(partition): offsets[partition] for partition in sorted(offsets)}
        return replace(self, offsets=texts, since_ms=self.since_ms if since_ms is None else since_ms)


def first_position(manifest: Manifest, snapshot: str) -> ReaderPosition:
    """Returns the position of a reader that has loaded the snapshot of that id. Raises ResumeError if it has no output.

    If no time is promised, the manifest has that at which a reader had reached the snapshot's offsets.
    """
    if manifest.output_topic is None or manifest.output_topic_id is None:
        raise ResumeError(
            f"Snapshot {snapshot} of connector {manifest.connector} has no output topic to go on in: its topic "
            f"{manifest.topic} is published nowhere (output.topic=none).",
            "Read the source topic on from source_offsets of the manifest, or give the connector an output.topic.",
        )
    until_ms, created_ms = _ms(manifest.resume_safe_until), _ms(manifest.created_at)
    is_promised = until_ms is None or created_ms is None or until_ms > created_ms
    return ReaderPosition(
        snapshot=snapshot,
        topic=manifest.topic,
        output_topic=manifest.output_topic,
        output_topic_id=manifest.output_topic_id,
        offsets=manifest.output_offsets,
        source_offsets=manifest.source_offsets,
        generations={} if manifest.generations is UNSET else manifest.generations,
        since_ms=None if is_promised else until_ms,
        safe_until_ms=until_ms if is_promised else None,
    )


def _ms(text: str | None) -> int | None:
    """Returns the ms of a manifest's time; None if it has none. Raises ResumeError if it is no time."""
    if text is None:
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ResumeError(f"The manifest has a time that is none: {text[:40]!r}.", "Take a new snapshot.") from None


def retention_ms(config: Mapping[str, str]) -> int | None:
    """Returns how long a topic with these settings keeps a tombstone, in ms; None for ever, as it does not compact."""
    if "compact" not in config.get("cleanup.policy", "delete").split(","):
        return None
    return int(config.get("delete.retention.ms", 86_400_000))


def deadline_ms(position: ReaderPosition, tombstones_ms: int | None) -> int | None:
    """Returns until when a reader at `position` misses no deletion; None is for ever.

    `tombstones_ms`: how long the output keeps tombstones.
    """
    if position.since_ms is None:
        return position.safe_until_ms
    return None if tombstones_ms is None else position.since_ms + tombstones_ms


class RepeatVerdict(Enum):
    """What a reader does with a record of the changelog."""

    TAKE = "take"
    SKIP = "skip"
    """The snapshot stands for it."""
    AS_NEXT = "as next"
    """As with the record that follows: it is a tombstone for another encoding of that one's key."""


def verdict(position: ReaderPosition, partition: int, headers: Headers) -> RepeatVerdict:
    """Returns what a reader that began at `position` does with a record of output `partition` that has these headers.

    An output may be read from an earlier offset on than the snapshot's end. What the snapshot stands for comes again
    then: older generations, tombstones that a generation begins with, and source offsets below those of the manifest.
    A record without the headers of its source is taken, as the newer ones follow.
    """
    source = keyfold_source(headers)
    if source is not None and source[0] != position.topic:
        return RepeatVerdict.TAKE
    place = str(partition if source is None else source[1])
    generation, own = named_generation(headers), position.generations.get(place, 1)
    if generation != own:
        return RepeatVerdict.SKIP if generation < own else RepeatVerdict.TAKE
    if source is not None:
        return RepeatVerdict.SKIP if source[2] < position.source_offsets.get(place, 0) else RepeatVerdict.TAKE
    return _OF_SYNTHETIC.get(dict(headers).get(SYNTHETIC), RepeatVerdict.TAKE)


_OF_SYNTHETIC: Final[Mapping[object, RepeatVerdict]] = {RESET: RepeatVerdict.SKIP, IDENTITY: RepeatVerdict.AS_NEXT}
"""What a reader does with a tombstone of the snapshot's generation that comes from no source record."""
