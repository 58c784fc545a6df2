"""Shows connectors of the herder in Kafka Connect's shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Final

from msgspec import json

from compactor.model.state import Topic
from compactor.model.times import moment
from compactor.secret_forms import HIDDEN
from connectors.config.clients.override_policy import protection_of
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.fields import CONNECTOR_CLASS
from connectors.config.secrets import masked, printable_text
from connectors.rest import shapes
from connectors.rest.answers import Share, check_length
from connectors.runtime import left_out
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervised_connector import Connector
from connectors.source.source_errors import UNNAMED, advice, is_faulty, meaning_of

TASK_CLASS: Final = f"{CONNECTOR_CLASS}Task"
VERSION: Final = metadata.version("keyfold")
_UNKNOWN: Final = f"{HIDDEN} stands for a secret that is not known here; send the secret, or a placeholder for it."
_MOVED: Final = (
    f"{HIDDEN} stays what it was only as long as the address that it is sent to stays, and what protects it on the "
    "way; send the secret too."
)
TRACES: Final = 1 << 20
"""Characters that the traces of a connector's tasks may have together, each of which is the connector's own: those of
2,000 tasks as a rule. A connector that is FAILED shows its status however many tasks it has."""
_TRACE_OF_ALL: Final = "See the trace of the connector: it is that of all its tasks."
_WORKING: Final = (ConnectorState.RUNNING, ConnectorState.PAUSED)
_CONVERTERS: Final = ("key.converter.", "value.converter.", "output.key.converter.", "output.value.converter.")
_RECEIVERS: Final = (
    *("schema.registry.url", "apicurio.registry.url", "proxy.host", "proxy.port"),
    "schema.registry.ssl.truststore.location",
)
"""The settings of a converter that name the receiver of its secrets, or who vouches for it.

Clients of Kafka have none of the first kind that REST may set; the second is `protection_of`.
"""


def config(connector: Connector) -> dict[str, str]:
    """Returns the config as it may be shown: placeholders stay, secrets that were written out are hidden."""
    return {**connector.spec.config.shown, "name": connector.name}


def info(connector: Connector) -> bytes:
    """Returns a shapes.ConnectorInfo as JSON: the connector with its config and tasks."""
    name = json.encode(connector.name)
    tasks = b",".join(_task_ids(connector))
    return b'{"name":%s,"config":%s,"tasks":[%s],"type":"sink"}' % (name, json.encode(config(connector)), tasks)


def _task_ids(connector: Connector) -> Iterator[bytes]:
    """Yields a shapes.ConnectorTaskId as JSON for each of the connector's tasks."""
    name = json.encode(connector.name)
    return (b'{"connector":%s,"task":%d}' % (name, number) for number in range(connector.tasks))


def status(connector: Connector, worker_id: str, *, planned: bool = False) -> bytes:
    """Returns a shapes.ConnectorStateInfo as JSON; `planned`: as it is for a restart that was asked for.

    The tasks are one run and have the connector's trace. If that were more than TRACES bytes, theirs says so instead.
    """
    mine = _state(connector, worker_id, planned=planned)
    theirs = mine
    if len(mine.trace or "") * connector.tasks > TRACES:
        theirs = mine.model_copy(update={"trace": _TRACE_OF_ALL})
    state, count = shapes.to_json(theirs), connector.tasks
    tasks = b",".join(_task(number, state) for number in range(count))
    name = json.encode(connector.name)
    return b'{"name":%s,"connector":%s,"tasks":[%s],"type":"sink"}' % (name, shapes.to_json(mine), tasks)


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

    Of a connector that runs it tells which source topics it does not read, and what it leaves out of the others.
    """
    cause, current = cause_of(connector), connector.status
    if cause is None or current.state in _WORKING:
        return cause
    next_ms, since_ms = current.next_restart_ms, current.waiting_since_ms
    again = "" if next_ms is None else f"\nStarted again at {moment(next_ms)} or before."
    waits = "" if since_ms is None else f"\nWaits since {moment(since_ms)} for an outage to end."
    return f"{cause}{waits}{again}"


def cause_of(connector: Connector) -> str | None:
    """Returns what `trace_of` does, without times."""
    current = connector.status
    if current.state in _WORKING:
        missing = [*_not_read(connector), *(f"Warning: {line}" for line in left_out.lines(connector.counters))]
        return "\n".join(missing) or None
    if current.error is None or not (current.state is ConnectorState.FAILED or current.waits):
        return None
    return printable_text(current.error)


def _not_read(connector: Connector) -> list[str]:
    """Returns a line for each source topic that is deleted or set aside, as no state of Connect's tells of it."""
    state = connector.catalog_state
    topics = [] if state is None else [topic for _, topic in sorted(state.topics.items())]
    closed = [topic for topic in topics if topic.closed not in (None, UNNAMED)]
    lines = [f"Warning: source topic {topic.topic} is not read: {_why(topic)}" for topic in closed]
    if closed and all(topic.closed is not None for topic in topics):
        lines.append("No other topic is left: nothing is read.")
    return lines


def _why(topic: Topic) -> str:
    """Returns why a closed topic is not read, and what to do if something has to be done."""
    if topic.closed is not None and is_faulty(topic):
        return f"{meaning_of(topic.closed)}. {advice(topic.closed)}"
    return (
        "it was deleted; what was published of it stays. Once it is made anew, keyfold resync reads it from its start."
    )


def tasks(connector: Connector, share: Share) -> bytes:
    """Returns a list of shapes.TaskInfo as JSON, one for each of the connector's tasks, each with its config.

    What it takes is counted in `share` before it is made. Raises UsageError if that is more than an answer may have,
    BusyError.
    """
    ids = list(_task_ids(connector))
    if not ids:
        return b"[]"
    settings = json.encode({**config(connector), "task.class": TASK_CLASS})
    between = b',"config":%s},{"id":' % settings
    size = sum(map(len, ids)) + len(ids) * len(between)
    action = f"Ask for /connectors/{connector.name}/config, which all tasks have, and for /status, which has the tasks."
    check_length(size, action)
    share.hold(size)
    ids[0] = b'[{"id":' + ids[0]  # the ends, so that the whole is made once
    ids[-1] += b',"config":%s}]' % settings
    return between.join(ids)


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
