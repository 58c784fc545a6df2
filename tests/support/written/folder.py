"""A folder with everything that one version of keyfold has written, and what it said of it: test data.

    storage/      storage.location with the folder of connector `c`: catalog, runs, requests, status.json, owner.lock …
    snapshots/    snapshot.location
    other/        what lies in Kafka or only sometimes in the folder: positions, headers, deleting.json
    world/        the output and the source at the end, for a life that goes on
    expected/     what that version read of all that (`readers`); bytes are base64

docs/formats.md describes the files, tests/data/README.md how such a folder is made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from compactor.model.position import decode
from compactor.model.record import TopicPartition
from compactor.storage.local import LocalStorage
from tests.support.engine import Row
from tests.support.memory.journal import CommittedPosition, Event, Journal, JournalEntry, OutputRecord, OutputTopic
from tests.support.oracle.simulation import CONNECTOR, Simulation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA: Final = Path(__file__).parents[2] / "data"
PLACES: Final = {"storage": "store", "snapshots": "shelf", "other": "other"}
"""The folders that are copied, and where a `World` has them."""


class Sent(Struct, frozen=True, kw_only=True):
    """A transaction of the output: `positions` has the committed offset and its metadata by topic and partition."""

    event: Event
    bucket: int
    records: tuple[OutputRecord, ...]
    letters: tuple[OutputRecord, ...]
    positions: tuple[tuple[str, int, int, str], ...]


class Source(Struct, frozen=True, kw_only=True):
    """All that the source had by then: its rows, where its partitions end, and the time."""

    now_ms: int
    ends: tuple[tuple[str, int, int], ...]
    rows: tuple[dict[str, Any], ...]


class Written:
    """One such folder, made by one version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def readings(self) -> list[str]:
        """Of what it is kept how that version read it."""
        return sorted(path.stem for path in (self.folder / "expected").glob("*.json"))

    def expected(self, reading: str) -> Any:
        """How that version read it."""
        return json.loads((self.folder / "expected" / f"{reading}.json").read_bytes())

    def copied(self, place: Path) -> Copy:
        """A copy below `place`, which may be changed."""
        for name, part in PLACES.items():
            shutil.copytree(self.folder / name, place / part, symlinks=True)
        return Copy(place)

    def simulation(self, place: Path, spark: SparkSession | None = None) -> Simulation:
        """A copy below `place` in the hands of a new life, with the output, positions and source that it had."""
        self.copied(place)
        journal = Journal(LocalStorage(str(place / "outside")))
        for sent in self._at_the_end("output", tuple[Sent, ...]):
            journal.append(partial(_entry, sent))
        simulation = Simulation(spark, place)
        self._refill(simulation)
        return simulation

    def _refill(self, simulation: Simulation) -> None:
        """Gives the new world's source, topics and clock what the old one's had."""
        source: Source = self._at_the_end("source", Source)
        simulation.clock.advance(source.now_ms - simulation.clock.now_ms())
        for topic, partition, end in source.ends:
            simulation.source.ends[TopicPartition(topic, partition)] = end
        for row in source.rows:
            simulation.source.rows[TopicPartition(row["topic"], row["partition"])].append(_row(row))
        state = simulation.components.catalog.state
        for name in state.topics:
            count = sum(log.topic == name for log in state.logs)
            simulation.broker.add_topic(name, count, published=state.topics[name].output is not None)

    def _at_the_end(self, name: str, kind: Any) -> Any:
        return msgspec.json.decode((self.folder / "world" / f"{name}.json").read_bytes(), type=kind)


class Copy:
    """The files of such a folder where a `World` below `place` has them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.storage = LocalStorage(str(place / "store" / CONNECTOR))
        self.shelf = LocalStorage(str(place / "shelf"))

    def other(self, name: str) -> bytes:
        """The content of a file of `other/`."""
        return (self.place / "other" / name).read_bytes()


def every() -> list[Written]:
    """The folders of all versions, the oldest first."""
    return [Written(folder) for folder in sorted(DATA.glob("written_by_*"))]


def plain(value: Any) -> Any:
    """`value` as it is once it was JSON: bytes are base64, tuples are lists."""
    return json.loads(msgspec.json.encode(value))


def lost(said: Any, found: Any, where: str = "") -> Iterator[str]:
    """What of `said` is not in `found`, both plain: fields that were added since are none of it."""
    if isinstance(said, dict) and isinstance(found, dict):
        for name, value in said.items():
            if name in found:
                yield from lost(value, found[name], f"{where}.{name}")
            else:
                yield f"{where}.{name} is not read"
    elif isinstance(said, list) and isinstance(found, list) and len(said) == len(found):
        for number, (one, other) in enumerate(zip(said, found, strict=True)):
            yield from lost(one, other, f"{where}[{number}]")
    elif said != found:
        yield f"{where} is {said!r}, read as {found!r}"


def _entry(sent: Sent, _output: OutputTopic) -> JournalEntry:
    held = tuple(
        CommittedPosition(topic, number, decode(offset, text)) for topic, number, offset, text in sent.positions
    )
    return JournalEntry(
        event=sent.event, bucket=sent.bucket, records=sent.records, letters=sent.letters, positions=held
    )


def _row(row: Row) -> Row:
    """A row of the source whose bytes are base64."""

    def of(text: str | None) -> bytes | None:
        return None if text is None else msgspec.convert(text, bytes)

    headers = [{"key": one["key"], "value": of(one["value"])} for one in row["headers"]]
    return {**row, "key": of(row["key"]), "value": of(row["value"]), "headers": headers}
