"""Reads what is assigned and writes it into files: steps 2 and 3, in a task of Spark's or in the driver.

    function        reads                        policy                      its chains may wait for registries
    read_task       a task of a micro-batch      bounded                     for a moment
                    if for the only connector    strict                      as long as it takes
    read_in_driver  a micro-batch, if small      bounded                     not at all
    read_apart      one connector's offer        strict                      until it is stopped

What is bounded, and fails, is missing in the answer; of what takes too long the answer says so. Both are read apart
then, which finds the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import structlog
from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.ingest.ingest import WRITTEN, error_row, full_row, portions, write_level0
from compactor.spark import tasks
from compactor.spark.task_start import begin_task
from compactor.turns import turn
from connectors.chain.task_growth import TaskGrowth
from connectors.chain_turns import DRIVERS, ChainTurn
from connectors.clock import SYSTEM_CLOCK, Clock, Deadline, LoopClock, worked_s
from connectors.errors import PortionLateError, UnreachableError
from connectors.registry.patience import Patience
from connectors.source import plan
from connectors.source.assignment import NEVER, EarlyEnd, PortionSplit, ReadTask
from connectors.source.bounded_reader import read_bounded
from connectors.source.options import SourceOptions
from connectors.source.portion import Offer
from connectors.source.read_route import TURN_S, Route
from connectors.source.reader import read
from connectors.source.source_errors import reading_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ChainLimits(Struct, frozen=True):
    """How long (s) the chains of a micro-batch may take, while other connectors wait for it."""

    # A portion's waits for registries in a Spark task: several answers of one that is well, as each of Spark's
    # processes has to ask for itself.
    portion_wait: float = 1.0
    # The waits of all portions of a task together: as long as they may take to be read. Those that come when less than
    # `portion_wait` is left of it ask no registry, and are read apart without being held for late.
    task_wait: float = 2.0
    # All that a portion's chain takes. A portion of 64 MiB or 200,000 records takes a few seconds at most; a slower
    # chain holds up the others with each portion.
    portion: float = 5.0
    # How long the driver waits until what it has read is written, and for how long a task begins with further chains:
    # twice what one may take.
    written: float = 10.0


LIMITS: Final = ChainLimits()
IN_DRIVER: Final = ChainLimits(portion=1.0, written=1.5)
"""In the driver a micro-batch has few records (`read_route.DRIVER_READ_MAX`): a chain takes half a second for all of
them at most, unless records are made to take long. 5 s and 10 s held up all other connectors for 10 s a minute."""
_LOOK_S: Final = 0.05
"""How often (s) the driver looks whether all is written. A look that comes more than twice as late shows that the
worker itself stood still: such time counts for no portion."""
TURN: Final = EarlyEnd(idle_s=5.0, total_s=TURN_S)
"""When a large job gives its turn back: 5 s without progress are enough to find a log end after which nothing is stable
yet (`range_cursors.nothing_left`), while a minute, after which brokers count as unreachable, would be everybody's."""

ONE_LARGE_JOB: Final = threading.Lock()
"""Held while a large job runs: in all but one of Spark's tasks, so that micro-batches find a free one."""
_log = structlog.get_logger()


def read_task(task: ReadTask, limits: ChainLimits = LIMITS) -> Iterator[pa.RecordBatch]:
    """Reads the task's portions and writes them into files; yields rows of `ingest.WRITTEN`.

    Of a bounded task, a portion that cannot be read or written is missing in the answer; if its chain takes too long, a
    row of kind `error` says so. Of any other task such a row says why, and it may end early. A task without portions
    prepares its process for the next one.
    """
    begin_task()
    if task.bounded:
        yield from _read_bounded_task(task, limits)
        return
    for portion in task.portions:
        try:
            rows = list(_read_strictly(portion, early_end=task.early_end))
        except KeyfoldError as error:
            yield error_row(portion.portion, error)
        else:
            yield from rows


def _read_bounded_task(task: ReadTask, limits: ChainLimits) -> Iterator[pa.RecordBatch]:
    left_s, deadline = limits.task_wait, Deadline(limits.written)
    for portion, batches in read_bounded(task.portions):
        if portion.options.chain is not None and deadline.has_passed:
            continue  # the chains before it have taken all of the time
        patience = Patience(limits.portion_wait if left_s >= limits.portion_wait else 0.0, limits.portion)
        yield from _write_bounded(portion, batches, patience)
        left_s -= patience.waited_s


