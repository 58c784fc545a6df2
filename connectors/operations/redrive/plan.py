"""Decides which dead letters go back to their source, and what a group has to hold of that. Pure.

A position says what each run has chosen, and how far it has come with that; whether a letter has gone follows from the
letter itself. So its length does not depend on how many letters were left, nor on how they lie between the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compactor.bin_packing import AtMost, pack, unit_weight
from compactor.decode_errors import why
from compactor.digits import whole
from compactor.json_types import decoded_as
from connectors.operations.redrive.letters import Letter, LetterFilter
from connectors.rejection import Stage

METADATA_MAX: Final = 4_000
"""Bytes of a position's metadata; Kafka takes 4,096 (offset.metadata.max.bytes)."""
FILTERED_MAX: Final = 3_000
"""Bytes beyond which a run with filters adds nothing: the rest is kept for runs without, which shrink it again."""
# Letters, and bytes of them, in one transaction of step D3. More would last longer and be repeated as a whole if it
# fails; fewer would take more transactions, each of which waits for its coordinator.
# Bytes of a digest: two of a billion records are taken for one with a probability of 1 : 10²⁰.
_DIGEST_BYTES: Final = 16
BATCH_LETTERS: Final = 500
BATCH_BYTES: Final = 16 << 20
OTHER_CONNECTOR: Final = "of another connector"
UNNAMED: Final = "names no connector"
FILTERED: Final = "left by the filters"
UNSTAGED: Final = "names no connector, and does not name its stage; set errors.deadletterqueue.context.headers.enable"
"""With transforms or converters of the output it may hold the transformed record; only the stage would say so."""
TOO_OFTEN: Final = "sent back too often"
NO_SOURCE: Final = "names no source topic"
GONE: Final = "source topic is gone"
NOT_READ: Final = "source topic is none of the connector's"
TRANSFORMED: Final = "holds the transformed record"
REPEATED: Final = "of a record that another letter has sent back"


class RedriveSelection(Struct, frozen=True, omit_defaults=True):
    """What a run chooses: letters that `filter` lets through, of records that came back less than `most` times.

    `unnamed`: also those that name no connector. `source`: there is one topic for those that name none. `transforms`:
    those that may hold a transformed record are left. `gone`: marks of the topics (`mark_of`) that were not there, or
    that the connector did not read.
    `once`: of the letters of one record one goes, and has gone for all of them; earlier versions sent each.
    """

    most: int
    filter: LetterFilter = LetterFilter()
    unnamed: bool = False
    source: bool = False
    transforms: bool = False
    gone: tuple[str, ...] = ()
    once: bool = False

    def why_left(self, letter: Letter, connector: str) -> str | None:
        """Returns why a letter is not among those of `connector` that are chosen; None if it is."""
        said = letter.context
        topic = said.get("topic")
        unnamed = UNSTAGED if self.transforms and "stage" not in said else UNNAMED
        reasons = (
            (said.get("connector.name", connector) != connector, OTHER_CONNECTOR),
            (not self.filter.matches(letter), FILTERED),
            ("connector.name" not in said and not self.unnamed, unnamed),
            (letter.redrives >= self.most, TOO_OFTEN),
            (self.transforms and said.get("stage") == Stage.KAFKA_PRODUCE.value, TRANSFORMED),
            (topic is None and not self.source, NO_SOURCE),
            (topic is not None and bool(self.gone) and mark_of(topic) in self.gone, GONE),
        )
        return next((why for applies, why in reasons if applies), None)

    def without(self, topic: str) -> RedriveSelection:
        """Returns this selection for the case that `topic` is not there, or is not the connector's."""
        return replace(self, gone=tuple(sorted({*self.gone, mark_of(topic)})))

    def includes(self, other: RedriveSelection) -> bool:
        """Returns whether it chooses, and sends, each letter that `other` does."""
        return (
            self.once <= other.once
            and self.most >= other.most
            and self.filter.includes(other.filter)
            and self.unnamed >= other.unnamed
            and self.source >= other.source
            and self.transforms <= other.transforms
            and set(self.gone) <= set(other.gone)
        )


def mark_of(topic: str) -> str:
    """Returns a short text that stands for a topic's name, of which a position has no room for many."""
    return blake2b(topic.encode(), digest_size=6).hexdigest()


class RedriveTarget(Struct, frozen=True):
    """The topic and partition that a letter goes back to; `partition` -1: by its key."""

    topic: str
    partition: int


def target_of(letter: Letter, source: str, partitions: Mapping[str, int]) -> RedriveTarget | None:
    """Returns the target of a letter: its topic, or `source` if it names none; None if `partitions` lacks it."""
    topic, number = letter.context.get("topic", source), whole(letter.context.get("partition", ""))
    count = partitions.get(topic)
    if count is None:
        return None
    return RedriveTarget(topic, number if number is not None and number < count else -1)


class RedrivenRange(Struct, frozen=True):
    """All letters below the offset `end` that `selection` chooses have gone."""

    selection: RedriveSelection
    end: int


