"""What keyfold reads of the files that it has kept, as plain values.

The version that wrote a folder of test data has left its answers in it; every later one must give the same. Fields that
are named in docs/formats.md are given as they are, all others are named here: they may change in the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from compactor.catalog import commits, requests
from compactor.catalog.catalog import Catalog
from compactor.catalog.owner_lock import NAME as OWNER
from compactor.catalog.owner_lock import live_owner
from compactor.errors import PositionError
from compactor.index.reader import AskedKeys, newest_offsets
from compactor.index.section import from_text
from compactor.model.log import PartitionLog
from compactor.model.position import Position, ResumePoint, Tail, Unknown, decode
from compactor.model.record import KEY_IDENTITY, TopicPartition, as_compared
from compactor.model.state import CatalogState
from compactor.publish.resume import resume_point
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.snapshot import listing, location, manifest
from compactor.storage.base import Storage
from connectors.operations.deletion_preview import DeletionPlan
from connectors.operations.describe import worker_status
from connectors.runtime import status
from connectors.sinks.output_reader import keyfold_source, source_offset
from tests.support.oracle.simulation import CONNECTOR
from tests.support.written.folder import Copy


class Held(Struct, frozen=True, kw_only=True):
    """What a group holds for a partition, and what the output says beside it: its last source offset, "?" for none."""

    topic: str
    partition: int
    offset: int | None
    metadata: str | None
    tail: int | str | None = None


def state(copy: Copy) -> Any:
    """The catalog's state."""
    return Catalog.open(copy.storage, CONNECTOR).state


def checkpoints(copy: Copy) -> Any:
    """What the checkpoints say, by version."""
    found = commits.list_versions(copy.storage).checkpoints
    return {
        str(version): commits.read(copy.storage, commits.checkpoint_path(version), commits.Checkpoint)
        for version in found
    }


def records(copy: Copy) -> Any:
    """All rows that each log keeps, by offset."""
    logs = Catalog.open(copy.storage, CONNECTOR).state.logs
    return {str(log.tp): [row for batch in read(copy.storage, whole(log)) for row in batch.to_pylist()] for log in logs}


def looked_up(copy: Copy) -> Any:
    """The newest offset of each key by each section of an index, whether its run is cut or not."""
    logs = Catalog.open(copy.storage, CONNECTOR).state.logs
    return {str(log.tp): _by_index(copy.storage, log) for log in logs}


def _by_index(storage: Storage, log: PartitionLog) -> dict[str, list[int]]:
    sections = sorted({file.index for run in log.kept for file in run.files if file.index is not None})
    compared = [as_compared(batch)["key"] for batch in read(storage, whole(log), ("key", KEY_IDENTITY))]
    keys = AskedKeys(pa.chunked_array(compared, pa.binary()).combine_chunks().drop_null().unique())
    ends = -(1 << 62), 1 << 62
    return {text: newest_offsets(storage, from_text(text), keys, *ends).tolist() for text in sections}


def positions(copy: Copy) -> Any:
    """Where publishing goes on from each of the committed positions of `positions.json`, by its case."""
    catalog = Catalog.open(copy.storage, CONNECTOR).state
    cases = msgspec.json.decode(copy.other("positions.json"), type=dict[str, Held])
    return {name: _going_on(catalog, held) for name, held in cases.items()}


def snapshots(copy: Copy) -> Any:
    """All snapshots by path: manifest, whose it is, rows; and by topic what LATEST, `current` and listings say."""
    catalog, place = Catalog.open(copy.storage, CONNECTOR).state, copy.shelf
    topics = [name for name in place.list(CONNECTOR) if name in catalog.topics]
    paths = [f"{CONNECTOR}/{topic}/{name}" for topic in topics for name in listing.list_ids(place, catalog, topic)]
    return {
        "ours": location.owns(place, catalog),
        "snapshots": {path: _snapshot(copy, path) for path in paths},
        "topics": {topic: _topic(copy, catalog, topic) for topic in topics},
    }


