from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from compactor.catalog.owner_lock import OwnerLock, this_process
from compactor.model.actions import AddSnapshot, AddTopic, AnyAction, CloseTopic, Publish
from compactor.model.fence import Fence
from compactor.model.log import Gap, PartitionLog, Quarantined, Run
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic, apply
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.snapshot import location
from compactor.snapshot.location import SnapshotFailure
from compactor.storage.locations import open_storage
from connectors.chain.order_field import sortable
from connectors.cli.views import describe as describe_view
from connectors.cli.views.describe import text
from connectors.config.files import load_connector
from connectors.known_values import remember_setting
from connectors.operations import describe as operation
from connectors.operations import source_ends
from connectors.operations.describe import describing
from connectors.operations.source_ends import Ends
from connectors.runtime.left_out import STILL_THERE
from connectors.runtime.status import StatusContent, StatusFile
from connectors.source.source_errors import RECREATED
from connectors.transforms.transform import SWEEP
from tests.support import logs
from tests.support.cli import NAME, connector_file, invoke, keep, row, storage_of, worker_file
from tests.support.clocks import ManualClock

FENCE = "tombstones keep late records from bringing their keys back"
DESCRIPTION = operation.Description(
    format_version=1,
    connector="c",
    catalog_id="i",
    catalog_version=1,
    order="offset",
    scope="partition",
    owner=operation.OwnerDescription(alive=False, name="h:1", epoch=2),
    status=None,
    broker_error=None,
    snapshots=None,
    topics=(),
    partitions=(),
)
"""Of a connector that nobody runs and that has nothing yet."""
SETTINGS = EngineSettings(connector="c", policy=CompactionPolicy())
ROWS = [row(0, b"a", b"1"), row(1, b"b", None), row(3, None, b"x", rejected="null key"), row(4, b"a", b"22")]
PUBLISH = Publish(topic="orders", partition=0, end=5)
SNAPSHOT = AddSnapshot(
    topic="orders",
    id="20261121T023000Z-ab",
    path="orders/20261121T023000Z-ab",
    created_ms=5,
    source_offsets={"0": 5},
    records=1,
    bytes=9,
)


