"""Shows connectors of the herder in Kafka Connect's shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Final

from msgspec import json

from compactor.model.state import Topic
from compactor.model.times import moment
from compactor.secret_forms import HIDDEN
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.fields import CONNECTOR_CLASS
from connectors.config.override_policy import protection_of
from connectors.config.secrets import masked, printable_text
from connectors.rest import shapes
from connectors.rest.answers import check_length
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervised_connector import Connector
from connectors.source.source_errors import FAULTS, UNNAMED, advice

TASK_CLASS: Final = f"{CONNECTOR_CLASS}Task"
VERSION: Final = metadata.version("keyfold")
_UNKNOWN: Final = f"{HIDDEN} stands for a secret that is not known here; send the secret, or a placeholder for it."
_MOVED: Final = (
    f"{HIDDEN} stays what it was only as long as the address that it is sent to stays, and what protects it on the "
    "way; send the secret too."
)
_CONVERTERS: Final = ("key.converter.", "value.converter.")
_RECEIVERS: Final = (
    *("schema.registry.url", "apicurio.registry.url", "proxy.host", "proxy.port"),
    "schema.registry.ssl.truststore.location",
)
"""The settings of a converter that name the receiver of its secrets, or who vouches for it.

Clients of Kafka have none of the first kind that REST may set; the second is `protection_of`.
"""


def config(connector: Connector) -> dict[str, str]:
    """Returns the config as it may be shown: placeholders stay, secrets that were written out are hidden."""
    return {**masked(connector.spec.config.given), "name": connector.name}


def info(connector: Connector) -> shapes.ConnectorInfo:
    """Returns the connector with its config and tasks."""
    tasks = [shapes.ConnectorTaskId(connector=connector.name, task=number) for number in range(connector.tasks)]
    return shapes.ConnectorInfo(name=connector.name, config=config(connector), tasks=tasks)


def status(connector: Connector, worker_id: str, *, planned: bool = False) -> bytes:
    """Returns a shapes.ConnectorStateInfo as JSON; `planned`: as it is for a restart that was asked for.

    Raises UsageError if it is longer than an answer may be: each task has the connector's trace.
    """
    mine = shapes.to_json(_state(connector, worker_id, planned=planned))
    check_length(len(mine) * (connector.tasks + 1))
    tasks = b",".join(_task(number, mine) for number in range(connector.tasks))
    return b'{"name":%s,"connector":%s,"tasks":[%s],"type":"sink"}' % (json.encode(connector.name), mine, tasks)


def task_status(connector: Connector, worker_id: str, number: int) -> bytes | None:
    """Returns a shapes.TaskState as JSON; None if there is no such task."""
    if number not in range(connector.tasks):
        return None
    return _task(number, shapes.to_json(_state(connector, worker_id)))


def _state(connector: Connector, worker_id: str, *, planned: bool = False) -> shapes.ConnectorStateEntity:
    state = ConnectorState.RESTARTING if planned else connector.status.state
    trace = None if planned else trace_of(connector)
    return shapes.ConnectorStateEntity(state=state.value, worker_id=worker_id, version=VERSION, trace=trace)


def _task(number: int, state: bytes) -> bytes:
    """Returns the JSON of a task, which is in the same state as its connector, for `state` is an object."""
    return b'{"id":%d,%s' % (number, state[1:])


def trace_of(connector: Connector) -> str | None:
    """Returns why a connector is FAILED or waits, and when it is started again; None if there is nothing to tell.

    Of a connector that runs it tells which source topics it does not read.
    """
    current = connector.status
    if current.state in (ConnectorState.RUNNING, ConnectorState.PAUSED):
        return _not_read(connector)
    if current.error is None or not (current.state is ConnectorState.FAILED or current.waits):
        return None
    again = (
        "" if current.next_restart_ms is None else f"\nStarted again at {moment(current.next_restart_ms)} or before."
    )
    since_ms = current.waiting_since_ms
    waits = "" if since_ms is None else f"\nWaits since {moment(since_ms)} for an outage to end."
    return f"{printable_text(current.error)}{waits}{again}"


def _not_read(connector: Connector) -> str | None:
    """Returns a line for each source topic that is deleted or set aside, as no state of Connect's tells of it."""
    state = connector.catalog_state
    topics = [] if state is None else [topic for _, topic in sorted(state.topics.items())]
    closed = [topic for topic in topics if topic.closed not in (None, UNNAMED)]
    lines = [f"Warning: source topic {topic.topic} is not read: {_why(topic)}" for topic in closed]
    if closed and all(topic.closed is not None for topic in topics):
        lines.append("No other topic is left: nothing is read.")
    return "\n".join(lines) or None


def _why(topic: Topic) -> str:
    """Returns why a closed topic is not read, and what to do if something has to be done."""
    fault = topic.closed or ""
    if fault in FAULTS:
        return f"{FAULTS[fault]}. {advice(fault)}"
    return (
        "it was deleted; what was published of it stays. Once it is made anew, keyfold resync reads it from its start."
    )


def tasks(connector: Connector) -> Iterator[bytes]:
    """Yields a shapes.TaskInfo as JSON for each of the connector's tasks, with its config."""
    settings = json.encode({**config(connector), "task.class": TASK_CLASS})
    for each in info(connector).tasks:
        yield b'{"id":%s,"config":%s}' % (shapes.to_json(each), settings)


def unmasked(sent: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Returns the config `sent`; a setting that was shown with `[hidden]` in it is as it is in `before`.

    A client that reads a config, changes a key and sends it back keeps what it was not shown. Raises FaultyConfigError
    for `[hidden]` in any other place: it would be taken for a password; and if the secret would go elsewhere: who is
    not shown it could have it sent to himself.
    """
    shown = masked(before)
    kept = {name for name, text in sent.items() if name in before and text == shown[name] != before[name]}
    wanted = {name: before[name] if name in kept else text for name, text in sent.items()}
    faults = [Fault(name, _UNKNOWN) for name, text in wanted.items() if HIDDEN in text and text != before.get(name)]
    faults += [Fault(name, _MOVED) for name in sorted(kept) if _is_moved(name, wanted, before)]
    if faults:
        raise FaultyConfigError("config", faults)
    return wanted


def _is_moved(name: str, settings: Mapping[str, str], before: Mapping[str, str]) -> bool:
    """Returns whether the secret `name` goes to another receiver by `settings`, or less protected, than `before`."""
    if protection_of(name, settings) != protection_of(name, before):
        return True
    prefix = next((converter for converter in _CONVERTERS if name.startswith(converter)), None)
    return prefix is not None and any(
        settings.get(prefix + receiver) != before.get(prefix + receiver) for receiver in _RECEIVERS
    )
