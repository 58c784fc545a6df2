"""The requests that Kafka Connect's worker and keyfold's are both asked, in this order, each worker new at the begin.

`{class}` is each worker's own sink. Topic `t1` has records. What a request begins (a pause, a restart) is waited for by
`settle`, so that the next request does not depend on how quickly that is.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

CLASS: Final = "{class}"
PLUGIN: Final = "{plugin}"
_TEXT: Final = "text/plain"
_FORM: Final = "application/x-www-form-urlencoded"
JSON: Final = "application/json"


class Ask(NamedTuple):
    """One request; `body` is sent as it is, with `kind` as its media type (None: without).

    `settle` names a connector and the states that one of which it has before the next request is sent: the
    connector's, or for "offsets" and "topics" that it has some.
    """

    method: str
    path: str
    body: str | None = None
    kind: str | None = None
    accept: str | None = None
    settle: tuple[str, str] | None = None


def _json(method: str, path: str, body: Any, settle: tuple[str, str] | None = None) -> Ask:
    return Ask(method, path, json.dumps(body), JSON, None, settle)


def _config(**more: Any) -> dict[str, Any]:
    return {"connector.class": CLASS, "topics": "t1", "tasks.max": "1", **more}


def _post(name: Any, settle: tuple[str, str] | None = None, **more: Any) -> Ask:
    return _json("POST", "/connectors", {"name": name, "config": _config(), **more}, settle)


def _alter(offset: int | str) -> Ask:
    partition = {"kafka_topic": "t1", "kafka_partition": 0}
    return _json(
        "PATCH", "/connectors/a/offsets", {"offsets": [{"partition": partition, "offset": {"kafka_offset": offset}}]}
    )


_WORKER: Final = (
    Ask("GET", "/"),
    Ask("HEAD", "/"),
    Ask("OPTIONS", "/"),
    Ask("POST", "/"),
    Ask("DELETE", "/"),
    Ask("GET", "/", kind=JSON),
    Ask("GET", "/", accept="application/json"),
    Ask("GET", "/", accept="*/*"),
    Ask("GET", "/", accept="text/html, application/json;q=0.5"),
    Ask("GET", "/", accept="image/png"),
    Ask("GET", "/health"),
    Ask("GET", "/health/"),
    Ask("POST", "/health"),
    Ask("GET", "/nothing"),
    Ask("GET", "/connectors/a/b/c"),
    Ask("GET", "/connector"),
)

_NO_CONNECTOR: Final = (
    Ask("GET", "/connectors"),
    Ask("GET", "/connectors/"),
    Ask("HEAD", "/connectors"),
    Ask("OPTIONS", "/connectors"),
    Ask("GET", "/connectors?expand=status"),
    Ask("GET", "/connectors?expand=nothing"),
    Ask("PUT", "/connectors"),
    Ask("DELETE", "/connectors"),
    Ask("PATCH", "/connectors"),
    Ask("GET", "/connectors/none"),
    Ask("GET", "/connectors/none/"),
    Ask("GET", "/connectors/none/config"),
    Ask("GET", "/connectors/none/status"),
    Ask("GET", "/connectors/none/tasks"),
    Ask("GET", "/connectors/none/tasks/0/status"),
    Ask("GET", "/connectors/none/tasks/x/status"),
    Ask("GET", "/connectors/none/topics"),
    Ask("GET", "/connectors/none/offsets"),
    Ask("GET", "/connectors/none/tasks-config"),
    Ask("DELETE", "/connectors/none"),
    Ask("PUT", "/connectors/none/pause"),
    Ask("PUT", "/connectors/none/resume"),
    Ask("PUT", "/connectors/none/stop"),
    Ask("PUT", "/connectors/none/topics/reset"),
    Ask("POST", "/connectors/none/restart"),
    Ask("POST", "/connectors/none/restart?includeTasks=true"),
    Ask("POST", "/connectors/none/tasks/0/restart"),
    _json("PATCH", "/connectors/none/config", {"tasks.max": "2"}),
    Ask("POST", "/connectors/none"),
    Ask("POST", "/connectors/none/config", "{}", JSON),
)

_REFUSED: Final = (
    Ask("POST", "/connectors", "{", JSON),
    Ask("POST", "/connectors", "", JSON),
    Ask("POST", "/connectors"),
    Ask("POST", "/connectors", "[]", JSON),
    Ask("POST", "/connectors", '"a"', JSON),
    Ask("POST", "/connectors", "{}", JSON),
    Ask("POST", "/connectors", "name=a", _FORM),
    Ask("POST", "/connectors", "{}", _TEXT),
    _json("POST", "/connectors", {"name": "a"}),
    _json("POST", "/connectors", {"config": {}}),
    _json("POST", "/connectors", {"name": "a", "config": None}),
    _json("POST", "/connectors", {"name": "a", "config": {}}),
    _json("POST", "/connectors", {"name": "a", "config": []}),
    _json("POST", "/connectors", {"name": "a", "config": {"connector.class": CLASS}}),
    _json("POST", "/connectors", {"name": "a", "config": _config(**{"connector.class": "no.such.Class"})}),
    _json("POST", "/connectors", {"name": "a", "config": _config(name="b")}),
    _json("POST", "/connectors", {"name": "a", "config": _config(topics=None)}),
    _json("POST", "/connectors", {"name": "a", "config": _config(**{"tasks.max": "many"})}),
    _json("POST", "/connectors", {"name": "a", "config": _config(**{"tasks.max": 0})}),
    _json("POST", "/connectors", {"name": "a", "config": _config(**{"topics.regex": "t.*"})}),
    _json("POST", "/connectors", {"name": "a", "config": _config(topics={"a": 1})}),
    _json("POST", "/connectors", {"name": "a", "config": _config(topics=["t1"])}),
    _json("POST", "/connectors", {"name": "a", "config": _config(**{"errors.tolerance": "some"})}),
    _json("POST", "/connectors", {"name": "a", "config": _config(), "more": 1}),
    _json("POST", "/connectors", {"name": "a", "config": _config(), "initial_state": "ASLEEP"}),
    _json("POST", "/connectors", {"name": "a", "config": _config(), "initial_state": 7}),
    _json("POST", "/connectors", _config(name="a")),
    _post(""),
    _post("  "),
    Ask("GET", "/connectors"),
    _json("PUT", "/connectors/a/config", {"name": "a", "config": _config()}),
    _json("PUT", "/connectors/a/config", {}),
    _json("PUT", "/connectors/a/config", _config(name="b")),
    _json("PUT", "/connectors/a/config", {"connector.class": CLASS}),
    Ask("PUT", "/connectors/a/config", "[1]", JSON),
    Ask("PUT", "/connectors/a/config", "{", JSON),
    Ask("PUT", "/connectors/a/config", "x", _TEXT),
)

_ALIVE: Final = (
    _post(" a ", ("a", "RUNNING")),
    _post("a"),
    _json("POST", "/connectors", {"name": "a", "config": _config(topics="t2")}),
    Ask("GET", "/connectors"),
    Ask("GET", "/connectors?expand=status&expand=info"),
    Ask("GET", "/connectors?expand=info"),
    Ask("GET", "/connectors?expand=nothing&expand=status"),
    Ask("GET", "/connectors/a"),
    Ask("GET", "/connectors/a/"),
    Ask("HEAD", "/connectors/a"),
    Ask("OPTIONS", "/connectors/a"),
    Ask("GET", "/connectors/a/config"),
    Ask("GET", "/connectors/a/status"),
    Ask("GET", "/connectors/a/status/"),
    Ask("GET", "/connectors/a/tasks", settle=("a", "topics")),  # of which it is asked below
    Ask("GET", "/connectors/a/tasks/0/status"),
    Ask("GET", "/connectors/a/tasks/1/status"),
    Ask("GET", "/connectors/a/tasks/-1/status"),
    Ask("GET", "/connectors/a/tasks/x/status"),
    Ask("GET", "/connectors/a/topics", settle=("a", "offsets")),
    Ask("GET", "/connectors/a/offsets"),
    Ask("GET", "/connectors/a/offsets/"),
    Ask("DELETE", "/connectors/a/offsets"),
    Ask("PUT", "/connectors/a/topics/reset"),
    Ask("POST", "/connectors/a/tasks", "[]", JSON),
    Ask("POST", "/connectors/a/pause"),
    Ask("GET", "/connectors/a/pause"),
    Ask("PUT", "/connectors/a"),
)

_LIFECYCLE: Final = (
    Ask("PUT", "/connectors/a/pause", settle=("a", "PAUSED")),
    Ask("PUT", "/connectors/a/pause", "null", JSON),
    Ask("GET", "/connectors/a/status"),
    Ask("GET", "/connectors/a/tasks/0/status"),
    Ask("GET", "/connectors/a/tasks"),
    Ask("PUT", "/connectors/a/resume", '""', JSON, settle=("a", "RUNNING")),
    Ask("PUT", "/connectors/a/resume"),
    Ask("PUT", "/connectors/a/stop", settle=("a", "STOPPED")),
    Ask("PUT", "/connectors/a/stop"),
    Ask("GET", "/connectors/a/status"),
    Ask("GET", "/connectors/a/tasks"),
    Ask("GET", "/connectors/a"),
    Ask("GET", "/connectors/a/tasks/0/status"),
    Ask("PUT", "/connectors/a/resume", settle=("a", "RUNNING")),
    Ask("POST", "/connectors/a/restart", settle=("a", "RUNNING")),
    Ask("POST", "/connectors/a/restart?includeTasks=False&onlyFailed=maybe", settle=("a", "RUNNING")),
    Ask("POST", "/connectors/a/restart?includeTasks=True", settle=("a", "RUNNING")),
    Ask("POST", "/connectors/a/restart?onlyFailed=true", settle=("a", "RUNNING")),
    Ask("POST", "/connectors/a/restart?onlyFailed=true&includeTasks=true", settle=("a", "RUNNING")),
    Ask("POST", "/connectors/a/tasks/0/restart", settle=("a", "RUNNING")),
    Ask("POST", "/connectors/a/tasks/9/restart"),
    Ask("POST", "/connectors/a/tasks/x/restart"),
    Ask("PUT", "/connectors/a/restart"),
)

_CHANGED: Final = (
    _json("PUT", "/connectors/a/config", _config(**{"errors.tolerance": "all"}), ("a", "RUNNING")),
    _json("PUT", "/connectors/a/config", _config(name="a", **{"tasks.max": 1}), ("a", "RUNNING")),
    _json("PUT", "/connectors/a/config", _config(name="b")),
    _json("PUT", "/connectors/a/config", _config(**{"tasks.max": "none"})),
    _json("PATCH", "/connectors/a/config", {"errors.tolerance": "all"}, ("a", "RUNNING")),
    _json("PATCH", "/connectors/a/config", {"errors.tolerance": None}, ("a", "RUNNING")),
    _json("PATCH", "/connectors/a/config", {"topics": None}),
    _json("PATCH", "/connectors/a/config", {"errors.tolerance": "x"}),
    _json("PATCH", "/connectors/a/config", {}, ("a", "RUNNING")),
    Ask("PATCH", "/connectors/a/config", "[]", JSON),
    Ask("PATCH", "/connectors/a/config", "{}", _TEXT),
    Ask("GET", "/connectors/a/config"),
    _json("PUT", "/connectors/made.by-put/config", _config(topics="t3"), ("made.by-put", "RUNNING")),
    _json("PUT", "/connectors/a%20b/config", _config(topics="t4"), ("a%20b", "RUNNING")),
    Ask("DELETE", "/connectors/a%20b"),
    Ask("GET", "/connectors/made.by-put"),
    Ask("GET", "/connectors/made.by-put/status"),
    Ask("DELETE", "/connectors/made.by-put"),
    _post("b", ("b", "PAUSED"), config=_config(topics="t5"), initial_state="paused"),
    _post("c", ("c", "STOPPED"), config=_config(topics="t6"), initial_state="STOPPED"),
    Ask("GET", "/connectors/b/status"),
    Ask("GET", "/connectors/c/status"),
    Ask("GET", "/connectors/c/offsets"),
    Ask("DELETE", "/connectors/b"),
    Ask("DELETE", "/connectors/b"),
    Ask("DELETE", "/connectors/c/"),
    Ask("GET", "/connectors/b"),
)

_PLUGINS: Final = (
    Ask("GET", "/connector-plugins"),
    Ask("GET", "/connector-plugins/"),
    Ask("GET", "/connector-plugins?connectorsOnly=false"),
    Ask("GET", f"/connector-plugins/{CLASS}/config"),
    Ask("GET", f"/connector-plugins/{PLUGIN}/config"),
    Ask("GET", "/connector-plugins/Nothing/config"),
    Ask("POST", "/connector-plugins"),
    Ask("GET", f"/connector-plugins/{PLUGIN}"),
    _json("PUT", f"/connector-plugins/{PLUGIN}/config/validate", _config(name="v", file="/dev/null")),
    _json("PUT", f"/connector-plugins/{PLUGIN}/config/validate/", {"connector.class": CLASS, "topics": "t1"}),
    _json("PUT", f"/connector-plugins/{PLUGIN}/config/validate", {"connector.class": CLASS}),
    _json("PUT", f"/connector-plugins/{PLUGIN}/config/validate", _config(name="v", **{"tasks.max": "x"})),
    _json("PUT", f"/connector-plugins/{PLUGIN}/config/validate", {"topics": "t1"}),
    _json("PUT", f"/connector-plugins/{PLUGIN}/config/validate", {"connector.class": "Other", "topics": "t1"}),
    _json("PUT", "/connector-plugins/Nothing/config/validate", {"connector.class": "Nothing"}),
    Ask("PUT", f"/connector-plugins/{PLUGIN}/config/validate", "{", JSON),
    Ask("PUT", f"/connector-plugins/{PLUGIN}/config/validate", "x", _TEXT),
)

_ADMIN: Final = (
    Ask("GET", "/admin/loggers"),
    Ask("GET", "/admin/loggers/"),
    Ask("GET", "/admin/loggers/root"),
    Ask("GET", "/admin/loggers/no.such.logger"),
    _json("PUT", "/admin/loggers/conformance.one", {"level": "debug"}),
    Ask("GET", "/admin/loggers/conformance.one"),
    _json("PUT", "/admin/loggers/conformance.one", {"level": "INFO"}),
    _json("PUT", "/admin/loggers/conformance.one?scope=cluster", {"level": "WARN"}),
    _json("PUT", "/admin/loggers/conformance.one?scope=nothing", {"level": "WARN"}),
    _json("PUT", "/admin/loggers/conformance.one", {"level": "LOUD"}),
    _json("PUT", "/admin/loggers/conformance.one", {}),
    Ask("PUT", "/admin/loggers/conformance.one", "{", JSON),
    Ask("POST", "/admin/loggers/conformance.one"),
    Ask("GET", "/admin"),
)

_OFFSETS: Final = (
    _json("PATCH", "/connectors/a/offsets", {"offsets": []}),
    _alter(5),
    Ask("PUT", "/connectors/a/stop", settle=("a", "STOPPED")),
    Ask("GET", "/connectors/a/offsets"),
    _json("PATCH", "/connectors/none/offsets", {"offsets": []}),
    Ask("DELETE", "/connectors/none/offsets"),
    _json("PATCH", "/connectors/a/offsets", {}),
    _json("PATCH", "/connectors/a/offsets", {"offsets": {}}),
    _json("PATCH", "/connectors/a/offsets", {"offsets": [{"offset": {"kafka_offset": 5}}]}),
    _json("PATCH", "/connectors/a/offsets", {"offsets": [{"partition": {"topic": "t1"}, "offset": None}]}),
    _alter("five"),
    _alter(-1),
    Ask("PATCH", "/connectors/a/offsets", "{", JSON),
    Ask("PATCH", "/connectors/a/offsets", "{}", _TEXT),
    _alter(5),
    Ask("GET", "/connectors/a/offsets"),
    _alter("7"),
    Ask("GET", "/connectors/a/offsets"),
    Ask("DELETE", "/connectors/a/offsets"),
    Ask("DELETE", "/connectors/a/offsets"),
    Ask("DELETE", "/connectors/a", settle=("a", "gone")),
    Ask("GET", "/connectors/a"),
    Ask("GET", "/connectors/a/status"),
)

REQUESTS: Final = (
    *_WORKER,
    *_NO_CONNECTOR,
    *_REFUSED,
    *_ALIVE,
    *_LIFECYCLE,
    *_CHANGED,
    *_PLUGINS,
    *_ADMIN,
    *_OFFSETS,
)