def _described(folder: Path, *actions: AnyAction) -> dict[str, Any]:
    keep(folder, ROWS, actions)
    result = invoke("describe", connector_file(folder), "--worker", worker_file(folder), "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def _run(start: int, end: int, size: int, level: int = 0) -> Run:
    return Run(start=start, end=end, level=level, files=(), records=1, bytes=size)


def _log(published: int, base: Run | None, *runs: Run, gaps: tuple[Gap, ...] = ()) -> PartitionLog:
    end = max((run.end for run in runs), default=published)
    clean = base.end if base else 0
    return PartitionLog(
        topic="t",
        partition=0,
        bucket=0,
        start=0,
        end=end,
        folded_end=published,
        published=published,
        clean_end=clean,
        base=base,
        runs=runs,
        gaps=gaps,
    )


def test_lag_is_what_is_not_published() -> None:
    """The source's end less the published offset; unknown where the end is, never below nothing."""
    log = _log(10, None, _run(0, 12, 1), gaps=(Gap(2, 5),))
    state = CatalogState(logs=(log,))
    known, unknown, behind = (
        operation.partitions(state, ends, SETTINGS, 0)[0] for ends in ({log.tp: 15}, {}, {log.tp: 7})
    )
    assert (known.source_end, known.lag, known.ingested, known.lost_offsets) == (15, 5, 12, 3)
    assert (unknown.source_end, unknown.lag) == (None, None)
    assert behind.lag == 0


def test_partitions_stand_in_their_order() -> None:
    """By topic, then by number, not as text and not as they were found."""
    order = [("b", 0), ("a", 10), ("a", 2)]
    logs = tuple(
        PartitionLog(topic=t, partition=p, bucket=0, start=0, end=0, folded_end=0, published=0, clean_end=0)
        for t, p in order
    )
    listed = [(each.topic, each.partition) for each in operation.partitions(CatalogState(logs=logs), {}, SETTINGS, 0)]
    assert listed == [("a", 2), ("a", 10), ("b", 0)]


def test_what_the_cleaner_would_do_is_shown_and_who_is_set_aside() -> None:
    """A word and a sentence for each log; one in quarantine with its error, and when it is looked at again."""
    held = Quarantined(since_ms=0, retry_ms=60_000, failures=1, error="x is gone.", publishing=True)
    logs = tuple(replace(_log(10, None, _run(0, 10, 100)), partition=n, quarantine=held if n else None) for n in (0, 1))
    shown = operation.partitions(CatalogState(logs=logs), {}, SETTINGS, 0)
    assert [one.fold.reason for one in shown] == ["nothing to do", "quarantined"]
    assert "release" in shown[1].fold.text
    assert list(describe_view.partitions_aside(shown)) == [
        "Set aside since 1970-01-01T00:00:00Z: t-1, not folded, nothing more of it is published. x is gone.",
        "  failed 1 times; looked at again at 1970-01-01T00:01:00Z",
    ]


@pytest.mark.parametrize(
    ("end", "word"), [(10, "nothing to do"), (6_942, "waits for publish"), (None, "nothing to do")]
)
def test_where_records_wait_to_be_published_there_is_something_to_do(end: int | None, word: str) -> None:
    """Beside a lag the fold waits for it; where the lag is unknown nothing is said of it."""
    log = _log(10, _run(0, 10, 9, level=-1))
    ends = {} if end is None else {log.tp: end}
    (shown,) = operation.partitions(CatalogState(logs=(log,)), ends, SETTINGS, 0)
    assert shown.fold.reason == "nothing to do"
    assert describe_view.partition_row(shown)[-1] == word


@pytest.mark.parametrize(
    ("closed", "found", "news"),
    [
        (None, "id", None),
        (None, "other", "recreated"),
        (None, None, "deleted"),
        ("deleted", None, None),
        ("deleted", "id", None),
        ("deleted", "other", "recreated"),
        ("no longer named", "other", None),
        ("no longer named", None, None),
    ],
)
def test_what_became_of_a_topic_is_told_by_its_id(closed: str | None, found: str | None, news: str | None) -> None:
    """Where the catalog does not say it already; nobody asks for a topic that is no longer named."""
    topic = Topic(topic="t", topic_id="id", output=None, output_id=None, closed=closed)
    state = CatalogState(topics={"t": topic})
    assert operation.changed(state, {"t": found}).get("t") == news
    assert operation.changed(state, {}) == {}


def test_the_newest_snapshot_of_each_topic_is_shown() -> None:
    """The one that was committed last, as LATEST names it: the clock may have been set back since the one before."""
    topic = AddTopic(topic="orders", topic_id="i", output=None, output_id=None)
    later = AddSnapshot(topic="orders", id="later", path="p", created_ms=1, source_offsets={}, records=0, bytes=0)
    assert SNAPSHOT.created_ms > later.created_ms
    shown = operation.topics(apply(CatalogState(), [topic, SNAPSHOT, later]), {}, {})[0].newest_snapshot
    assert shown is not None
    assert shown.id == later.id


def test_the_error_in_a_status_is_shown_without_secrets() -> None:
    """A store may say what it likes in the place of the worker's file."""
    remember_setting("Token-of-the-store-4711", is_secret=True, over_rest=False)
    status = operation.worker_status(StatusContent(state="FAILED", error="sent Token-of-the-store-4711"), 0)
    assert status is not None
    assert status.error == "sent [hidden]"


@pytest.mark.parametrize(
    "content",
    [
        b"garbage",
        b"[1]",
        b"\xff",
        b'{"updated_ms": "x"}',
        b'{"updated_ms": 99999999999999999}',
        b'{"next_restart_ms": -1}',
        b'{"counters": {"batches": "many"}}',
        b'{"counters": {"batches\\nState: RUNNING": 1}}',
        b'{"counters": {"batches": 1' + b"0" * 5_000 + b"}}",
        b'{"state": "RUNNING\\nError: none"}',
        b'{"state": ["RUNNING"]}',
        b'{"failures": 1e400}',
        b'{"error": "' + b"x" * 200_000 + b'"}',
        b'{"more": ' + b"[" * 50_000,
        b" " * (2 << 20),
    ],
    ids=range(15),
)
def test_a_status_that_cannot_be_read_is_said(tmp_path: Path, content: bytes) -> None:
    """An account that may write to the store has written it: all else is described, and no defect is to be reported."""
    keep(tmp_path, ROWS, [PUBLISH])
    storage_of(tmp_path).write("status.json", content)
    result = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    assert (result.exit_code, "report it" in result.output) == (0, False), result.output
    assert f"Error: {storage_of(tmp_path).location}/status.json" in result.stdout
    assert "orders" in result.stdout


def test_the_error_in_a_status_looks_like_no_line_of_ours(tmp_path: Path) -> None:
    """It may have several lines, and anything in them."""
    keep(tmp_path, ROWS, [PUBLISH])
    storage_of(tmp_path).write("status.json", b'{"error": "a\\nState: RUNNING\\u001b[2J"}')
    result = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    assert "Error: a\n  State: RUNNING\\x1b[2J\n" in result.stdout


def test_the_error_of_a_quarantine_is_shown_without_secrets() -> None:
    """It was read from the store, as an error had it: an error of Spark's, or what a decoder has said."""
    held = Quarantined(since_ms=0, retry_ms=1, failures=1, error="refused: sasl.password=geheim-4711")
    log = replace(_log(10, None, _run(0, 10, 100)), quarantine=held)
    (shown,) = operation.partitions(CatalogState(logs=(log,)), {}, SETTINGS, 0)
    assert shown.quarantine is not None
    assert shown.quarantine.error == "refused: sasl.password=[hidden]"
    assert "4711" not in repr(shown)


@pytest.mark.parametrize(("age_ms", "stale"), [(0, False), (operation.STALE_MS, False), (operation.STALE_MS + 1, True)])
def test_an_old_status_is_marked_stale(age_ms: int, stale: bool) -> None:
    """What a worker said half a minute ago may no longer be so."""
    found = operation.worker_status(StatusContent(state="RUNNING", updated_ms=1_000), 1_000 + age_ms)
    assert found is not None
    assert found.stale is stale


def test_describe_shows_offsets_runs_and_counts(tmp_path: Path) -> None:
    """Everything of a log that the catalog knows, without a broker."""
    found = _described(tmp_path, PUBLISH, SNAPSHOT)
    partition = found["partitions"][0]
    expected = {
        "topic": "orders",
        "partition": 0,
        "source_end": None,
        "lag": None,
        "ingested": 5,
        "published": 5,
        "clean_end": 0,
    }
    expected |= {
        "runs": 1,
        "records": 4,
        "bytes": 7,
        "dirty_ratio": 1.0,
        "tombstones": 1,
        "rejected": 1,
        "lost_offsets": 0,
        "quarantine": None,
        "generation": 1,
        "generation_start": None,
        "waits_for": None,
        "first_horizon_ms": None,
    }
    fold = partition.pop("fold")
    assert partition == expected
    assert (fold["reason"], fold["text"][:4]) == ("interval passed", "Due ")
    assert found["topics"][0]["newest_snapshot"]["source_offsets"] == {"0": 5}
    assert found["owner"] == {"alive": False, "name": "tester:1", "epoch": 1}


def test_describe_says_why_there_are_no_source_ends(tmp_path: Path) -> None:
    """No broker: the lag is unknown, the rest is there, and the exit code is 0."""
    assert _described(tmp_path)["broker_error"]


def test_describe_works_beside_a_live_owner(tmp_path: Path) -> None:
    """It takes nothing over, and says that a worker is running."""
    lock = OwnerLock(storage_of(tmp_path))
    assert lock.claim(this_process(1))
    try:
        found = _described(tmp_path)
    finally:
        lock.release()
    assert (found["owner"]["alive"], found["owner"]["epoch"], found["catalog_version"]) == (True, 1, 2)


def test_describe_shows_what_the_worker_said(tmp_path: Path) -> None:
    """State, counters and error of status.json, as the worker wrote it."""
    clock = ManualClock(500)
    status = StatusFile(open_storage(str(tmp_path / "store")).sub(NAME), clock)
    status.start()
    clock.advance(500)
    status.report({"records_read": 7}, worked=False)
    found = _described(tmp_path)["status"]
    assert (found["state"], found["counters"], found["stale"]) == ("RUNNING", {"records_read": 7}, True)
    assert found["counted_since_ms"] == 500


def test_describe_names_the_snapshots_of_another_catalog(tmp_path: Path) -> None:
    """What stands in the topic's folder and is not this catalog's is for a person to know of: nothing removes it."""
    keep(tmp_path, ROWS, (PUBLISH, SNAPSHOT))
    shelf = tmp_path / "snapshots" / NAME / "orders"
    for one in (SNAPSHOT.id, "20250101T000000Z-ab", "LATEST", "notes"):
        (shelf / one / "data").mkdir(parents=True)
    connector = connector_file(tmp_path, **{"snapshot.location": str(tmp_path / "snapshots")})
    asked = ("describe", connector, "--worker", worker_file(tmp_path))
    assert json.loads(invoke(*asked, "--json").stdout)["topics"][0]["other_snapshots"] == ["20250101T000000Z-ab"]
    assert "of orders that are another catalog's, and left as they are: 20250101T000000Z-ab\n" in invoke(*asked).stdout
    (shelf / SNAPSHOT.id).parent.rename(tmp_path / "away")
    shelf.touch()
    assert json.loads(invoke(*asked, "--json").stdout)["topics"][0]["other_snapshots"] == []


def test_describe_shows_why_there_is_no_snapshot(tmp_path: Path) -> None:
    """As the worker noted it in the connector's folder; nothing where snapshots can be written."""
    assert _described(tmp_path)["snapshots"] is None
    trouble = SnapshotFailure(since_ms=0, retry_ms=60_000, failures=2, error="No space left.")
    location.write_note(open_storage(str(tmp_path / "store")).sub(NAME), trouble)
    found = json.loads(invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path), "--json").stdout)
    assert found["snapshots"] == {"since_ms": 0, "retry_ms": 60_000, "failures": 2, "error": "No space left."}


