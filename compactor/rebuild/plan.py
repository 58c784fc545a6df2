"""Decides from what the output, the committed positions and the source say what the log of a lost catalog was: pure.

position inside the source's records               its log ends there; what follows is read again from the source
below the source's start, the loss is accepted     the same, with a gap up to there
inside a fold that was being sent                  the same; publishing goes on to the fold's end, as after any crash
of a generation of which nothing was published,    the next generation begins, as after `keyfold resync`; with a gap
or not all of its first fold                       if the source begins above the start of the one that is lost
the same, with one winner a key over the topic     the next generation of all logs of the topic begins
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from compactor.errors import RebuildError
from compactor.model.actions import RestoreLog, SetFence
from compactor.model.fence import Fence, raised
from compactor.model.log import Gap, Generation, OutputPoint, PartitionLog, Run, empty
from compactor.model.log_transitions import begin_generation, check_invariants
from compactor.model.position import Position, WinnerRules, buckets_of
from compactor.model.record import OfPartition, TopicPartition
from compactor.model.state import BY_BYTES, OF_TOPIC

OLDER_BUCKETS: Final = 256
"""How many transactional ids an older keyfold may have had, which did not write their number to its positions.

It had as many as tasks.max says, or else as Spark has cores; initialising one takes some ms.
"""
_SETTINGS: Final = ("compaction.order", "compaction.scope", "compaction.fill")
"""The settings that `WinnerRules` has."""
_LONG_AGO_MS: Final = 0
"""When sending of what the output holds began: not known, so earlier than any."""


class LostLog(OfPartition, Struct, frozen=True, kw_only=True):
    """The known facts about the log of a partition: its position, and what the brokers say.

    `source_start` and `source_end` are the source's log start and last stable offset, `output_end` is the output's end.
    `has_output`: the output has a partition of this number (compaction.scope=topic: it may have fewer). `has_earlier`:
    it has keys that live by an earlier generation, as the first fold of the position's was sent in part. `with_topic`:
    another log of its topic begins again, and so does this one (compaction.scope=topic).
    """

    topic: str
    partition: int
    position: Position
    source_start: int
    source_end: int
    output_end: int
    has_output: bool = True
    has_earlier: bool = False
    with_topic: bool = False

    @property
    def begins_again(self) -> bool:
        """Whether its next generation begins, as that of the position is not published to its first end.

        The output still has keys of the generation before, which have to go. Which of them the rest of the first fold
        would have superseded is not known: the source may have lost that.
        """
        is_unpublished = self.position.offset <= self.position.start
        return self.with_topic or (self.position.generation > 1 and (is_unpublished or self.has_earlier))

    @property
    def begin(self) -> int:
        """The source offset from which on it is read again."""
        return self.position.start if self.begins_again else self.position.group_offset

    @property
    def published(self) -> int:
        """The offset up to which the restored log is published: its position, or the source's start if higher."""
        return max(self.begin, self.source_start)


def check_rules(
    tp: TopicPartition, position: Position, connector: str, identity: str | None, winners: WinnerRules
) -> None:
    """Raises RebuildError if `position`, of `tp`, names other rules than those of the new catalog.

    The output holds the last record of each key only by the rules that it was written with. A generation of which
    nothing was sent begins again by others.
    """
    if position.generation > 1 and position.offset <= position.start:
        return
    was, now = {"compaction.key.identity": position.identity or BY_BYTES}, [identity or BY_BYTES]
    if position.winners is not None:
        was |= dict(zip(_SETTINGS, position.winners, strict=True))
        now += winners
    for (setting, before), asked in zip(was.items(), now, strict=True):
        if before != asked:
            raise RebuildError(
                f"Connector {connector}: {tp.topic}, partition {tp.partition} was published with {setting}={before}, "
                f"and it is {asked} now.",
                f"Set {setting}={before}; or begin anew: keyfold delete CONNECTOR.json --outputs, then run it. Once it "
                "is rebuilt, keyfold resync applies another one.",
            )