class _Metadata(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    redriven: tuple[RedrivenRange, ...]
    base: int = 0


class RedrivePosition(Struct, frozen=True):
    """Which letters of one partition have gone: all below `base`, and those of each of `redriven`."""

    base: int = 0
    redriven: tuple[RedrivenRange, ...] = ()

    @classmethod
    def of(cls, offset: int, metadata: str) -> RedrivePosition:
        """Reads what a group holds; without metadata all below `offset` has gone. Raises ValueError if not ours."""
        if not metadata:
            return cls(offset)
        try:
            decoded = decoded_as(metadata, _Metadata)
        except msgspec.DecodeError as error:
            raise ValueError(why(error)) from None
        return cls(decoded.base, decoded.redriven)

    @property
    def offset(self) -> int:
        """The offset after the last letter that any run has come to: the group holds it with the metadata."""
        return max((self.base, *(span.end for span in self.redriven)))

    @property
    def metadata(self) -> str:
        """What the group holds with the offset."""
        return msgspec.json.encode(_Metadata(self.redriven, self.base)).decode() if self.redriven else ""

    @property
    def fits(self) -> bool:
        """Whether Kafka takes the metadata."""
        return len(self.metadata.encode()) <= METADATA_MAX

    @property
    def has_passed_over(self) -> bool:
        """Whether a run has sent one letter of a record only, and may have passed over others."""
        return any(span.selection.once for span in self.redriven)

    def since(self, low: int) -> RedrivePosition:
        """Returns the position without what concerns only letters below `low`, which are gone from the topic."""
        return replace(self, redriven=tuple(span for span in self.redriven if span.end > max(low, self.base)))

    def has_room_for(self, selection: RedriveSelection) -> bool:
        """Returns whether a run of `selection` can be noted; of one without filters it can, as good as always."""
        noted = self.noted(selection, max(self.offset, 10**12))
        if any(span.selection == selection for span in self.redriven):
            return noted.fits
        begun = replace(self, redriven=(*self.redriven, RedrivenRange(selection, self.offset)))
        return begun.fits if selection.filter == LetterFilter() else len(begun.metadata.encode()) <= FILTERED_MAX

    def start(self, selection: RedriveSelection) -> int:
        """Returns the offset below which nothing of `selection` is left."""
        return max((self.base, *(span.end for span in self.redriven if span.selection.includes(selection))))

    def is_redriven(self, letter: Letter, connector: str) -> bool:
        """Returns whether a letter has gone."""
        if letter.offset < self.base:
            return True
        return any(
            letter.offset < span.end and span.selection.why_left(letter, connector) is None for span in self.redriven
        )

    def is_redriven_itself(self, letter: Letter, connector: str) -> bool:
        """Returns whether a letter has gone by a run that sent each letter, whatever record it is of."""
        each = replace(self, redriven=tuple(span for span in self.redriven if not span.selection.once))
        return each.is_redriven(letter, connector)

    def is_waiting(self, letter: Letter, connector: str) -> bool:
        """Returns whether a letter may still go: it is not another connector's, and has not gone."""
        ours = letter.context.get("connector.name", connector) == connector
        return ours and not self.is_redriven(letter, connector)

    def noted(self, selection: RedriveSelection, end: int) -> RedrivePosition:
        """Notes that all that `selection` chooses below `end` has gone; what that includes is noted no more."""
        if end <= self.start(selection):
            return self
        new = RedrivenRange(selection, end)
        rest = (span for span in self.redriven if not (selection.includes(span.selection) and span.end <= end))
        return replace(self, redriven=(*rest, new))


def record_of(letter: Letter) -> bytes | None:
    """Returns what tells the record of a letter from all others; None if the letter does not name its source offset.

    Offsets begin again if a topic was recreated, so it is the record's content too.
    """
    said = letter.context
    place = [said.get(name) for name in ("topic", "partition", "offset")]
    if None in place:
        return None
    content = (place, letter.record_ms, letter.key, letter.value, letter.headers)
    return blake2b(msgspec.msgpack.encode(content), digest_size=_DIGEST_BYTES).digest()


class RedrivenRecords:
    """The records of `connector` of which a letter has gone, as far as letters are given by `learn`, or `add`.

    `every`: each letter counts for itself. Of a record that went once for all of its letters, positions do not say
    which of them went. All are the same record, so it counts as the first that such a run chooses; from then on the
    position of that letter says that the others have not gone. So what is known depends on positions alone, and a run
    that is cut off goes on as if it had not been.
    """

    def __init__(self, connector: str, *, every: bool = False) -> None:
        self._connector = connector
        self._every = every
        # The `record_of` each record of which a letter has gone; it only grows.
        self._gone: set[bytes] = set()
        # Those of which a run that sends each letter has come to a letter; it only grows.
        self._told: set[bytes] = set()

    def learn(self, position: RedrivePosition, letters: Iterable[Letter]) -> None:
        """Takes letters of one partition; `position` is that of the partition."""
        for letter in letters:
            if position.is_redriven(letter, self._connector):
                self._add(letter, itself=self._every and position.is_redriven_itself(letter, self._connector))

    def has_gone(self, position: RedrivePosition, letter: Letter, *, is_chosen: bool) -> bool:
        """Returns whether `letter` has gone, before this run or as a letter that went for all of its record.

        `is_chosen`: whether the run's selection has it, so that its position will say that it has gone.
        """
        gone = position.is_redriven(letter, self._connector)
        record = record_of(letter) if self._every and is_chosen else None
        if record is None or position.is_redriven_itself(letter, self._connector):
            return gone
        stands_for_all = record in self._gone and record not in self._told
        self._told.add(record)
        return stands_for_all

    def is_known(self, letter: Letter) -> bool:
        """Returns whether a letter of the same record has gone."""
        return bool(self._gone) and record_of(letter) in self._gone

    def add(self, letter: Letter) -> None:
        """Notes that this run sends `letter`."""
        self._add(letter, itself=self._every)

    def _add(self, letter: Letter, *, itself: bool) -> None:
        if letter.context.get("connector.name", self._connector) == self._connector:
            record = record_of(letter)
            if record is not None:
                self._gone.add(record)
                if itself:
                    self._told.add(record)


def batches(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    """Cuts letters into those of one transaction, by number and bytes; one that is larger is alone."""
    return pack(letters, AtMost(BATCH_LETTERS, unit_weight), AtMost(BATCH_BYTES, lambda letter: letter.size))
