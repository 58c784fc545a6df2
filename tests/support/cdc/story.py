"""A database, Debezium and keyfold from the first row to the last, with changes of tables and deaths in between."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.apicurio import Apicurio
from tests.support.cdc.append_table import AppendTable
from tests.support.cdc.debezium import Debezium
from tests.support.cdc.encodings import Encoding, encodings
from tests.support.cdc.equality import Difference, Expected, difference, expected
from tests.support.cdc.first_table import FirstTable
from tests.support.cdc.postgres import Postgres
from tests.support.cdc.tables import BEFORE, SCHEMA, TABLES, Table, created
from tests.support.deployment import Process
from tests.support.kafka import consume_all, end_offsets, wait_until
from tests.support.spark_settings import FAST_START

LIMIT_S: Final = 600.0
_BULK_SEEN: Final = 10_000
"""So many records of the large transaction are in the topic when Connect dies: neither at its start nor at its end."""


@dataclass(frozen=True)
class Result:
    """What was found for a table in an encoding, in the `output` topic or the `snapshot`."""

    encoding: str
    table: str
    place: str
    rows: int
    difference: Difference


class Story:
    """One run of everything; `results` has an entry for each encoding, table and place."""

    def __init__(
        self, server: Postgres, broker: EmbeddedKafka, registry: Apicurio, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._server = server
        self._broker = broker
        self._folder = folder
        self._started = time.monotonic()
        self._print = say
        self.encodings = encodings(registry.url)
        self.first = FirstTable(server, folder)
        self.appended = AppendTable(server, folder, self.encodings[0].prefix)
        self._debezium = Debezium(broker, folder / "connect")
        # Name of a setting of Debezium's connector → its default; empty until it has run.
        self.debezium_defaults: dict[str, str | None] = {}
        # Rows of the first table that keyfold has before the sweep and the database has not; empty until it has run.
        self.ghosts: list[tuple[Any, ...]] = []
        # By encoding, table and place; empty until it has run.
        self.results: dict[tuple[str, str, str], Result] = {}

    def run(self) -> None:
        """Runs it, which fills `results`."""
        self._server.run(BEFORE + "".join(map(created, TABLES)))
        self.appended.create()
        self._say("the tables are there")
        self._debezium.worker.start()
        try:
            self.debezium_defaults = self._debezium.defaults()
            for encoding in self._sources():
                self._debezium.create(encoding.name, encoding.source(self._server))
            self.first.create(self._debezium)
            self._until_read()
            self._say("Debezium's snapshots are done")
            self._changes()
            since = self.first.lose_slot(self._debezium)
            self._until_read()
            self._say("Debezium has lost a slot, and has read the first table again")
        finally:
            self._debezium.worker.stop()
        self._once()
        self.ghosts = [row for row in self.first.in_snapshot() if row not in self.first.in_database()]
        self._sweep(since)
        self._once()
        self._say("keyfold is done")
        self.results = {(each.encoding, each.table, each.place): each for each in self._compared()}

    def dead_letters(self, encoding: str) -> Counter[str]:
        """Returns how many dead letters the encoding's connector has written of each table."""
        (dead,) = (each.dead for each in self.encodings if each.name == encoding)
        letters = consume_all(self._broker.bootstrap, dead)
        topics = ((dict(letter.headers)["__connect.errors.topic"] or b"").decode() for letter in letters)
        return Counter(topic.rpartition(".")[2] for topic in topics)

    def wanted(self, table: Table) -> Expected:
        """Reads a table of the database."""
        return expected(self._server, table)

    def tables(self, connectors: Mapping[str, tuple[str, str]]) -> Path:
        """Keeps the topics of an encoding as tables of a format, both by the connector's name; returns the folder."""
        folder, by_name = self._folder / "lake", {each.name: each for each in self.encodings}
        files = []
        for name, (encoding, kind) in connectors.items():
            of = {"name": name, "output.topic": "none", "errors.deadletterqueue.topic.name": f"{name}.dead"}
            typed = {"snapshot.key.format": "typed", "snapshot.value.format": "typed", "snapshot.table": kind}
            files.append(self._write(name, {**by_name[encoding].keyfold(folder), **of, **typed}))
        worker = {**self._worker(), "storage.location": str(self._folder / "lake-storage")}
        command = ["run", *files, "--worker", self._write("lake-worker", worker), "--once"]
        with Process(command, self._folder / "lake.log", {}) as process:
            assert process.wait(2 * LIMIT_S) == 0, process.tail()
        self._say("the tables of Delta and Iceberg are there")
        return folder

    def _changes(self) -> None:
        """Three rounds of changes: keyfold dies in a transaction, Connect in the large one, keyfold again."""
        with self._keyfold("publish.sent=sleep:600000") as worker:
            self._round(0)
            worker.until_logged("failpoint publish.sent")
            worker.signal_all(signal.SIGKILL)
            worker.wait()
        self._say("keyfold was killed inside a transaction")
        with self._keyfold() as worker:
            self._round(1)
            bulk = self.encodings[0].topic("bulk")
            before = self._records(bulk)
            wait_until(lambda: self._records(bulk) > before + _BULK_SEEN, "the large transaction begins", LIMIT_S)
            self._debezium.worker.kill()
            self._say(f"Connect was killed, {self._records(bulk)} records of the large table are in its topic")
            output = self.encodings[0].output(bulk)
            wait_until(lambda: self._records(output) > _BULK_SEEN, "keyfold publishes the large transaction", LIMIT_S)
            worker.signal_all(signal.SIGKILL)
            worker.wait()
            self._say(f"keyfold was killed, {self._records(output)} records of the large table are published")
        self._debezium.worker.start()
        with self._keyfold() as worker:
            for encoding in self._sources():
                self._debezium.until_running(encoding.name)
            self._round(2)
            self.first.change()
            self._until_read()
            self._say("Debezium has read all changes")
            worker.send(signal.SIGTERM)
            assert worker.wait(LIMIT_S) == 0, worker.tail()

    def _sources(self) -> list[Encoding]:
        """Returns the encodings for which Debezium has a connector."""
        return [encoding for encoding in self.encodings if encoding.has_source]

    def _round(self, number: int) -> None:
        for table in TABLES:
            self._server.run(table.rounds[number])
            if table.name == "keyless":  # in the midst of the others, and before Connect is killed
                self.appended.change()
        self._say(f"round {number + 1} of changes")

    def _until_read(self) -> None:
        """Waits until Debezium has sent all that the database holds now: its slots have confirmed it."""
        (end,) = self._server.run("SELECT pg_current_wal_lsn()").split()

        def are_past() -> bool:
            # A slot moves only with a later change of its database than those that it confirms.
            self._server.run(f"UPDATE {SCHEMA}.fence SET n = n + 1")
            self.first.touch()
            past = f"SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn > '{end}'::pg_lsn"
            return int(self._server.run(past)) == len(self._sources()) + 1

        wait_until(are_past, "Debezium has read the database", LIMIT_S)

    def _records(self, topic: str) -> int:
        ends = end_offsets(self._broker.bootstrap, topic, "read_uncommitted")
        return sum(ends.values())

    def _keyfold(self, failpoints: str = "", *more: str) -> Process:
        settings = [each.keyfold(self._folder / "snapshots") for each in self.encodings]
        settings += [self.first.keyfold(), self.appended.keyfold()]
        files = [self._write(each["name"], each) for each in settings]
        command = ["run", *files, "--worker", self._write("worker", self._worker()), *more]
        return Process(command, self._folder / "keyfold.log", {"KEYFOLD_FAILPOINTS": failpoints})

    def _once(self) -> None:
        with self._keyfold("", "--once") as worker:
            assert worker.wait(LIMIT_S) == 0, worker.tail()

    def _sweep(self, since: str) -> None:
        """Has the first table read from `since` on."""
        files = [self._write(name, each) for name, each in (("cdc", self.first.keyfold()), ("worker", self._worker()))]
        command = ["resync", files[0], "--worker", files[1], "--since", since]
        with Process(command, self._folder / "keyfold.log", {}) as resync:
            assert resync.wait(LIMIT_S) == 0, resync.tail()
        self._say(f"the first table was swept since {since}: it had {len(self.ghosts)} rows that the database has not")

    def _write(self, name: str, settings: Mapping[str, Any]) -> str:
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
        return str(path)

    def _worker(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._broker.bootstrap,
            "storage.location": str(self._folder / "storage"),
            "listeners": "",
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": "2",
            **FAST_START,
        }

    def _compared(self) -> Iterator[Result]:
        for table in TABLES:
            wanted = expected(self._server, table)
            for encoding in self.encodings:
                topic = encoding.topic(table.name)
                yield _result(wanted, encoding, "output", self._output(encoding.output(topic)))
                yield _result(wanted, encoding, "snapshot", self._snapshot(encoding.name, topic))

    def _output(self, topic: str) -> list[bytes]:
        """Returns the value of each key of the output that is not deleted, as a read_committed consumer ends with."""
        latest = {record.key: record.value for record in consume_all(self._broker.bootstrap, topic)}
        return [value for value in latest.values() if value is not None]

    def _snapshot(self, connector: str, topic: str) -> list[bytes]:
        folder = self._folder / "snapshots" / connector / topic
        data = folder / (folder / "LATEST").read_text().strip() / "data"
        return [value for path in sorted(data.glob("*.parquet")) for value in pq.read_table(path)["value"].to_pylist()]

    def _say(self, what: str) -> None:
        self._print(f"{time.monotonic() - self._started:6.0f} s  {what}")


def _result(wanted: Expected, encoding: Encoding, place: str, values: list[bytes]) -> Result:
    return Result(encoding.name, wanted.table.name, place, wanted.count, difference(wanted, encoding, values))