def check(lost: LostLog, connector: str, *, accepts_loss: bool) -> None:
    """Raises RebuildError if the log cannot be rebuilt, or only with a loss that is not accepted."""
    at, where = lost.begin, f"Connector {connector}: {lost.topic}, partition {lost.partition}"
    needed = max(at, lost.position.fold_end or 0)
    if lost.source_end < needed and not lost.begins_again:
        raise RebuildError(
            f"{where} was read up to offset {needed}, and the source ends at {lost.source_end}: it was recreated, or "
            "records were taken back.",
            "Begin anew instead: keyfold delete CONNECTOR.json --outputs, then run it.",
        )
    if lost.source_start > at and not accepts_loss:
        done = "has to be read again from" if lost.begins_again else "was published up to"
        raise RebuildError(
            f"{where} {done} offset {at}, and the source begins at {lost.source_start} now: "
            f"{lost.source_start - at} offsets were read or not, and are in no output.",
            "Ask again with --accept-loss if they may go.",
        )


def check_outputs(lost: Mapping[TopicPartition, Position], outputs: Mapping[str, int], connector: str) -> None:
    """Raises RebuildError unless for each output partition of a topic the position of that number is among `lost`.

    `outputs`: over how many the keys of each topic are spread (compaction.scope=topic).
    """
    for topic, count in outputs.items():
        missing = [number for number in range(count) if TopicPartition(topic, number) not in lost]
        if missing:
            raise RebuildError(
                f"Connector {connector}: its group has no position of {topic}, partition {missing[0]}, and so nothing "
                "says how far the output partition of that number has come (compaction.scope=topic).",
                "Begin anew: keyfold delete CONNECTOR.json --outputs, then run it.",
            )


def check_of_topic(lost: LostLog, connector: str) -> None:
    """Raises RebuildError if there is a gap in a log of a topic with one winner a key over its partitions.

    A record may have been passed over for one of another log that was not sent yet. That one has to be read again: if
    it lies in a gap, its key would be missing. If all logs of the topic begin again, all are read again.
    """
    if lost.source_start > lost.position.group_offset and not lost.begins_again:
        raise RebuildError(
            f"Connector {connector}: {lost.topic}, partition {lost.partition} was published up to offset "
            f"{lost.position.group_offset}, and the source begins at {lost.source_start} now: with "
            "compaction.scope=topic the offsets between may hold the winner of a key of another partition.",
            "Begin anew: keyfold delete CONNECTOR.json --outputs, then run it.",
        )


def whole_topics(logs: Sequence[LostLog]) -> list[LostLog]:
    """Returns `logs`, in their order; of a topic of which one begins again, all do (compaction.scope=topic).

    What of the other logs was passed over for a record of that one is then read again, too.
    """
    again = {log.topic for log in logs if log.begins_again}
    return [replace(log, with_topic=True) if log.topic in again else log for log in logs]


def restored(lost: LostLog, run: Run | None, lead: Run | None, bucket: int) -> RestoreLog:
    """Returns the action that gives `lost` its log again.

    `run` has the last record of each key that the output holds of the position's generation. `lead`, at offsets below
    0, has those of keys that live there by an earlier one; or else the tombstones with which the next generation begins
    (`begins_again`).
    """
    if lost.begins_again:
        return RestoreLog(log=_begun_anew(lost, lead, bucket))
    position, end = lost.position, lost.published
    gaps = (Gap(position.offset, end),) if end > position.offset else ()
    begun = replace(
        empty(lost.tp, bucket, position.start if lead is None else lead.start, None),
        end=end,
        folded_end=end,
        published=end,
        runs=tuple(part for part in (lead, run) if part is not None),
        gaps=gaps,
        output=None if position.output_offset is None else OutputPoint(end, position.output_offset),
        behind_ms=_LONG_AGO_MS,
        begun=True,
        generation=_generation(lost),
        late_last=UNSET if position.late_last is None or gaps else position.late_last,
    )
    return RestoreLog(log=check_invariants(begun))


