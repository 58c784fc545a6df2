"""Makes a folder of test data: everything that this version of keyfold writes, and what it reads of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import replace

from compactor.catalog import requests
from compactor.catalog.owner_lock import Owner, OwnerLock
from compactor.catalog.requests import Answer
from compactor.errors import SnapshotError
from compactor.model import record
from compactor.model.position import Position, encode
from compactor.model.record import TopicPartition
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.snapshot import listing, location, manifest
from compactor.snapshot.location import SnapshotBackoff
from compactor.snapshot.manifest import SnapshotInputs, TypedInputs
from compactor.snapshot.typed_table import METADATA
from compactor.snapshot.write import write_snapshot
from compactor.storage.base import Storage
from connectors.chain.spec import chain_spec
from connectors.operations.deletion_preview import DeletionPlan, OutputTopic
from connectors.placeholders import resolve
from connectors.runtime.status import ConnectorState, Status, StatusFile
from connectors.sinks import encode as sink
from connectors.typed.column_types import ValueTypes
from tests.support.clocks import ManualClock
from tests.support.local_spark import LocalSpark
from tests.support.oracle.simulation import CONNECTOR, Simulation
from tests.support.requests import leave
from tests.support.written.folder import PLACES, Sent, Source, Written
from tests.support.written.history import T0, T1, W0, perform
from tests.support.written.readers import READERS, Held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRANGER: Final = "20330518T033300Z-f0e1d2"
"""A snapshot of another catalog."""
OLDER: Final = "20260101T000000Z-a1b2c3"
"""A snapshot with the manifest's old name, and neither mark nor the id of a catalog."""
TYPED: Final = "20330518T033200Z-d4e5f6"
"""A typed snapshot, of format 2, that the catalog does not name."""
_CONVERTERS: Final = {
    "key.converter": "keyfold.String",
    "value.converter": "keyfold.Json",
    "value.converter.schemas.enable": "false",
}


def make(folder: Path) -> None:
    """Makes `folder`, which must not exist: everything happens to one connector, then its folders are copied."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="keyfold-") as made:
        simulation = perform(Path(made))
        _beside(simulation)
        _in_other(Path(made), simulation)
        for name, part in PLACES.items():
            shutil.copytree(Path(made, part), folder / name, symlinks=True)
        _at_the_end(folder / "world", simulation)
    written = Written(folder)
    for name, reader in READERS.items():
        with tempfile.TemporaryDirectory() as place:
            _write(folder / "expected" / f"{name}.json", reader(written.copied(Path(place))))


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def _beside(simulation: Simulation) -> None:
    """What a worker, commands and others leave in the two locations."""
    storage, now_ms, state = simulation.storage, simulation.clock.now_ms(), simulation.components.catalog.state
    lock = OwnerLock(storage)
    assert lock.claim(Owner(host="worker-1", pid=4711, epoch=state.epoch))
    lock.release()
    failed = Status(state=ConnectorState.FAILED, error="No broker answers.", failures=3, next_restart_ms=now_ms + 4_000)
    clock = ManualClock(now_ms - 9_000)
    status = StatusFile(storage, clock)
    status.start()
    clock.advance(9_000)
    status.report({"records_read": 40, "dead_letters": 1}, worked=False)
    assert status.show(failed)
    failure = SnapshotBackoff().failed(SnapshotError("No room is left.", "Free some."), now_ms).failure
    location.write_note(storage, failure)
    _ask(storage, now_ms)
    _add_snapshots(simulation)
    _add_typed(simulation)


def _ask(storage: Storage, now_ms: int) -> None:
    leave(storage, "clean", now_ms, "t", 0, until_ms=now_ms + 60_000)
    assert requests.begin(storage, leave(storage, "restart", now_ms + 1).id)
    answered = leave(storage, "snapshot", now_ms + 2, "t")
    assert requests.begin(storage, answered.id)
    requests.answer(storage, answered.id, Answer(ok=True, result={"snapshots": [{"topic": "t", "records": 7}]}))
    refused = Answer(ok=False, message="Topic x is not known.", action="Name another.")
    requests.answer(storage, leave(storage, "release", now_ms + 3, "x").id, refused)
    assert requests.withdraw(storage, leave(storage, "clean", now_ms + 4).id)


def _add_snapshots(simulation: Simulation) -> None:
    """Two that are not this catalog's, made of the newest of its own."""
    place = simulation.shelf
    taken = next(one for one in reversed(simulation.components.catalog.state.snapshots) if one.topic == "t")
    folder = taken.path.rpartition("/")[0]
    of = manifest.read(place, taken.path)
    for name in (STRANGER, OLDER):
        shutil.copytree(Path(place.location, taken.path), Path(place.location, folder, name))
    strange, older = Path(place.location, folder, STRANGER), Path(place.location, folder, OLDER)
    (strange / manifest.NAME).write_bytes(manifest.encode(replace(of, catalog_id="another")))
    (strange / location.MARK).unlink()
    location.write_mark(
        place, f"{folder}/{STRANGER}", replace(simulation.components.catalog.state, catalog_id="another"), place
    )
    (older / manifest.NAME).unlink()
    (older / location.MARK).unlink()
    fields = msgspec.json.decode(manifest.encode(of))
    del fields["catalog_id"]
    (older / "manifest.json").write_bytes(msgspec.json.encode(fields))
    assert set(listing.list_others(place, simulation.components.catalog.state, folder.rpartition("/")[2])) == {
        STRANGER,
        OLDER,
    }


