"""What `run --once` has done, topic by topic: first as values, then as text for people. Pure.

The values' fields are those of `run --once --json` (docs/formats.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from compactor.model.state import CatalogState
from connectors.config.secrets import logged_text
from connectors.operations.snapshots.opening import opening
from connectors.progress.terminal import table
from connectors.runtime.supervised_connector import Connector

FORMAT: Final = 1
_HEADERS: Final = ("TOPIC", "READ", "PUBLISHED", "DEAD LETTERS", "KEPT", "SNAPSHOT")
_LATE: Final = "LATE"
"""The column that is there if some records came late."""


class OnceSnapshot(Struct, frozen=True, kw_only=True):
    """The newest snapshot of a topic; `path` is its folder. It is older than the run if nothing has changed since."""

    id: str
    path: str
    records: int


class OnceTopic(Struct, frozen=True, kw_only=True):
    """A source topic: records that this run read and published, its dead letters, and what is kept at its end.

    `late` counts those that lost by the connector's order as they came. `closed` says why the topic is not read; None
    if it is.
    """

    topic: str
    closed: str | None
    read: int
    published: int
    dead_letters: int
    late: int
    kept: int
    snapshot: OnceSnapshot | None


class OnceConnector(Struct, frozen=True, kw_only=True):
    """A connector: `error` is what it FAILED with, None if all was done."""

    connector: str
    error: str | None
    topics: tuple[OnceTopic, ...]


class OnceResult(Struct, frozen=True, kw_only=True):
    """All connectors of a run, by name."""

    format_version: int
    connectors: tuple[OnceConnector, ...]


def result(connectors: Iterable[Connector], place: Callable[[Connector], str | None]) -> OnceResult:
    """Returns what `connectors` have done; `place` gives the location of its snapshots, None without any."""
    return OnceResult(
        format_version=FORMAT, connectors=tuple(_connector(connector, place(connector)) for connector in connectors)
    )


def _connector(connector: Connector, place: str | None) -> OnceConnector:
    supervisor, state = connector.supervisor, connector.catalog_state
    error = None if supervisor is None or supervisor.error is None else logged_text(str(supervisor.error))
    counts = supervisor.topics if supervisor is not None else {}
    topics = (
        ()
        if state is None
        else tuple(_topic(state, name, counts.get(name, {}), place) for name in sorted(state.topics))
    )
    return OnceConnector(connector=connector.name, error=error, topics=topics)


def _topic(state: CatalogState, name: str, counts: Mapping[str, int], place: str | None) -> OnceTopic:
    taken = state.snapshots_of(name)
    newest = taken[-1] if taken and place is not None else None
    runs = (run for log in state.logs_of(name) for run in (*log.runs, *((log.base,) if log.base else ())))
    return OnceTopic(
        topic=name,
        closed=state.topics[name].closed,
        read=counts.get("records_read", 0),
        published=counts.get("records_published", 0),
        dead_letters=counts.get("dead_letters", 0),
        late=counts.get("records_late", 0),
        kept=sum(run.records for run in runs),
        snapshot=None
        if newest is None
        else OnceSnapshot(id=newest.id, path=f"{place}/{newest.path}", records=newest.records),
    )


def text(done: OnceResult, has_duckdb: bool) -> str:
    """Returns a table of all topics, the errors of connectors, and a line that opens a snapshot if there is one.

    Without DuckDB's command line on the path (`has_duckdb`), a line says how to get it.
    """
    return "\n".join(_lines(done, has_duckdb))


def _lines(done: OnceResult, has_duckdb: bool) -> Iterator[str]:
    several = len(done.connectors) > 1
    rows = [(connector.connector, topic) for connector in done.connectors for topic in connector.topics]
    if rows:
        has_late = any(topic.late for _, topic in rows)
        own = (*_HEADERS[:-1], _LATE, _HEADERS[-1]) if has_late else _HEADERS
        headers = ("CONNECTOR", *own) if several else own
        yield table(headers, [(*((name,) if several else ()), *_row(topic, has_late)) for name, topic in rows])
    for connector in done.connectors:
        if connector.error is not None:
            told = connector.error.removeprefix(f"Connector {connector.connector}: ")
            yield f"Connector {connector.connector} is FAILED: {told}"
    healthy = [topic for connector in done.connectors if connector.error is None for topic in connector.topics]
    paths = [topic.snapshot.path for topic in healthy if topic.snapshot is not None]
    if paths:
        yield f"Open it: {opening(paths[0])}"
        if not has_duckdb:
            yield "There is no duckdb on this machine's path: pip install duckdb-cli"


def _row(topic: OnceTopic, has_late: bool) -> tuple[object, ...]:
    path = None if topic.snapshot is None else topic.snapshot.path
    name = topic.topic if topic.closed is None else f"{topic.topic} ({topic.closed})"
    late = (topic.late,) if has_late else ()
    return (name, topic.read, topic.published, topic.dead_letters, topic.kept, *late, path)