def test_describe_of_a_connector_that_never_ran_says_so(tmp_path: Path) -> None:
    """No catalog is no error, and none is made; the folder is named, as it may be another than was meant."""
    result = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path))
    folder = tmp_path / "store" / NAME
    said = (
        f"Connector {NAME} keeps nothing here: there is no catalog in {folder}.\n"
        "It has not run yet, or its storage is lost or elsewhere (docs/operating.md says what to do then).\n"
    )
    assert (result.exit_code, result.stdout) == (0, said)
    assert not (tmp_path / "store").exists()


def test_a_connector_whose_file_is_at_fault_is_described(tmp_path: Path) -> None:
    """It may run by what was read before; what is wrong stands in the log, and what cannot be read is an error."""
    keep(tmp_path, ROWS, (PUBLISH,))
    worker = worker_file(tmp_path)
    wrong = {"tasks.max": "many", "transforms": "r", "transforms.r.type": "None", "no.such.key": "1"}
    done = invoke("describe", connector_file(tmp_path, **wrong), "--worker", worker)
    assert (done.exit_code, "last owner tester:1" in done.stdout) == (0, True), done.stderr
    assert "tasks.max" in done.stderr
    assert invoke("describe", connector_file(tmp_path, name="not a name"), "--worker", worker).exit_code == 3


