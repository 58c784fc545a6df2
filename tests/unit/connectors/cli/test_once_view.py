"""What `run --once` says at its end: a row for each topic, and how its snapshot is opened."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from unittest.mock import Mock

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from compactor.errors import FencedError
from compactor.model.actions import AddSnapshot
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from connectors.cli.views import once as once_view
from connectors.known_values import remember
from connectors.operations.snapshots.opening import opening
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervised_connector import Connector
from tests.support.cli import connector_file, invoke, worker_file
from tests.support.logs import base, log, run
from tests.support.measured import spec, stopped

COUNTS = {"t": {"records_read": 1_200, "records_published": 40, "dead_letters": 2}}


LOG = log(run(100, 150, 400), clean=base(100, 1_200), published=150)
KEPT = sum(each.records for each in (*LOG.runs, LOG.base) if each)


def _connector(name: str, error: Exception | None = None, late: int = 0) -> Connector:
    """A connector that has read t, and knows u, which was deleted."""
    topics = {
        topic: Topic(topic=topic, topic_id="i", output="o", output_id="p", closed=closed)
        for topic, closed in (("t", None), ("u", "deleted"))
    }
    logs = (LOG, log(tp=TopicPartition("u", 0)))
    taken = [
        AddSnapshot(topic="t", id=id_, path=f"{name}/t/{id_}", created_ms=1, source_offsets={}, records=7, bytes=1)
        for id_ in ("1", "2")
    ]
    state = CatalogState(connector=name, buckets=1, logs=logs, topics=topics, snapshots=tuple(taken))
    supervisor = Mock(catalog_state=state, topics={"t": {**COUNTS["t"], "records_late": late}}, error=error)
    return Connector(spec(name), Status(ConnectorState.STOPPED), supervisor)


def _plain(done: once_view.OnceResult) -> str:
    """The text without bold headers."""
    return re.sub(r"\x1b\[\d+m", "", once_view.text(done, has_duckdb=True))


def test_records_that_came_late_have_a_column_if_there_are_any() -> None:
    """By the connector's order they were neither kept nor published (compaction.order)."""
    done = once_view.result([_connector("c", late=30)], lambda _: None)
    assert [topic.late for topic in done.connectors[0].topics] == [30, 0]
    assert [line.split() for line in _plain(done).splitlines()] == [
        ["TOPIC", "READ", "PUBLISHED", "DEAD", "LETTERS", "KEPT", "LATE", "SNAPSHOT"],
        ["t", "1,200", "40", "2", str(KEPT), "30", "-"],
        ["u", "(deleted)", "0", "0", "0", "0", "0", "-"],
    ]


def test_each_topic_has_a_row() -> None:
    """Read, published and dead letters of this run, what is kept at its end, and the newest snapshot's folder."""
    done = once_view.result([_connector("c")], lambda _: "/snapshots")
    (one,) = done.connectors
    assert one.topics[0] == once_view.OnceTopic(
        topic="t",
        closed=None,
        read=1_200,
        published=40,
        dead_letters=2,
        late=0,
        kept=KEPT,
        snapshot=once_view.OnceSnapshot(id="2", path="/snapshots/c/t/2", records=7),
    )
    assert [line.split() for line in _plain(done).splitlines()] == [
        ["TOPIC", "READ", "PUBLISHED", "DEAD", "LETTERS", "KEPT", "SNAPSHOT"],
        ["t", "1,200", "40", "2", str(KEPT), "/snapshots/c/t/2"],
        ["u", "(deleted)", "0", "0", "0", "0", "-"],
        [
            "Open",
            "it:",
            "duckdb",
            "-c",
            *['"SELECT', "*", "FROM", "'/snapshots/c/t/2/data/**/*.parquet'", "LIMIT", '10"'],
        ],
    ]


def test_an_error_shows_no_value_of_a_placeholder() -> None:
    """An error that quotes what a placeholder stands for is said with the placeholder in its place."""
    remember("${env:ONCE_SECRET}", "s3cr3t-of-once")
    done = once_view.result([_connector("c", FencedError("The registry says: s3cr3t-of-once.", ""))], lambda _: None)
    assert done.connectors[0].error == "The registry says: ${env:ONCE_SECRET}."


def test_several_connectors_are_told_apart_and_a_failure_is_named() -> None:
    """A connector column comes first; one that FAILED says why; without a snapshot location no line opens one."""
    connectors = [_connector("a"), _connector("b", FencedError("Newer.", "Leave it.")), stopped("c")]
    done = once_view.result(connectors, lambda _: None)
    lines = _plain(done).splitlines()
    assert [line.split()[0] for line in lines] == ["CONNECTOR", "a", "a", "b", "b", "Connector"]
    assert lines[-1] == "Connector b is FAILED: Newer. Leave it."
    assert [(one.error, len(one.topics)) for one in done.connectors] == [
        (None, 2),
        ("Newer. Leave it.", 2),
        (None, 0),
    ]
    assert once_view.text(once_view.result([stopped("c")], lambda _: None), has_duckdb=True) == ""


def test_a_failure_names_its_connector_once() -> None:
    """An error that begins with the name of the connector is said without it, as the line has it already."""
    done = once_view.result([_connector("b", FencedError("Connector b: gone.", "Look."))], lambda _: None)
    assert _plain(done).splitlines()[-1] == "Connector b is FAILED: gone. Look."


def test_the_line_opens_the_snapshot_whatever_its_path(tmp_path: Path) -> None:
    """Blanks and quotes of a path are those of a shell and of SQL; files of partitions lie deeper."""
    folder = tmp_path / 'it\'s a "place" of $HOME'
    for place in (folder / "data", folder / "data" / "country=DE"):
        place.mkdir(parents=True)
        pq.write_table(pa.table({"key": [b"a"]}), place / "0.parquet")
    program, option, sql = shlex.split(opening(str(folder)))
    assert (program, option) == ("duckdb", "-c")
    records = duckdb.sql(sql)
    assert records is not None
    assert records.fetchall() == [(b"a",), (b"a",)]


def test_the_result_is_json() -> None:
    """With the names that docs/formats.md has."""
    done = once_view.result([_connector("c")], lambda _: "/snapshots")
    found = msgspec.to_builtins(done)
    assert list(found) == ["format_version", "connectors"]
    topic = found["connectors"][0]["topics"][0]
    assert list(topic) == ["topic", "closed", "read", "published", "dead_letters", "late", "kept", "snapshot"]


def test_json_is_of_a_run_that_ends(tmp_path: Path) -> None:
    """A worker that goes on has no result."""
    found = invoke("run", connector_file(tmp_path), "--json", "--worker", worker_file(tmp_path))
    assert (found.exit_code, "--json needs --once" in found.stderr) == (2, True)


def test_what_is_opened_is_no_snapshot_of_a_connector_that_failed() -> None:
    """Its snapshot is of an earlier run: the line opens that of the next connector."""
    failed = _connector("a", error=FencedError("Connector a: fenced.", "Stop this worker."))
    said = _plain(once_view.result([failed, _connector("b")], lambda _: "/snapshots")).splitlines()
    assert [line for line in said if line.startswith("Open it: ")] == [f"Open it: {opening('/snapshots/b/t/2')}"]


def test_a_machine_without_duckdb_is_told_how_to_get_it() -> None:
    """The line that opens a snapshot runs where it is printed, or the next line says what to install first."""
    done = once_view.result([_connector("b")], lambda _: "/snapshots")
    without, with_it = (once_view.text(done, has_duckdb=has).splitlines() for has in (False, True))
    assert without[:-1] == with_it
    assert without[-1].endswith("pip install duckdb-cli")