def trouble(copy: Copy) -> Any:
    """Why no snapshot can be written."""
    return location.read_note(copy.storage)


def asked(copy: Copy) -> Any:
    """The requests that wait, whether each is still to be carried out, and the answers of the others."""
    waiting = requests.pending(copy.storage, 0)
    names = copy.storage.list(requests.FOLDER)
    done = {name: requests.answered(copy.storage, name.partition(".")[0]) for name in names if ".done." in name}
    return {"waiting": waiting, "begin": [requests.begin(copy.storage, one.id) for one in waiting], "answers": done}


def worker(copy: Copy) -> Any:
    """The owner while its lock is held, and the status that it has left."""
    lock = copy.storage.lock(OWNER)
    assert lock is not None
    owner = live_owner(copy.storage)
    lock.release()
    return {"owner": owner, "status": worker_status(status.read(copy.storage), 0)}


def deleting(copy: Copy) -> Any:
    """What an unfinished `keyfold delete` removes."""
    return msgspec.json.decode(copy.other("deleting.json"), type=DeletionPlan)


def headers(copy: Copy) -> Any:
    """Which source offset each record of an output names, and as whose record it is known, by its headers."""
    found = msgspec.json.decode(copy.other("headers.json"), type=list[list[tuple[str, bytes | None]]])
    return [{"offset": source_offset(one, TopicPartition("t", 0)), "of": keyfold_source(one)} for one in found]


READERS: Final[Mapping[str, Callable[[Copy], Any]]] = {
    one.__name__: one
    for one in (
        state,
        checkpoints,
        records,
        looked_up,
        positions,
        snapshots,
        trouble,
        asked,
        worker,
        deleting,
        headers,
    )
}


def _going_on(catalog: CatalogState, held: Held) -> dict[str, object]:
    """What the metadata says and how publishing goes on; `refused` where that is an error."""
    tp = TopicPartition(held.topic, held.partition)
    tail: Tail = Unknown.UNKNOWN if isinstance(held.tail, str) else held.tail
    try:
        found = None if held.offset is None else decode(held.offset, held.metadata)
        said = None if found is None else _position(found)
        on = resume_point(catalog.log(tp), catalog.topics[tp.topic], catalog.catalog_id, found, lambda: tail)
    except PositionError:
        return {"refused": True}
    return {"position": said, "going on": _resolved(on)}


def _position(found: Position) -> dict[str, object]:
    return {
        "offset": found.offset,
        "catalog": found.catalog_id,
        "output": found.output_id,
        "output offset": found.output_offset,
        "fold end": found.fold_end,
    }


def _resolved(on: ResumePoint) -> dict[str, object]:
    return {
        "start": on.start,
        "committed": on.committed,
        "output offset": on.output_offset,
        "fold end": on.fold_end,
        "published": on.publish_end,
        "published to": None if on.publish_output is None else on.publish_output.output_offset,
        "waits for the log": on.hold,
    }


def _snapshot(copy: Copy, path: str) -> dict[str, object]:
    found = manifest.read(copy.shelf, path)
    return {
        "catalog": location.catalog_of(copy.shelf, path),
        "manifest": found,
        "rows": [row for file in found.files for row in _rows(copy, f"{path}/{file.path}")],
    }


def _rows(copy: Copy, path: str) -> Iterator[dict[str, Any]]:
    with copy.shelf.open_input(path) as data:
        yield from pq.read_table(data).to_pylist()


def _topic(copy: Copy, catalog: CatalogState, topic: str) -> dict[str, object]:
    folder = f"{CONNECTOR}/{topic}"
    return {
        "standing": listing.list_ids(copy.shelf, catalog, topic),
        "others": listing.list_others(copy.shelf, catalog, topic),
        "LATEST": copy.shelf.read(f"{folder}/{listing.LATEST}").decode().strip(),
        "current": [info.path for info in copy.shelf.walk(f"{folder}/{listing.CURRENT}")],
    }
