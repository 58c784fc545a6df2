"""The source's options from a few words, for tests that name little more than the brokers and the topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compactor.ingest.ingest import Intake
from compactor.storage.local import LocalStorage
from connectors.config.topics import TopicPattern
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.source.options import ReadLimits, Selection, SourceOptions, Timeouts
from connectors.source.plan import TopicOffsets
from tests.support.clients import client_settings
from tests.support.engine import intake as written_nowhere

NOBODY: Mapping[str, Setting] = {"bootstrap.servers": "127.0.0.1:1"}


def source_options(
    given: Mapping[str, Setting] = NOBODY,
    topics: Iterable[str] = (),
    *,
    connector: str = "c",
    regex: str | None = None,
    output: str = "none",
    exclude: Iterable[str] = (),
    starts: Mapping[str, TopicOffsets] | None = None,
    closed: Iterable[str] = (),
    clients: ClientSettings | None = None,
    limits: Mapping[str, Any] | None = None,
    timeout: float = 60.0,
    metadata_age: float = 5.0,
    look: float = 1.0,
    skip_lost: bool = False,
    intake: Intake | None = None,
) -> SourceOptions:
    """Returns the options of a connector that reads `topics`, or what `regex` matches, from brokers by `given`."""
    pattern = None if regex is None else TopicPattern(regex, output, frozenset(exclude))
    return SourceOptions(
        connector=connector,
        clients=clients or client_settings(given, connector),
        selection=Selection(topics=() if pattern else tuple(topics), pattern=pattern),
        starts=dict(starts or {}),
        closed=frozenset(closed),
        limits=ReadLimits(**(limits or {})),
        timeouts=Timeouts(timeout=timeout, metadata_age=metadata_age, look=look),
        skip_lost=skip_lost,
        intake=intake or written_nowhere(LocalStorage("/nowhere")),
    )