@pytest.mark.parametrize("text", ['{"name": "c", "topics": ', "", "[]", f'{{"name": "{NAME}"}}'])
def test_a_connector_whose_file_cannot_be_read_is_described_by_its_name(tmp_path: Path, text: str) -> None:
    """It may run by what the file said before; the warning says what is wrong, and that settings are guessed."""
    keep(tmp_path, ROWS, (PUBLISH,))
    file = tmp_path / f"{NAME}.json"
    file.write_text(text)
    done = invoke("describe", file, "--worker", worker_file(tmp_path))
    assert (done.exit_code, "last owner tester:1" in done.stdout) == (0, True), done.stderr
    assert "described by its file's name, with default settings" in done.stderr
    file.unlink()
    assert invoke("describe", file, "--worker", worker_file(tmp_path)).exit_code == 3


def test_a_name_in_the_file_weighs_more_than_the_files_own(tmp_path: Path) -> None:
    """Of another connector nothing is shown."""
    keep(tmp_path, ROWS, (PUBLISH,))
    file = tmp_path / f"{NAME}.json"
    file.write_text('{"name": "another"}')
    done = invoke("describe", file, "--worker", worker_file(tmp_path))
    assert (done.exit_code, done.stdout) == (3, "")


def test_people_read_the_same_as_programs(tmp_path: Path) -> None:
    """The tables hold the partition's numbers, the closed topic's reason and the snapshot's id."""
    keep(tmp_path, ROWS, (PUBLISH, SNAPSHOT, CloseTopic(topic="orders", reason="deleted")))
    shown = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path)).stdout
    assert "no worker is running; last owner tester:1, epoch 1" in shown
    assert "no: deleted" in shown
    assert SNAPSHOT.id in shown
    line = next(line for line in shown.splitlines() if line.startswith("orders") and "compacted" not in line)
    assert line.split() == [
        "orders",
        "0",
        "-",
        "5",
        "5",
        "-",
        "0",
        "1",
        "4",
        "7",
        "1.00",
        "1",
        "1",
        "0",
        "interval",
        "passed",
    ]


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (
            {"state": "FAILED", "error": "Broker away.", "failures": 3, "next_restart_ms": 60_000},
            [
                "Error: Broker away.",
                "Restart: after 3 failures, by 1970-01-01T00:01:00Z",
            ],
        ),
        (
            {"state": "RUNNING", "failures": 3},
            ["Restarts: 3 in a row; forgotten once it has worked"],
        ),
        ({"state": "FAILED", "error": "Damaged.", "failures": 1}, ["Error: Damaged."]),
        (
            {
                "state": "RESTARTING",
                "error": "Away.",
                "failures": 1,
                "waiting_since_ms": 1_000,
                "next_restart_ms": 60_000,
            },
            [
                "Error: Away.",
                "Waits: what the error names has not answered since 1970-01-01T00:00:01Z, 4 seconds",
                "Restart: after 1 failures, by 1970-01-01T00:01:00Z",
            ],
        ),
        ({"state": "STOPPED", "failures": 1}, []),
        (
            {"state": "RUNNING", "counters": {"records_read": 7, "batches": 0}, "counted_since_ms": 60_000},
            ["Counted since 1970-01-01T00:01:00Z:", "  read:      records read 7"],
        ),
        ({"state": "RUNNING", "failures": 0}, []),
        (
            {"state": "RUNNING", "counters": {"truncates": 2}, "counted_since_ms": 60_000},
            [
                "Counted since 1970-01-01T00:01:00Z:",
                "  read:      truncates 2",
                f"Warning: 2 truncates were dropped: {STILL_THERE} {SWEEP}",
            ],
        ),
    ],
)
def test_a_failed_connector_shows_error_and_restart(said: dict[str, object], lines: list[str]) -> None:
    """What failed, how often, and when it is tried again; also when it runs again; so for snapshots.

    Where it was not started again there was no restart. Counts say since when.
    """
    owner = operation.OwnerDescription(alive=True, name="h:1", epoch=2)
    shown = replace(
        DESCRIPTION,
        owner=owner,
        status=operation.worker_status(msgspec.convert(said, StatusContent), 5_000),
        snapshots=SnapshotFailure(since_ms=0, retry_ms=60_000, failures=2, error="No space left."),
    )
    assert text(shown, 5_000, "store").splitlines()[1:] == [
        f"State: {said['state']}, said 5 seconds ago",
        *lines,
        "No snapshot since 1970-01-01T00:00:00Z, 2 failed: No space left.",
        "  tried again at 1970-01-01T00:01:00Z; everything else goes on",
    ]