def _add_typed(simulation: Simulation) -> None:
    """Keys are text and values are numbers; what is no number is whole in `_rest`."""
    state, chain = simulation.components.catalog.state, chain_spec(_CONVERTERS)
    keys, values = (ValueTypes(side=side, chain=chain, resolve=resolve) for side in ("key", "value"))
    inputs = SnapshotInputs(
        output_starts={},
        resume_safe_ms=None,
        policy=simulation.components.settings.policy,
        typed=TypedInputs(key=keys, value=values, metadata=tuple(METADATA)),
    )
    spark = cast("SparkSession", LocalSpark())
    now_ms = simulation.clock.now_ms()
    taken = write_snapshot(spark, simulation.storage, simulation.shelf, state, "u", TYPED, now_ms, inputs)
    typed = manifest.read(simulation.shelf, taken.path).typed
    assert typed is not UNSET
    assert typed.unplaced.keys() == {"_rest", "_rest_key"}


def _in_other(made: Path, simulation: Simulation) -> None:
    state = simulation.components.catalog.state
    other = made / "other"
    _write(other / "positions.json", dict(_positions(simulation)))
    _write(other / "headers.json", list(_headers(simulation)))
    outputs = [OutputTopic(one.output, one.output_id) for one in state.topics.values() if one.output and one.output_id]
    plan = DeletionPlan(
        connector=CONNECTOR,
        catalogs=("another", state.catalog_id),
        buckets=state.buckets,
        outputs=tuple(outputs),
        snapshots=tuple(one.path for one in state.snapshots),
        with_outputs=True,
    )
    _write(other / "deleting.json", plan)


def _positions(simulation: Simulation) -> Iterator[tuple[str, Held]]:
    """What the group holds at the end, and everything else that it could hold for these logs."""
    held = simulation.broker.output.positions
    for tp, position in held.items():
        if position is not None:
            yield f"{tp} at the end", _held(tp, position)
    done, part, unpublished = held[T0], held[T1], held[W0]
    assert done is not None
    assert part is not None
    assert part.fold_end is not None
    assert unpublished is not None
    yield "lost", Held(topic=T0.topic, partition=0, offset=None, metadata=None, tail=done.offset - 1)
    yield "lost, without source headers", Held(topic=T0.topic, partition=0, offset=None, metadata=None, tail="?")
    yield "lost inside a fold", Held(topic=T1.topic, partition=1, offset=None, metadata=None, tail=part.offset - 1)
    yield "its fold is sent to the end", _held(T1, replace(part, offset=part.fold_end, fold_end=None))
    yield "above the log", _held(T0, replace(done, offset=done.offset + 5))
    yield "inside a fold that ends above the log", _held(T1, replace(part, fold_end=part.fold_end + 5))
    yield "another catalog's", _held(T0, replace(done, catalog_id="another"))
    yield "of another output", _held(T0, replace(done, output_id="another"))
    yield "lower", _held(T0, replace(done, offset=4), tail=done.offset - 1)
    yield "set by hand", replace(_held(T0, done), metadata="", tail=done.offset - 1)
    yield "of some other program", replace(_held(T0, done), metadata='{"a":1}', tail=done.offset - 1)
    yield "copied from another offset", replace(_held(T1, part), offset=part.offset + 1, tail=part.offset - 1)
    yield "without the offset, as it was before", replace(_held(T1, part), metadata=_without_offset(part))
    yield "without anything that may be left out", _held(W0, unpublished)
    yield "of a newer format", replace(_held(T0, done), metadata='{"keyfold":3,"catalog":"x"}')


def _held(tp: TopicPartition, position: Position, tail: int | None = None) -> Held:
    return Held(
        topic=tp.topic, partition=tp.partition, offset=position.group_offset, metadata=encode(position), tail=tail
    )


def _without_offset(position: Position) -> str:
    fields = msgspec.json.decode(encode(position))
    del fields["offset"]
    return msgspec.json.encode(fields).decode()


def _headers(simulation: Simulation) -> Iterator[Any]:
    """Those of records of t-0 as they are sent, of some without source headers, and of some of another partition."""
    for tp, own in ((T0, True), (T0, False), (T1, True)):
        log = simulation.components.catalog.state.log(tp)
        rows = [row for batch in read(simulation.storage, whole(log)) for row in batch.to_pylist()]
        batch = pa.RecordBatch.from_pylist(rows[:3], schema=record.RUN)
        yield from ([_bytes(pair) for pair in row[3]] for row in sink.output_rows(batch, source_headers=own))


def _bytes(pair: sink.Header) -> tuple[str, bytes | None]:
    name, value = pair
    return name, value.encode() if isinstance(value, str) else value


def _at_the_end(folder: Path, simulation: Simulation) -> None:
    """What a `World` that goes on needs beside the files, in no format of keyfold's."""
    _write(folder / "output.json", [_sent(entry) for entry in simulation.broker.entries])
    topics = simulation.components.catalog.state.topics
    open_ = [tp for tp in simulation.source.ends if topics[tp.topic].closed is None]
    ends = tuple((*tp, simulation.source.ends[tp]) for tp in open_)
    rows = tuple(row for tp in open_ for row in simulation.source.rows[tp])
    _write(folder / "source.json", Source(now_ms=simulation.clock.now_ms(), ends=ends, rows=rows))


def _sent(entry: Any) -> Sent:
    held = [(*one.tp, one.position.group_offset, encode(one.position)) for one in entry.positions if one.position]
    return Sent(
        event=entry.event,
        bucket=entry.bucket,
        records=entry.records,
        letters=entry.letters,
        positions=tuple(held),
    )
