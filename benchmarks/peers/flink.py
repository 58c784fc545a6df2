"""Apache Flink as a peer: one statement of Flink SQL in a mini-cluster, in the JVM that PyFlink starts.

`LAST_VALUE` takes no BYTES ("does not support type: ''VARBINARY''"), and ignores nulls, so tombstones. The statement is
therefore Flink's own pattern for the last row of a key, `ROW_NUMBER() … = 1` in the order of processing time, which the
planner turns into a `Deduplicate(keep=[LastRow])`: it holds the last value of each key in state, takes bytes and gives
tombstones on. `LAST_VALUE … GROUP BY` is there too, over strings in ISO-8859-1, which are any bytes, one to one.

The settings, and the page of Flink's documentation (release 2.0) that they are from:

- Exactly once: `sink.delivery-guarantee`, and a prefix of transactions that no other job has (Upsert Kafka). Output is
  visible from the checkpoint on whose completion its transaction is committed. `transaction.timeout.ms` is to be much
  longer than a checkpoint and a restart (Kafka, Fault Tolerance): here the most that a broker allows, as Flink's own
  default is longer than that and is refused.
- Checkpoints every 1 s or 10 s, on disk, aligned, as is the default. With RocksDB they are incremental: "one of the
  first considerations" (Tuning Checkpoints and Large State).
- Mini-batches (Performance Tuning): one access to state, and one record of output, for each key of a batch. A million
  records of 100,000 keys took 51 s of processor time in batches of 5,000, the page's example, 36 s of 50,000, and 35 s
  of 200,000: one run each. A checkpoint ends a batch too; the latency counts for `LAST_VALUE` alone.
- `pipeline.object-reuse`: operators of a chain hand rows on without copying them (Configuration).
- Managed memory: none with hashmap, as recommended, and with RocksDB 1 GiB, all of it RocksDB's: "the first step"
  (State Backends; Tuning Checkpoints and Large State). Locally nothing but the JVM's own option bounds the heap, and
  managed memory would be 128 MiB (Set up TaskManager Memory, Local Execution). RocksDB's comes on top of the heap.
- A parallelism of 2, as Kafka Streams has 2 threads. No restarts: a job that fails has to end the program.

`table.exec.deduplicate.insert-update-after-sensitive-enabled` stays true, its default. The output would be the same
without, but Flink would keep no state at all, and send on the last record of a key in each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Final, Literal, TypeAlias
from uuid import uuid4

import msgspec
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from msgspec import Struct

from benchmarks.harness.process import Used, running
from benchmarks.harness.row import HEAP
from benchmarks.harness.topics import admin, committed_to_end, create_topic, end_offsets
from benchmarks.peers.flink_install import flink_python, kafka_connector

_MANAGED: Final = "1g"
_PARALLELISM: Final = 2
_BATCH_RECORDS: Final = 200_000
_BATCH_LATENCY: Final = "1 s"
_TRANSACTION_MS: Final = 900_000
"""transaction.max.timeout.ms of a broker, by default."""
_TIMEOUT_S: Final = 30.0
_PROGRAM: Final = Path(__file__).with_name("flink_latest.py")

State: TypeAlias = Literal["hashmap", "rocksdb"]
Query: TypeAlias = Literal["deduplicate", "last_value"]

_DEDUPLICATE: Final = """INSERT INTO output SELECT k, v FROM
(SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY arrival DESC) AS place FROM source) WHERE place = 1"""
_LAST_VALUE: Final = "INSERT INTO output SELECT k, LAST_VALUE(v) FROM source GROUP BY k"


class Job(Struct, frozen=True, kw_only=True):
    """What flink_latest.py runs: the heap of its JVM, the folder of its log, Flink's settings, and statements."""

    heap: str
    folder: str
    settings: dict[str, str]
    statements: list[str]


