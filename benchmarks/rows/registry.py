"""All rows by their ids: comparisons of two programs, and measurements of one worker by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from benchmarks.harness.change_events import JSON, ROWS
from benchmarks.harness.row import Comparison, by_id
from benchmarks.peers.change_events import ChangesByConnect, ChangesByKeyfold
from benchmarks.peers.flink import Flink
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.keyfold import Keyfold
from benchmarks.peers.quix_streams import QuixStreams
from benchmarks.peers.reading_only import ReadingOnly
from benchmarks.rows.catalog_commits import CATALOG
from benchmarks.rows.cluster_backlog import CLUSTER_BACKLOG
from benchmarks.rows.connectors import BESIDE, IDLE_20, IDLE_100, MANY, MANY_TENFOLD
from benchmarks.rows.decisions import DECISIONS
from benchmarks.rows.fresh_changes import FRESH_CHANGES, FRESH_TABLES
from benchmarks.rows.fresh_streams import FRESH_STREAMS
from benchmarks.rows.full_fold import FULL_FOLD
from benchmarks.rows.highest_rate import HIGHEST
from benchmarks.rows.hot_partition import HOT_PARTITION
from benchmarks.rows.identity import IDENTITY
from benchmarks.rows.key_index import KEY_INDEX
from benchmarks.rows.keys import GROWTH_ROW, KEYS
from benchmarks.rows.large import LARGE
from benchmarks.rows.look_ups import GET
from benchmarks.rows.open_pages import OPEN_PAGES
from benchmarks.rows.partitions import PARTITIONS
from benchmarks.rows.snapshot_table import READY_TABLE
from benchmarks.rows.sustained import SUSTAINED
from benchmarks.rows.tables import TABLE, TABLE_ICEBERG
from benchmarks.rows.worker import FRESH, FRESH_STORE, IDLE, READY
from benchmarks.rows.write_amplification import WRITTEN
from connectors.kafka.client_settings import CONSUMER_DEFAULTS

KEYFOLD: Final = Keyfold()
INDEXED: Final = Keyfold({"state.index": "always"}, name="keyfold, `state.index=always`")
SMALL_BATCHES: Final = Keyfold(connector={"max.offsets.per.trigger": "1000000", "bootstrap.fold.enable": "false"})
"""A backlog in micro-batches as small as they are once it is read: each is ingested, folded by itself and published."""
STREAMS: Final = KafkaStreams()
STREAMS_1S: Final = KafkaStreams(commit_ms=1_000)
STREAMS_10S: Final = KafkaStreams(commit_ms=10_000)
STREAMS_TABLE_30S: Final = KafkaStreams("table", 30_000)
STREAMS_BEST: Final = KafkaStreams("table", 10_000)
"""The one that read a backlog most quickly of those that `backlog` and its variants have.

