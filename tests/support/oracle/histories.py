"""Random histories in which dangerous steps are frequent; the same seed gives the same history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

from compactor.settings import FOREVER
from tests.support.memory.journal import REFUSED
from tests.support.memory.publisher import PublishFault, PublishStep
from tests.support.oracle import steps
from tests.support.oracle.steps import (
    CRASH,
    PARTITIONS,
    TRUNCATE,
    Advance,
    AtFailpoint,
    ChangeOffset,
    FailingPublisher,
    Fold,
    FoldMethod,
    Ingest,
    PlainStep,
    Restart,
    Round,
    Settings,
    Snapshot,
    SourceRecord,
    Tamper,
    Tick,
    Vacuum,
)

T = TypeVar("T")

KEYS: Final = (b"a", b"b", b"", b"\x00", b"\xff\xfe", b"a", b"b", None)
ANY_CASE: Final = (b"aa", b"AA", b"Aa", b"b", b"B", b"", b"\x00", b"\xff\xfe", b"aa", b"b", None)
VALUES: Final = (b"1", b"2", None, b"", None, b"\x00\xff", b"a longer value than the others", REFUSED)
FILLED: Final = (b"1|2", b"?|3", None, b"?", b"?|?", b"\x00|\xff", b"?|a longer value|than the others", REFUSED)
"""Values with fields that are unavailable (`filling`), in histories that fill them."""
HEADERS: Final = ((), (), (), (("h", b"1"), ("h", None)), (("", b"\x00"), ("n", b"")))
RANK: Final = "header:rank"
FIELD: Final = "field:rank"
ORDERS: Final = (None, None, "timestamp", RANK, FIELD)
"""Three of five histories have an order; so three of fifteen have one in which keys have an identity, too."""
RANKED: Final = (
    *HEADERS[1:],
    (("rank", b"too short"[:7]),),
    *((("rank", number.to_bytes(8, "big", signed=True)),) for number in (-1, 0, 1, 2, 2, 3, 1 << 62)),
    (("rank", (9).to_bytes(8, "big")), ("rank", (1).to_bytes(8, "big"))),
    (("rank", (1).to_bytes(8, "big")), ("rank", None)),
)
"""Headers of records that are ordered by one: of several the last counts, and one that is no long is none."""
MOMENTS: Final = (0, 0, 0, -100, -200, -500, -2000, 100, 5000)
"""Timestamps relative to the clock: all times are multiples of 100 ms, so that limits are met exactly."""

FIXED: Final = (0, -1, 1, 1 << 62)
LEAPS: Final = (100, 200, 300, 500, 1000, 2000, -300, 70_000)
WAYS: Final = (FoldMethod.MEMORY, FoldMethod.PASSES, FoldMethod.SPILLED, FoldMethod.SPARK)

WHILE_CLEANING: Final = ("clean.write", "clean.before-commit", "merge.before-commit", "retain.before-commit")
WHILE_TAKEN: Final = ("clean.before-commit", "snapshot.write", "snapshot.manifest", "snapshot.before-latest")
WHILE_PUBLISHING: Final = ("ingest.before-commit", "publish.plan", "publish.before-commit")
KEEPING: Final[tuple[tuple[PlainStep, tuple[str, ...]], ...]] = (
    (Fold(), WHILE_CLEANING[:2]),
    (Fold(), WHILE_CLEANING[:2]),
    (Round(), WHILE_CLEANING),
    (Snapshot(), WHILE_TAKEN),
)
"""Steps of the maintenance thread, with the failpoints at which other steps run."""

CLEANING: Final = ("clean.write", "clean.before-commit", "clean.after-commit", "merge.write", "merge.before-commit")
PUBLISHING: Final = ("publish.plan", "publish.before-commit", "publish.after-commit", "catalog.create")
SIMPLE: Final[tuple[tuple[PlainStep, tuple[str, ...]], ...]] = (
    (Round(), ("retain.before-commit", *CLEANING)),
    (Snapshot(), WHILE_TAKEN),
    (Tick(), PUBLISHING),
    (Vacuum(), ("vacuum.delete",)),
)
"""Steps, with the failpoints at which they can crash."""

CHANGING: Final = (
    "generation.read",
    "generation.write",
    "generation.before-commit",
    "catalog.created",
    "generation.after-commit",
    "generation.position",
)
"""Failpoints at which a change of offsets can crash."""

REBUILDING: Final = (
    "rebuild.read",
    "rebuild.write",
    "rebuild.before-commit",
    "rebuild.after-commit",
    "rebuild.positions",
    "rebuild.fence",
    "rebuild.committed",
)
"""Failpoints at which a rebuild can crash."""

TAKING: Final = (
    "ingest.write",
    "ingest.before-commit",
    "ingest.after-commit",
    "publish.plan",
    "publish.before-commit",
    "catalog.created",
)
"""Failpoints at which a micro-batch can crash."""
FILLING: Final = (*TAKING, "ingest.fill", "ingest.wait")
"""The same, if values are filled."""


TRUNCATING: Final = ("generation.write", "generation.carry", "generation.after-commit", "generation.position")
"""Failpoints at which one can crash that has a truncate, besides these."""


def history(number: int, length: int) -> list[steps.AnyStep]:
    """Returns `length` random steps, after a Restart that configures the connector.

    In every third history keys are compared by an identity, in every ninth until that changes; three of five have
    another order than the offset; in every fourth values are filled. In every seventh, and in every second of those
    that are filled, a key has one winner over all partitions of a topic, or has so until that changes. In every
    eleventh all records are kept, and nothing else is so.
    """
    chance = _Chance(number)
    first: list[steps.AnyStep] = [steps.AnyCase()] if chance.any_case else []
    first += [] if chance.order is None else [steps.OrderedBy(chance.order)]
    first += [steps.Fills()] if chance.fills else []
    first += [steps.OfTopics()] if chance.of_topics else []
    first += [steps.KeepsAll()] if chance.keeps_all else []
    return [*first, Restart(chance.settings()), *(chance.step() for _ in range(length))]


class _Chance:
    """Draws random steps."""

    def __init__(self, number: int) -> None:
        self.keeps_all = number % 11 == 8
        self.any_case = number % 3 == 1 and not self.keeps_all
        self.changes_identity = number % 9 == 4 and not self.keeps_all
        self.order = None if self.keeps_all else ORDERS[number % len(ORDERS)]
        self._headers = HEADERS if self.order is None else RANKED
        self.fills = number % 4 == 2 and not self.keeps_all
        self.of_topics = (number % 7 == 5 or number % 8 == 6) and not self.keeps_all
        self._random = Random(number)
        self._kinds: tuple[tuple[int, Callable[[], steps.AnyStep]], ...] = (
            (2, Tick),
            (8, self._ingest),
            (7, self._advance),
            (4, Round),
            (1, Fold),
            (2, Snapshot),
            (1, Vacuum),
            (2, self._restart),
            (1, self._tamper),
            (2, self._failing),
            (2, self._crash),
            (3, self._meanwhile),
            (1, self._beside),
            (2, self._change),
            (0 if self.order is None else 1, self._reorder),
            (1 if self.fills else 0, self._refill),
            (1 if self.of_topics else 0, self._rescope),
            (0 if self.keeps_all else 1, steps.Rebuild),
            (1 if self.changes_identity else 0, self._reidentify),
        )
        self._weights = [weight for weight, _ in self._kinds]

    def step(self) -> steps.AnyStep:
        """Draws one step."""
        ((_, made),) = self._random.choices(self._kinds, self._weights)
        return made()

    def settings(self) -> Settings:
        """Draws the settings of a Restart."""
        deletes = (self._of((False, False, True)) and not self.of_topics) or self.keeps_all
        return Settings(
            lag=self._of((0, 0, 200, 500)),
            max_lag=self._of((FOREVER, 500)),
            ratio=self._of((0.5, 1.0, 1.0, 0.0)),
            delete_retention=self._of((300, 0, 100_000)),
            retention_ms=self._of((-1, 0, 200, 1000)) if deletes else None,
            retention_bytes=self._of((-1, -1, 20, 100)) if deletes else -1,
            segment_bytes=self._of((1 << 27, 16)),
            level0=self._of((2, 3, 32)),
            tiers=self._of((2, 10)),
            interval=self._of((-1, 500)),
            buckets=self._of((1, 2)),
            most=self._of((100, 1, 2)),
            local=self._of((1_000, -1)),
            fold_method=self._of(WAYS),
            state_index=self._of(("always", "auto")),
            unchanged="send" if deletes else self._of(("send", "skip", "skip")),
            keeps_all=self.keeps_all,
        )

    def _of(self, choice: Sequence[T]) -> T:
        return self._random.choice(choice)

    def _some(self, least: int, most: int, made: Callable[[], T]) -> tuple[T, ...]:
        return tuple(made() for _ in range(self._random.randint(least, most)))

    def _rec(self) -> SourceRecord:
        if self.order == FIELD and self._of((False,) * 24 + (True,)):
            return self._truncate()
        fixed = self._of((False,) * 7 + (True,))
        return SourceRecord(
            place=self._of((0, 0, 1, 2, 3, 4)),
            key=self._of(ANY_CASE if self.any_case else KEYS),
            value=self._of(FILLED if self.fills else VALUES),
            time=self._of(FIXED if fixed else MOMENTS),
            fixed=fixed,
            hole=self._of((0, 0, 0, 0, 2)),
            headers=self._of(self._headers),
        )

    def _truncate(self) -> SourceRecord:
        """Draws a record that empties its topic; few are so late that nothing is after them."""
        rank = self._of((0, 1, 1, 2, 2, 3)).to_bytes(8, "big")
        return SourceRecord(place=self._of((0, 1, 2, 3, 4)), key=None, value=TRUNCATE, headers=(("rank", rank),))

    def _ingest(self) -> Ingest:
        return Ingest(
            records=self._some(3, 16, self._rec),
            most=self._of((1000, 1000, 1000, 2)),
            again=self._of((0, 0, 0, 4)),
            tasks=self._of((1, 1, 2)),
            on_spark=self._of((False,) * 5 + (True,)),
            tail=self._of((0, 0, 0, 0, 0, 3)),
        )

    def _advance(self) -> Advance:
        return Advance(self._of(LEAPS))

    def _restart(self) -> Restart:
        return Restart(self._of((None, self.settings())))

    def _tamper(self) -> Tamper:
        return Tamper(self._of(range(len(PARTITIONS))), self._of((None, None, 0, 2)))

    def _change(self) -> ChangeOffset:
        offset, anew = self._of(
            (
                (None, False),
                (0, False),
                (2, False),
                (5, False),
                (10, False),
                (1_000, False),
                (2, True),
                (10, True),
                (1_000, True),
            )
        )
        return ChangeOffset(self._of(range(len(PARTITIONS))), offset, anew)

    def _reorder(self) -> steps.ChangeOrder:
        return steps.ChangeOrder(self._of(("offset", "timestamp", RANK, FIELD, FIELD)))

    def _reidentify(self) -> steps.ChangeIdentity:
        return steps.ChangeIdentity(self._of((True, False)))

    def _refill(self) -> steps.ChangeFill:
        return steps.ChangeFill(self._of((True, False)))

    def _rescope(self) -> steps.ChangeScope:
        return steps.ChangeScope(self._of((True, False)))

    def _failing(self) -> FailingPublisher:
        fault = PublishFault(
            step=self._of(tuple(PublishStep)), transaction=self._of((1, 2, 2, 3)), dies=self._of((False, False, True))
        )
        choice: tuple[Ingest | Tick, ...] = (self._ingest(), self._ingest(), Tick())
        return FailingPublisher(self._of(choice), fault)

    def _crash(self) -> AtFailpoint:
        taking: tuple[tuple[PlainStep, tuple[str, ...]], ...] = (
            (self._ingest(), (*(FILLING if self.fills else TAKING), *(TRUNCATING if self.order == FIELD else ()))),
        ) * 3
        changes: tuple[PlainStep, ...] = (self._change(), *(() if self.order is None else (self._reorder(),)))
        changes += (self._refill(),) if self.fills else ()
        changes += (self._rescope(),) if self.of_topics else ()
        changes += (self._reidentify(),) if self.changes_identity else ()
        changed = changes[0] if len(changes) == 1 else self._of(changes)
        changing: tuple[tuple[PlainStep, tuple[str, ...]], ...] = ((changed, CHANGING),) * 2
        rebuilding: tuple[tuple[PlainStep, tuple[str, ...]], ...] = ((steps.Rebuild(), REBUILDING),)
        step, points = self._of((*taking, *changing, *SIMPLE, *(() if self.keeps_all else rebuilding)))
        return AtFailpoint(step, self._of(points), CRASH, nth=self._of((1, 1, 1, 2)))

    def _meanwhile(self) -> AtFailpoint:
        """Draws a maintenance step during which the other thread publishes, or another owner takes over."""
        other = self._some(1, 3, self._coming)
        if self._of((False, False, False, True)):
            owners: tuple[PlainStep, ...] = (self._restart(), self._change())
            owners += (self._rescope(),) if self.of_topics else ()
            owners += (self._reidentify(),) if self.changes_identity else ()
            other = (self._of(owners), *other)
        step, points = self._of(KEEPING)
        return AtFailpoint(step, self._of(points), other)

    def _coming(self) -> PlainStep:
        choice: tuple[PlainStep, ...] = (self._ingest(), self._advance(), Tick())
        return self._of(choice)

    def _beside(self) -> AtFailpoint:
        """Draws a micro-batch during which the other thread cleans, or another owner takes over."""
        point = self._of(WHILE_PUBLISHING)
        choice: tuple[PlainStep, ...] = (Fold(), Round(), Snapshot(), Restart(), self._change(), Vacuum())
        other = self._some(1, 2, lambda: self._of(choice[:-1] if point == "publish.plan" else choice))
        return AtFailpoint(self._ingest(), point, other)