def fences_of(lost: Iterable[LostLog]) -> tuple[SetFence, ...]:
    """Returns the actions that give topics their fences again, as the positions of their partitions say."""
    fences: dict[str, Fence] = {}
    for log in lost:
        if (value := log.position.fence) is not None:
            at = -1 if log.position.fence_at is None else log.position.fence_at
            fences[log.topic] = raised(fences.get(log.topic), log.partition, value, at)
    return tuple(SetFence(topic=topic, fence=fence) for topic, fence in fences.items())


def ids_of(held: Mapping[TopicPartition, Position | None], buckets: int) -> int:
    """Returns below which number each transactional id is that a lost catalog may have published a partition by.

    `held`: the position of each partition of the source, None if there is none; `buckets`: the new catalog's ids.
    """
    positions = [position for position in held.values() if position is not None]
    unsaid = OLDER_BUCKETS if any(position.buckets is None for position in positions) else 0
    return max(buckets_of(positions), unsaid, len(held), buckets)


def position_of(action: RestoreLog, lost: LostLog, catalog_id: str, ids: int, winners: WinnerRules) -> Position:
    """Returns the position for the group: the one that it had, but of this catalog, or that of the restored log.

    `ids`: those of the lost catalog too, which a worker then initialises before it publishes, if we end before that.
    `winners`: the rules of this catalog. With one winner over a topic nothing of that is published, cleaned or in a
    snapshot before all that the source has now is read: below the position a record may have been passed over for one
    that is above that of another log. A generation that begins is read as far before anything of it is published.
    """
    log, before = action.log, replace(lost.position, catalog_id=catalog_id, buckets=ids, winners=winners)
    if winners.scope == OF_TOPIC and not lost.begins_again:
        return replace(before, fold_end=lost.source_end if lost.source_end > before.offset else None)
    if before.group_offset == log.position and not lost.begins_again:
        return before
    return Position(
        offset=log.published,
        catalog_id=catalog_id,
        output_id=before.output_id,
        output_offset=log.output.output_offset if log.output else None,
        fold_end=None if lost.begins_again else _fold_end(before, log),
        generation=log.generation.number if log.generation else 1,
        start=log.generation.start if log.generation else 0,
        identity=before.identity,
        winners=winners,
        buckets=ids,
        fence=before.fence,
        fence_at=before.fence_at,
    )


def _fold_end(before: Position, log: PartitionLog) -> int | None:
    """Returns the end of the fold that was being sent; None if there was none, or it lies in the gap.

    What of the fold lies above the gap is still to be sent, up to that end: readers have a part of it.
    """
    return before.fold_end if before.fold_end is not None and before.fold_end > log.published else None


def _generation(lost: LostLog) -> Generation | None:
    """Returns the generation of the position; a first fold that was being sent ends at the position's `fold_end`."""
    position = lost.position
    if position.generation == 1:
        return None
    first_end = position.fold_end or position.offset
    return Generation(number=position.generation, start=position.start, first_end=first_end, output_offset=0)


def _begun_anew(lost: LostLog, tombstones: Run | None, bucket: int) -> PartitionLog:
    position = lost.position
    # What lies below the start of the lost generation was left out (`resync --since`, a truncate), and stays so. A
    # source that ends below it is another one.
    start = max(position.start, lost.source_start) if lost.source_end >= position.start else lost.source_start
    before = Generation(number=position.generation, start=position.start, first_end=position.start)
    earlier = replace(empty(lost.tp, bucket, position.start, None), generation=before)
    number, first_end = position.generation + 1, max(start, lost.source_end)
    lead = None if tombstones is None else replace(tombstones, end=start)
    begun = Generation(number=number, start=start, first_end=first_end, output_offset=lost.output_end)
    return begin_generation(earlier, begun, lead, Gap(position.start, start) if start > position.start else None)