With commits each 30 s it has to wait for the next of them once it has read all. `small` took 66 s on a quiet machine
and 105 s on one that ran checks, too, in place of 54 to 67 s (three quiet rounds) and 58 s.
"""
READING: Final = ReadingOnly()
READING_AS_WE: Final = ReadingOnly(CONSUMER_DEFAULTS, "reading only, keyfold's client settings")
QUIX: Final = QuixStreams()
FLINK: Final = {
    "flink": Flink("hashmap", 10),
    "flink-1s": Flink("hashmap", 1),
    "flink-rocksdb": Flink("rocksdb", 10),
    "flink-rocksdb-1s": Flink("rocksdb", 1),
    "flink-last-value": Flink("hashmap", 10, "last_value"),
}

COMPARISONS: Final = by_id(
    (
        Comparison(
            "backlog", "backlog → output topic, exactly once, against Kafka Streams", "small", KEYFOLD, STREAMS, 6, 12
        ),
        Comparison(
            "backlog-1s", "the same against Kafka Streams, commits each 1 s", "small", KEYFOLD, STREAMS_1S, 6, 12
        ),
        Comparison(
            "backlog-10s", "the same against Kafka Streams, commits each 10 s", "small", KEYFOLD, STREAMS_10S, 6, 12
        ),
        Comparison(
            "backlog-table",
            f"5 million records of 100 B, 500,000 keys, 2 partitions, against {STREAMS_BEST.name}",
            "small",
            KEYFOLD,
            STREAMS_BEST,
            6,
            8,
        ),
        Comparison(
            "backlog-table-30s",
            f"the same against {STREAMS_TABLE_30S.name}",
            "small",
            KEYFOLD,
            STREAMS_TABLE_30S,
            6,
            8,
        ),
        Comparison(
            "backlog-20M",
            "20 million records, against the quickest Kafka Streams",
            "20M",
            KEYFOLD,
            STREAMS_BEST,
            8,
            12,
            rounds=1,
        ),
        Comparison("reading", "the same against reading only", "small", KEYFOLD, READING, 0.3, 0.7),
        Comparison(
            "reading-20M",
            "20 million records of 100 B, 2 million keys, 2 partitions, against reading only",
            "20M",
            KEYFOLD,
            READING,
            0.5,
            0.7,
        ),
        Comparison(
            "reading-as-we",
            "the same against reading only with keyfold's client settings",
            "small",
            KEYFOLD,
            READING_AS_WE,
            0.3,
            0.7,
        ),
        Comparison(
            "steady", "micro-batches of ≤ 1 M records, against Kafka Streams", "small", SMALL_BATCHES, STREAMS, 4, 8
        ),
        Comparison("backlog-1KiB", "values of 1 KiB, against Kafka Streams", "1KiB", KEYFOLD, STREAMS, 5, 8),
        Comparison(
            "backlog-unique",
            f"10 million records of 100 B, each key once, 2 partitions, against {STREAMS_BEST.name}",
            "unique",
            KEYFOLD,
            STREAMS_BEST,
            3,
            5,
        ),
        Comparison("backlog-zipf", "Zipf keys, against Kafka Streams", "zipf", KEYFOLD, STREAMS, 6, 12),
        Comparison("tombstones", "90 % tombstones, against reading only", "tombstones", KEYFOLD, READING, 0.3, 0.7),
        Comparison(
            "backlog-1",
            f"10 million records of 100 B, a million keys, one partition, against {STREAMS_BEST.name}",
            "1-partition",
            KEYFOLD,
            STREAMS_BEST,
            6,
            8,
        ),
        Comparison(
            "backlog-64",
            f"10 million records of 100 B, a million keys, 64 partitions, against {STREAMS_BEST.name}",
            "64-partitions",
            KEYFOLD,
            STREAMS_BEST,
            5,
            8,
        ),
        Comparison(
            "change-events",
            "change events in Avro → rows, key identity `avro`, against Kafka Connect into a file",
            "change-events",
            ChangesByKeyfold(),
            ChangesByConnect(),
            1,
            3,
        ),
        Comparison(
            "change-events-json",
            "change events in JSON with schemas → rows, key identity `json`, against Kafka Connect into a file",
            "change-events-json",
            ChangesByKeyfold(JSON),
            ChangesByConnect(JSON),
            1.5,
            3,
        ),
        Comparison(
            "change-rows",
            "rows in plain JSON, key identity `json`, against Kafka Connect into a file",
            "change-rows",
            ChangesByKeyfold(ROWS),
            ChangesByConnect(ROWS),
            1.5,
            3,
        ),
        Comparison(
            "backlog-indexed",
            "the same with `state.index=always`, against keyfold without an index",
            "small",
            INDEXED,
            KEYFOLD,
            0.95,
            1,
        ),
        Comparison("backlog-quix", "500,000 records, against Quix Streams", "500k", KEYFOLD, QUIX, 1, 1),
        *(
            Comparison(f"backlog-{name}", f"backlog, against {peer.name}", "small", KEYFOLD, peer, 1, 1)
            for name, peer in FLINK.items()
        ),
    )
)

MEASUREMENTS: Final = by_id(
    (
        READY,
        IDLE,
        IDLE_20,
        IDLE_100,
        OPEN_PAGES,
        FRESH,
        FRESH_STORE,
        FRESH_STREAMS,
        FRESH_CHANGES,
        FRESH_TABLES,
        TABLE,
        TABLE_ICEBERG,
        MANY,
        MANY_TENFOLD,
        BESIDE,
        *SUSTAINED,
        HIGHEST,
        GET,
        READY_TABLE,
        IDENTITY,
        KEY_INDEX,
        KEYS,
        GROWTH_ROW,
        PARTITIONS,
        *LARGE,
        HOT_PARTITION,
        CLUSTER_BACKLOG,
        DECISIONS,
        FULL_FOLD,
        CATALOG,
        WRITTEN,
    )
)

PAGE: Final[Mapping[str, float]] = {
    "backlog-table": 1.5,
    "backlog-unique": 2.4,
    "backlog-64": 2.1,
    "backlog-1": 4.3,
    "reading-20M": 1.3,
    "ready": 0.2,
    "many": 1.9,
    "idle-20": 3.4,
    "sustained-highest": 45.0,
    "fold": 1.6,
}
"""The rows of docs/performance.md, and minutes that a round of each takes on two cores, with filling and starts.

`sustained-highest` takes 35 if its first long windows stay flat, and 10 more for each that does not, of which most
rounds have one.
"""


def minutes_of(names: Iterable[str], rounds: int) -> dict[str, float]:
    """Returns by row how many minutes `rounds` rounds take; of rows that PAGE lacks it is not known."""
    return {name: PAGE[name] * rounds for name in names if name in PAGE}
