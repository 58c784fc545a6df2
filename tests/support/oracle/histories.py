"""Histories by chance, as hypothesis strategies: what is dangerous is frequent in them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from compactor.policy import FOREVER
from compactor.testing_publisher import Fault, Step
from tests.support.oracle import steps
from tests.support.oracle.steps import (
    CRASH,
    PARTITIONS,
    Advance,
    At,
    Failing,
    Fold,
    Ingest,
    Plain,
    Rec,
    Restart,
    Round,
    Settings,
    Snapshot,
    Tamper,
    Tick,
    Vacuum,
)

KEYS: Final = (b"a", b"b", b"", b"\x00", b"\xff\xfe", b"a", b"b", None)
VALUES: Final = (b"1", b"2", None, b"", None, b"\x00\xff", b"a longer value than the others")
HEADERS: Final = ((), (), (), (("h", b"1"), ("h", None)), (("", b"\x00"), ("n", b"")))
MOMENTS: Final = (0, 0, 0, -100, -200, -500, -2000, 100, 5000)
"""Timestamps relative to the clock: all times are multiples of 100 ms, so that limits are met exactly."""

FIXED: Final = (0, -1, 1, 1 << 62)
LEAPS: Final = (100, 200, 300, 500, 1000, 2000, -300, 70_000)

WHILE_CLEANING: Final = ("clean.before-commit", "merge.before-commit", "retain.before-commit")
WHILE_TAKEN: Final = ("clean.before-commit", "snapshot.write", "snapshot.manifest", "snapshot.before-latest")
WHILE_PUBLISHING: Final = ("ingest.before-commit", "publish.plan", "publish.before-commit")
SIMPLE: Final[tuple[tuple[Plain, tuple[str, ...]], ...]] = (
    (Round(), ("retain.before-commit", "merge.before-commit", "clean.before-commit", "clean.after-commit")),
    (Snapshot(), ("clean.before-commit", "snapshot.write", "snapshot.manifest", "snapshot.before-latest")),
    (Tick(), ("publish.plan", "publish.before-commit", "publish.after-commit", "catalog.create")),
    (Vacuum(), ("vacuum.delete",)),
)
"""Steps, and where they can be broken off."""

TAKING: Final = (
    "ingest.before-commit",
    "ingest.after-commit",
    "publish.plan",
    "publish.before-commit",
    "catalog.created",
)
"""The same of a micro-batch."""


@st.composite
def recs(draw: st.DrawFn) -> Rec:
    fixed = draw(st.sampled_from((False,) * 7 + (True,)))
    return Rec(
        place=draw(st.sampled_from((0, 0, 1, 2, 3, 4))),
        key=draw(st.sampled_from(KEYS)),
        value=draw(st.sampled_from(VALUES)),
        time=draw(st.sampled_from(FIXED if fixed else MOMENTS)),
        fixed=fixed,
        hole=draw(st.sampled_from((0, 0, 0, 0, 2))),
        headers=draw(st.sampled_from(HEADERS)),
    )


@st.composite
def ingests(draw: st.DrawFn) -> Ingest:
    return Ingest(
        records=tuple(draw(st.lists(recs(), min_size=3, max_size=16))),
        most=draw(st.sampled_from((1000, 1000, 1000, 2))),
        again=draw(st.sampled_from((0, 0, 0, 4))),
        tasks=draw(st.sampled_from((1, 1, 2))),
        on_spark=draw(st.sampled_from((False, False, False, False, False, True))),
    )


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    deletes = draw(st.sampled_from((False, False, True)))
    return Settings(
        lag=draw(st.sampled_from((0, 0, 200, 500))),
        max_lag=draw(st.sampled_from((FOREVER, 500))),
        ratio=draw(st.sampled_from((0.5, 1.0, 1.0, 0.0))),
        delete_retention=draw(st.sampled_from((300, 0, 100_000))),
        retention_ms=draw(st.sampled_from((-1, 0, 200, 1000))) if deletes else None,
        retention_bytes=draw(st.sampled_from((-1, -1, 20, 100))) if deletes else -1,
        segment_bytes=draw(st.sampled_from((1 << 27, 16))),
        level0=draw(st.sampled_from((2, 3, 32))),
        tiers=draw(st.sampled_from((2, 10))),
        interval=draw(st.sampled_from((-1, 500))),
        buckets=draw(st.sampled_from((1, 2))),
        most=draw(st.sampled_from((100, 1, 2))),
        local=draw(st.sampled_from((1_000, 1_000, -1))),
    )


def advances() -> st.SearchStrategy[Advance]:
    return st.sampled_from(LEAPS).map(Advance)


def restarts() -> st.SearchStrategy[Restart]:
    return st.builds(Restart, st.one_of(st.none(), settings()))


def tampers() -> st.SearchStrategy[Tamper]:
    return st.builds(Tamper, st.sampled_from(range(len(PARTITIONS))), st.sampled_from((None, None, 0, 2)))


def failings() -> st.SearchStrategy[Failing]:
    transaction = st.sampled_from((1, 2, 2, 3))
    faults = st.builds(
        Fault, step=st.sampled_from(Step), transaction=transaction, dies=st.sampled_from((False, False, True))
    )
    return st.builds(Failing, st.one_of(ingests(), ingests(), st.just(Tick())), faults)


@st.composite
def crashes(draw: st.DrawFn) -> At:
    step, points = draw(st.sampled_from(((None, TAKING), (None, TAKING), (None, TAKING), *SIMPLE)))
    step = draw(ingests()) if step is None else step
    return At(step, draw(st.sampled_from(points)), CRASH, nth=draw(st.sampled_from((1, 1, 1, 2))))


@st.composite
def meanwhile(draw: st.DrawFn) -> At:
    """The threads of a connector beside each other: one publishes, the other folds. Or another owner comes."""
    other: tuple[Plain, ...] = tuple(
        draw(st.lists(st.one_of(ingests(), advances(), st.just(Tick())), min_size=1, max_size=3))
    )
    if draw(st.sampled_from((False, False, False, True))):
        other = (draw(restarts()), *other)
    if draw(st.booleans()):
        return At(Fold(), "clean.before-commit", other)
    if draw(st.booleans()):
        return At(Round(), draw(st.sampled_from(WHILE_CLEANING)), other)
    return At(Snapshot(), draw(st.sampled_from(WHILE_TAKEN)), other)


@st.composite
def beside(draw: st.DrawFn) -> At:
    """While a micro-batch is taken in and published, the other thread folds, or another owner comes."""
    point = draw(st.sampled_from(WHILE_PUBLISHING))
    choice: list[Plain] = [Fold(), Round(), Snapshot(), Restart()]
    if point != "publish.plan":
        choice.append(Vacuum())
    other = draw(st.lists(st.sampled_from(choice), min_size=1, max_size=2))
    return At(draw(ingests()), point, tuple(other))


def step() -> st.SearchStrategy[steps.Any]:
    """One step; the first of these is what hypothesis thinks the simplest."""
    kinds: list[st.SearchStrategy[steps.Any]] = [
        *[st.just(Tick())] * 2,
        *[ingests()] * 8,
        *[advances()] * 7,
        *[st.just(Round())] * 4,
        st.just(Fold()),
        *[st.just(Snapshot())] * 2,
        st.just(Vacuum()),
        *[restarts()] * 2,
        tampers(),
        *[failings()] * 2,
        *[crashes()] * 2,
        *[meanwhile()] * 3,
        beside(),
    ]
    return st.sampled_from(range(len(kinds))).flatmap(lambda number: kinds[number])


@st.composite
def histories(draw: st.DrawFn, length: int) -> list[steps.Any]:
    """Histories of so many steps, after one that says how the connector is configured."""
    return [draw(settings().map(Restart)), *draw(st.lists(step(), min_size=length, max_size=length))]