@pytest.mark.parametrize(
    ("order", "tombstones", "horizon_ms", "said"),
    [
        ("offset", 2, 5_000, None),
        ("timestamp", 0, None, "timestamp; no tombstones"),
        ("header:v", 2, None, f"header:v; 2 {FENCE}, none has its delete horizon yet"),
        ("timestamp", 2, 5_000, f"timestamp; 2 {FENCE}, the first of them until 1970-01-01T00:00:05Z"),
    ],
)
def test_another_order_than_the_offset_is_shown(
    order: str, tombstones: int, horizon_ms: int | None, said: str | None
) -> None:
    """With what keeps late records from bringing deleted keys back, and until when."""
    base = replace(_run(0, 9, 9, level=-1), tombstones=tombstones, next_horizon_ms=horizon_ms)
    log = replace(_log(9, base), output=None)
    topic = Topic(topic="t", topic_id="i", output=None, output_id=None)
    state = CatalogState(order=order, topics={"t": topic}, logs=(log,))
    (partition,) = operation.partitions(state, {}, SETTINGS, 0)
    assert partition.first_horizon_ms == horizon_ms
    described = replace(DESCRIPTION, order=order, partitions=(partition,))
    lines = [each for each in text(described, 5_000, "store").splitlines() if each.startswith("Order")]
    assert lines == ([] if said is None else [f"Order: by {said}"])