def read_in_driver(
    read_tasks: Iterable[ReadTask],
    writers: Executor,
    deliver: Callable[[int, Batch | PortionLateError], None],
    limits: ChainLimits = IN_DRIVER,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Reads a small micro-batch in this process; calls `deliver` for each portion as soon as `writers` have written it.

    Those without a chain come first. A portion that is still being written when the time is over is late: it would be
    so in the next micro-batch as well, and each holds one of the writers. One that no writer has begun with is missing.
    Time in which the worker stood still makes none late (`RunTime`).

    Registries are not waited for: a portion for which one has to be asked is read apart by its connector's own thread,
    which learns the schema for the next ones.
    """
    running = LoopClock(round(2_000 * _LOOK_S), clock=clock)

    def write(portion: PortionSplit, batches: Iterable[pa.RecordBatch]) -> None:
        deadline = Deadline(limits.portion, running)
        chain_turn = ChainTurn(DRIVERS, lambda: deadline.has_passed, urgent=True)  # a writer waits no longer for it
        patience = Patience(0.0, limits.portion, clock=running, turn=chain_turn, worked_s=worked_s)
        rows = (row for batch in _write_bounded(portion, batches, patience) for row in batch.to_pylist())
        for number, answer in portions(rows).items():
            if isinstance(answer, Batch | PortionLateError):
                deliver(number, answer)

    futures: dict[Future[None], PortionSplit] = {}
    for portion, batches in _plain_first(read_tasks):
        running.begin()
        try:
            futures[writers.submit(write, portion, batches)] = portion
        except RuntimeError as error:  # no thread can be started: the portion is missing
            _log.debug("portion is left to be read apart", connector=portion.options.connector, error=str(error))
    for unwritten in _unwritten_after(limits.written, futures, running):
        if not unwritten.cancel():  # what it still writes is in no commit
            deliver(futures[unwritten].portion, _unwritten(limits.written))


def _unwritten_after(seconds: float, futures: Iterable[Future[None]], running: LoopClock) -> set[Future[None]]:
    """Waits for `seconds` of the time that this loop itself runs; returns those of `futures` that are not done."""
    deadline, unwritten = Deadline(seconds, running), set(futures)
    while unwritten and not deadline.has_passed:
        unwritten = wait(unwritten, min(_LOOK_S, deadline.left_s)).not_done
        running.look()
    return unwritten


def _plain_first(read_tasks: Iterable[ReadTask]) -> Iterator[tuple[PortionSplit, list[pa.RecordBatch]]]:
    """Yields each portion without a chain once it is read: it waits for no chain, nor for brokers that are slow.

    The others follow once all are read: they would hold all writers.
    """
    chained = []
    for portion, batches in (pair for task in read_tasks for pair in read_bounded(task.portions)):
        if portion.options.chain is None:
            yield portion, batches
        else:
            chained.append((portion, batches))
    yield from chained


def _unwritten(seconds: float) -> PortionLateError:
    return PortionLateError(
        f"What was read is not converted and written after {seconds:g} s.",
        "It is read apart: no other connector waits for it.",
    )


def _write_bounded(
    portion: PortionSplit, batches: Iterable[pa.RecordBatch], patience: Patience
) -> list[pa.RecordBatch]:
    """Writes what was read of a portion; returns rows of WRITTEN, none if that failed.

    If its chain took too long, the one row says so.
    """
    name = portion.options.connector
    try:
        return list(write_transformed(batches, portion.options, portion.portion, patience))
    except PortionLateError as error:
        return [error_row(portion.portion, error)]
    except Exception as error:  # noqa: BLE001  # whatever it is, it is this connector's
        _log.debug("portion is left to be read apart", connector=name, error=str(error))
        return []


class ApartParts(Struct, frozen=True):
    """How an offer is read apart, and how a Spark job is run for it; a test gives others."""

    read: Callable[..., Generator[pa.RecordBatch, None, None]] = read
    run: Callable[..., list[dict[str, Any]]] = tasks.run


def read_apart(
    spark: SparkSession,
    offer: Offer,
    stopped: Callable[[], bool],
    early_end: EarlyEnd = TURN,
    parts: ApartParts | None = None,
) -> Batch:
    """Reads an offer to its end, by its route, and writes it into files; returns what was written.

    A job ends by `early_end`, so that others have their turn, or its task: then the offer is read in part, or not at
    all. Once `stopped` returns True it ends soon. Raises what `reader.read` raises, and StorageError.
    """
    options, parts = offer.options, parts or ApartParts()
    if offer.route is not Route.LARGE_JOB:
        whole = PortionSplit(0, options, offer.ranges, options.clients)
        if offer.route is Route.JOB:
            return _timed(lambda: _run_job(spark, [whole], parts, EarlyEnd(total_s=early_end.total_s)))
        chain_turn = ChainTurn(DRIVERS, stopped)
        batches = _read_strictly(whole, parts.read, stopped=stopped, chain_turn=chain_turn)
        return _batch(row for batch in batches for row in batch.to_pylist())
    most = min(options.limits.tasks_max, max(1, spark.sparkContext.defaultParallelism - 1))
    splits = [PortionSplit(0, options, split, options.clients) for split in plan.splits(offer.ranges, most)]
    with turn(ONE_LARGE_JOB, stopped) as mine:
        if not mine:
            raise reading_stopped(options.connector)
        try:
            return offer.without_holes(_timed(lambda: _run_job(spark, splits, parts, early_end)))
        except UnreachableError as error:  # nothing shows that the topics are still the same
            _log.info("a large read is tried again in small", connector=options.connector, reason=error.message)
            return Batch(ranges=(), parts=())


def _timed(run: Callable[[], Iterable[Mapping[str, Any]]]) -> Batch:
    """Returns the batch that a job reads, with the time that it took."""
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    batch = _batch(run())
    return replace(batch, read_s=(SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1000)


def _run_job(
    spark: SparkSession, splits: Sequence[PortionSplit], parts: ApartParts, early_end: EarlyEnd
) -> list[dict[str, Any]]:
    """Reads each of `splits` in a task of one Spark job; returns rows of WRITTEN."""
    read_strictly = parts.read  # all that the task takes along

    def task(number: int) -> Iterator[pa.RecordBatch]:
        from connectors.logging_setup import configure_as_parent

        configure_as_parent()
        yield from _read_strictly(splits[number], read_strictly, early_end)

    return parts.run(spark, len(splits), task, WRITTEN)


def _read_strictly(
    portion: PortionSplit,
    read: Callable[..., Generator[pa.RecordBatch, None, None]] = read,
    early_end: EarlyEnd = NEVER,
    stopped: Callable[[], bool] = lambda: False,
    chain_turn: ChainTurn | None = None,
) -> Iterator[pa.RecordBatch]:
    """Reads and writes; a chain that waits for a registry waits alone, and until it is `stopped`.

    In the driver chains take turns: it gives `chain_turn`.
    If the records have grown too much, or its time is over, it ends early, and a last row says so.
    """
    options, growth = portion.options, TaskGrowth(portion.options.limits.growth_bytes, early_end.total_s)
    patience = Patience(stopped=stopped, turn=chain_turn)
    with closing(read(portion.ranges, options, stopped, early_end, growth)) as batches:
        yield from write_transformed(batches, options, portion.portion, patience, growth)
    if growth.is_full:
        yield full_row(portion.portion)


def _batch(rows: Iterable[Mapping[str, Any]]) -> Batch:
    batch = portions(rows)[0]
    assert isinstance(batch, Batch)
    return batch


def write_transformed(
    batches: Iterable[pa.RecordBatch],
    options: SourceOptions,
    portion: int = 0,
    patience: Patience | None = None,
    growth: TaskGrowth | None = None,
) -> Iterator[pa.RecordBatch]:
    """Writes `batches` (record.SOURCE) as the connector's chain makes them; yields rows of `ingest.WRITTEN`.

    Without a chain they are written as they are. `patience` limits what the chain takes; None: nothing does. `growth`
    is told what is written; if it is full, the chain makes no more of the batch that it has. Raises RegistryError,
    PortionLateError, and what `write_level0` raises.
    """
    growth = growth or TaskGrowth()
    if options.chain is None:
        yield from write_level0(batches, options.intake, portion, growth.note_written)
        return
    from connectors.chain.chain_pool import borrowed  # what it imports takes time, and few connectors need it
    from connectors.placeholders import resolve

    with borrowed(options.chain, resolve, keyed=options.intake.keyed, patience=patience) as chain:
        yield from write_level0(chain.through(batches, growth), options.intake, portion, growth.note_written)
