"""Writes what the embedded broker is started with: its server properties and the settings of its log.

Paths in them count from the broker's data directory, in which its processes run. Kafka would split an absolute path at
commas and log4j would replace what looks like a variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from javaproperties import dumps, loads

HOST: Final = "127.0.0.1"
_DATA: Final = "data"

_PROPERTIES: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "auto.create.topics.enable": "false",
    # One node: whatever is replicated by default has to be content with one copy.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A first consumer and a first transaction should not wait for fifty new partitions each.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # A killed broker may register again once its old session is over: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Records carry the times of their source, years back: only a topic that asks for it loses them to age.
    "log.retention.ms": "-1",
    # The first entry of an index zeroes up to all of its 10 MiB, and a partition has three: with 400 partitions that is
    # a quarter of two cores for minutes.
    "log.index.size.max.bytes": str(1 << 20),
}

_LOG4J: Final = """status = error
shutdownHook = disable
appender.file.type = File
appender.file.name = file
appender.file.fileName = kafka.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d{ISO8601}] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class Layout:
    """The files of one embedded broker, all below its data directory.

    `data`: its partitions (log.dirs). `log_file`: its log and its standard output. `server_file` and `log4j_file`: its
    settings, written at every start. `meta_file`: the ids of cluster and node, which Kafka's StorageTool writes.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / _DATA
        self.log_file = root / "kafka.log"
        self.server_file = root / "server.properties"
        self.log4j_file = root / "log4j2.properties"
        self.meta_file = self.data / "meta.properties"

    @property
    def formatted(self) -> bool:
        """Whether the data directory is formatted: Kafka's StorageTool has written `meta_file`."""
        return self.meta_file.exists()


def server_properties(port: int, controller_port: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Returns a broker's properties: one KRaft node on 127.0.0.1; `extra` wins, but its listeners are added to ours.

    A node with `process.roles=broker` is no controller, and has to be given the `controller.quorum.voters`.
    """
    controls = "controller" in extra.get("process.roles", _PROPERTIES["process.roles"])
    controller = f"CONTROLLER://{HOST}:{controller_port}" if controls else ""
    listeners = [f"PLAINTEXT://{HOST}:{port}", controller, extra.get("listeners", "")]
    own = {
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": _DATA,
        **extra,
        "listeners": ",".join(filter(None, listeners)),
    }
    return {**_PROPERTIES, **own}


def write_files(layout: Layout, properties: Mapping[str, str]) -> None:
    """Writes both files; creates the data directory."""
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    layout.server_file.write_text(dumps(properties, timestamp=None, ensure_ascii=True), encoding="ascii")
    layout.log4j_file.write_text(_LOG4J, encoding="ascii")


def read_property(file: Path, name: str) -> str:
    """Reads the value of `name` in a file of properties. Raises KeyError."""
    return loads(file.read_text(encoding="latin-1"))[name]