def test_an_applied_truncate_is_shown_with_its_value_of_the_order() -> None:
    """What comes with a lower one is late; an lsn of another cluster, which makes all late, is seen there."""
    fence = Fence(sortable(25_000_020) or b"", {1: 7})
    emptied = Topic(topic="t", topic_id="i", output=None, output_id=None, fence=fence)
    other = Topic(topic="u", topic_id="j", output=None, output_id=None)
    shown = operation.topics(CatalogState(topics={"t": emptied, "u": other}), {}, {})
    assert [topic.truncate_order for topic in shown] == ["25000020", None]
    described = replace(DESCRIPTION, order="field:source.lsn", topics=shown)
    lines = [each for each in text(described, 0, "store").splitlines() if each.startswith("Truncated")]
    assert lines == ["Truncated: t, at 25000020; what comes with a lower value is late"]


def test_the_logs_of_a_topic_with_one_winner_are_due_together() -> None:
    """By the dirty ratio of all, and none while a fold is sent in part; scope and order by time are shown."""
    clean = logs.log(clean=logs.base(9, 900), tp=TopicPartition("t", 1))
    dirty = logs.log(logs.run(0, 9, 90), tp=TopicPartition("t", 0))
    topic = Topic(topic="t", topic_id="i", output="o", output_id="i", outputs=2)
    state = CatalogState(scope="topic", topics={"t": topic}, logs=(dirty, clean))

    def reasons(state: CatalogState) -> list[str]:
        return [each.fold.reason for each in operation.partitions(state, {}, SETTINGS, 0)]

    assert reasons(replace(state, scope="partition")) == ["dirty enough", "nothing to do"]
    assert reasons(state) == ["clean enough"] * 2
    assert reasons(replace(state, logs=(dirty, replace(clean, end=12, folded_end=12)))) == ["topic waits"] * 2
    described = replace(
        DESCRIPTION, order=state.order, scope=state.scope, partitions=operation.partitions(state, {}, SETTINGS, 0)
    )
    shown = text(described, 5_000, "store").splitlines()
    assert [each for each in shown if each.startswith(("Scope", "Order"))] == [
        "Scope: topic; a key has one winner over all partitions", "Order: by timestamp; no tombstones",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("alive", "age_ms", "state", "line"),
    [
        (False, 5_000, "RUNNING", "State: none, as no worker is running; the last one said RUNNING 5 seconds ago"),
        (False, 5_000, "STOPPED", "State: STOPPED, said 5 seconds ago"),
        (True, 5_000, "RUNNING", "State: RUNNING, said 5 seconds ago"),
        (
            True,
            31_000,
            "RUNNING",
            "State: not known; the worker that is running said RUNNING 31 seconds ago (stale), and nothing since",
        ),
    ],
)
def test_a_state_that_nobody_says_any_more_is_none(*, alive: bool, age_ms: int, state: str, line: str) -> None:
    """What was said last is shown as that: after `kill -9` nothing runs; on a full disk the file is never newer."""
    shown = replace(
        DESCRIPTION,
        owner=operation.OwnerDescription(alive=alive, name="h:1", epoch=2),
        status=operation.worker_status(StatusContent(state=state), age_ms),
    )
    assert text(shown, age_ms, "store").splitlines()[1] == line