class Flink:
    """Keeps the latest value of each key in `state`, with a checkpoint every `interval_s` seconds; exactly once."""

    def __init__(self, state: State, interval_s: int, query: Query = "deduplicate") -> None:
        self.name = f"Flink SQL, {state}, {interval_s} s" + (", LAST_VALUE" if query == "last_value" else "")
        self._state: State = state
        self._interval_s = interval_s
        self._query: Query = query

    @property
    def starts_as(self) -> Flink:
        """See Peer: to wait for the first checkpoint is no part of a start."""
        return Flink(self._state, 1, self._query)

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        python, connector = flink_python(), kafka_connector()
        group = f"flink-{uuid4().hex[:8]}"
        output = f"{group}-out"
        create_topic(bootstrap, output, len(end_offsets(bootstrap, topic)), "compact")
        job = Job(
            heap=HEAP,
            folder=str(folder),
            settings=settings(self._state, self._interval_s, connector, folder),
            statements=statements(self._query, bootstrap, topic, output, group),
        )
        file = folder / "job.json"
        file.write_bytes(msgspec.json.encode(job))
        with running([str(python), str(_PROGRAM), str(file)], folder / "flink.log") as started:
            return started.used(published(bootstrap, group, topic, output))


def settings(state: State, interval_s: int, connector: Path, folder: Path) -> dict[str, str]:
    """Returns Flink's settings, with all files in `folder`; the docstring of the module says why."""
    return {
        "pipeline.jars": connector.as_uri(),
        "parallelism.default": str(_PARALLELISM),
        "pipeline.object-reuse": "true",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": _BATCH_LATENCY,
        "table.exec.mini-batch.size": str(_BATCH_RECORDS),
        "execution.checkpointing.interval": f"{interval_s} s",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.incremental": str(state == "rocksdb").lower(),
        "state.backend.type": state,
        "taskmanager.memory.managed.size": _MANAGED if state == "rocksdb" else "0",
        "io.tmp.dirs": str(folder),
        "restart-strategy.type": "none",
    }


def statements(query: Query, bootstrap: str, topic: str, output: str, group: str) -> list[str]:
    """Returns the statements that make the tables of both topics, and last the one that runs."""
    kind = "BYTES" if query == "deduplicate" else "STRING"
    both = {
        "properties.bootstrap.servers": bootstrap,
        "key.format": "raw",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
    }
    if query == "last_value":
        both |= {"key.raw.charset": "ISO-8859-1", "value.raw.charset": "ISO-8859-1"}
    source = {
        "connector": "kafka",
        "topic": topic,
        "properties.group.id": group,
        "scan.startup.mode": "earliest-offset",
        "key.fields": "k",
    }
    sink = {
        "connector": "upsert-kafka",
        "topic": output,
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": group,
        "properties.transaction.timeout.ms": str(_TRANSACTION_MS),
    }
    return [
        f"CREATE TABLE source (k {kind}, v {kind}, arrival AS PROCTIME()) WITH ({_options(source | both)})",
        f"CREATE TABLE output (k {kind}, v {kind}, PRIMARY KEY (k) NOT ENFORCED) WITH ({_options(sink | both)})",
        _DEDUPLICATE if query == "deduplicate" else _LAST_VALUE,
    ]


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def published(bootstrap: str, group: str, topic: str, output: str) -> Callable[[], bool]:
    """Returns a condition: the output of all that `topic` holds now is committed.

    Flink commits the positions when a checkpoint is complete, beside the transactions of the output rather than in
    them: the positions say that all output is written, but the last of its transactions may end after that.
    """
    reached = committed_to_end(bootstrap, group, topic)
    return lambda: reached() and _all_committed(bootstrap, output)


def _all_committed(bootstrap: str, topic: str) -> bool:
    """Whether `topic` has no record of a transaction that is still open."""
    ends = end_offsets(bootstrap, topic)
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in ends}
    answers = admin(bootstrap).list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
    wait(answers.values(), _TIMEOUT_S)
    return all(answer.result(_TIMEOUT_S).offset >= ends[one.partition] for one, answer in answers.items())