def test_what_the_broker_refused_shows_no_secret(tmp_path: Path) -> None:
    """What librdkafka says of a broker may quote an address with a password in it."""
    catalog = keep(tmp_path, [row(0, b"a", b"1")])
    config = load_connector(connector_file(tmp_path)).config
    ends = Ends({}, "GET https://user:hunter2@host/token?client_secret=hunter2 failed")
    found = describing(catalog, config, ends, {}, 0)
    assert found.broker_error == "GET https://[hidden]@host/token?client_secret=[hidden] failed"


def test_a_topic_that_is_set_aside_is_shown_with_what_can_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a topic of its name ends now is not asked: it says nothing of our offsets."""
    asked: list[list[TopicPartition]] = []

    def ends(_worker: object, _connector: object, tps: list[TopicPartition]) -> Ends:
        asked.append(tps)
        return Ends({}, None)

    monkeypatch.setattr(operation, "source_ends", ends)
    keep(tmp_path, [row(0, b"k", b"v")], [CloseTopic(topic="orders", reason=RECREATED)])
    shown = invoke("describe", connector_file(tmp_path), "--worker", worker_file(tmp_path)).stdout
    assert "no: recreated" in shown
    assert "Set aside: topic orders, another topic has its name now, by its id" in shown
    assert "a connector of its own" in shown
    assert asked == [[]]


def test_counts_have_a_line_for_each_kind_of_work() -> None:
    """Two dozen in one line are hard to read; one of a newer worker is shown too, and what is 0 is not."""
    counters = {"new": 1, "merges": 2, "records_read": 3_000, "snapshots": 0, "fold_ms": 5, "batches": 6}
    assert list(describe_view.counter_lines(counters)) == [
        "  read:      batches 6, records read 3,000",
        "  folded:    merges 2, fold ms 5",
        "  other:     new 1",
    ]


@pytest.mark.parametrize(
    ("ids", "error"), [({"a": "1", "b": None}, None), ({"a": "1", "b": "2"}, "unknown"), ({}, "unknown")]
)
def test_a_topic_that_is_gone_has_no_end_without_an_error(ids: dict[str, str | None], error: str | None) -> None:
    """Its row says that it is gone; where that is not known, why its end is not."""
    found: dict[TopicPartition, int | str] = {TopicPartition("a", 0): 5, TopicPartition("b", 0): "unknown"}
    assert source_ends.ends(found, ids) == Ends({TopicPartition("a", 0): 5}, error, ids)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"name": "c", "topics": "orders",}', "line 1, column 33: this is not JSON: a comma before the closing brace"),
        ('{"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "o", "topisc": "a"}', "topisc: unknown"),
        ("[]", "must hold one JSON object"),
    ],
)
def test_a_connector_file_that_is_wrong_is_named_with_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """One error, with the file and the key or the place in it; nothing is shown, and exit code 3."""
    broken = tmp_path / "broken.json"
    broken.write_text(text)
    result = invoke("describe", broken, "--worker", worker_file(tmp_path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("broken.json: ") == 1
    assert said in result.stderr
