"""Runs a real Kafka broker: for `keyfold kafka`, the demo and the tests.

One KRaft node in a process of its own, on 127.0.0.1 only, that never outlives the Python process which
started it. Everything it keeps is below one data directory; a broker that is started there again has that data.
"""

from __future__ import annotations

import base64
import math
import os
import random
import resource
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from compactor.catalog import owner_lock
from compactor.catalog.owner_lock import OwnerLock
from compactor.errors import KeyfoldError
from compactor.storage.local import LocalStorage
from connectors.clock import Deadline
from connectors.dev.embedded_config import HOST, Layout, read_property, server_properties, write_files
from connectors.errors import ConfigError, UnreachableError
from connectors.jvm.artifacts import ensure_kafka
from connectors.jvm.cds_archive import sharing
from connectors.jvm.java import find_java
from connectors.jvm.surroundings import java_properties, java_variables
from connectors.kafka.admin import Admin
from connectors.kafka.retry import poll_until

# How long (s) a broker may take from its start until a client has seen it; a first start formats its directory too.
START_TIMEOUT_S: Final = 60.0
# How long (s) a broker may take to end after SIGTERM before it is killed.
STOP_TIMEOUT_S: Final = 30.0
# How often another port is tried, if another process takes the chosen one before the broker binds it.
_PORT_ATTEMPTS: Final = 5
# Lines of the broker's log that an error shows.
_TAIL_LINES: Final = 20
_LINE: Final = 300
"""Longer lines, which name thousands of partitions, are cut off when a log is shown."""
# Below the range from which the system takes ports for outgoing connections: a client that retries a port in
# that range can connect to itself, and the broker could never have the port back after a restart.
_PORTS: Final = range(20_000, 30_000)
# Java's quick compiler alone: it starts in two thirds of the time, and a broker on one machine takes records no slower.
_JAVA_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_LIMITS: Final[Mapping[str, str]] = {
    "Too many open files": "It is at its limit of open files, {files:,} here: each partition takes one or more. "
    "Raise the limit (ulimit -n), or have fewer partitions.",
    "Map failed": "It is at the kernel's limit of memory maps, {maps} here: each partition takes two or more. "
    "Raise the limit (sysctl -w vm.max_map_count=262144), or have fewer partitions.",
    "Java heap space": "Its heap is full: have fewer partitions, or run a broker of your own with a larger heap.",
}
"""What a broker logs at a limit of its machine, and what to do then."""
# Ends the broker when the pipe closes, which it does however the Python process ends, SIGKILL included.
_LIFELINE: Final = 'read -r _; kill -TERM "$1"'


class _PortTakenError(Exception):
    """Another process took a port between choosing and binding it."""


class EmbeddedKafka:
    """Apache Kafka on 127.0.0.1, as a context manager or by start() and stop().

    `port`: None chooses a free one at the first start and keeps it for later ones. `properties`: server
    properties that win over the defaults; `listeners` in them (SASL_PLAINTEXT://127.0.0.1:PORT) come on top of
    the plain one. `heap`: the JVM's largest heap, as for -Xmx. `java_options`: further ones for the broker's JVM.
    `joins`: a running broker; this one becomes a further node of its cluster.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "768m",
        java_options: Sequence[str] = (),
        joins: EmbeddedKafka | None = None,
    ) -> None:
        self._layout = Layout(data_dir.resolve())
        self._port = port
        self._properties = {**(joins.next_node() if joins else {}), **(properties or {})}
        self._joins = joins
        # Nodes of its cluster, this one among them; `next_node` counts those that join.
        self._nodes = 1
        self._options = [f"-Xmx{heap}", *java_options]
        # The broker, and the shell that ends it with this process (`_LIFELINE`); None while it does not run.
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: subprocess.Popen[bytes] | None = None
        # Bytes of the log before the present start: what is older is not looked at.
        self._log_start = 0
        self._lock = OwnerLock(LocalStorage(str(self._layout.root)))

    @property
    def bootstrap(self) -> str:
        """What clients take as bootstrap.servers: `127.0.0.1:PORT`, known from the first start on."""
        assert self._port is not None, "the broker was never started"
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def log_file(self) -> Path:
        """The broker's log."""
        return self._layout.log_file

    @property
    def running(self) -> bool:
        """Whether the broker's process runs."""
        return self._process is not None and self._process.poll() is None

    def next_node(self) -> dict[str, str]:
        """Returns the properties of a further node of this broker's cluster, which has started."""
        self._nodes += 1
        voters = read_property(self._layout.server_file, "controller.quorum.voters")
        return {"process.roles": "broker", "node.id": str(self._nodes), "controller.quorum.voters": voters}

    @property
    def cluster_id(self) -> str:
        """The id of its cluster, known from the first start on."""
        return read_property(self._layout.meta_file, "cluster.id")

    def start(self) -> Self:
        """Starts the broker and returns once a client has seen it; formats a new data directory first.

        Raises UnreachableError when the port is in use, or when the broker ends or is not there in time;
        the message then shows the end of its log. Raises ConfigError when another broker runs in the directory.
        """
        assert not self.running, "the broker is running already"
        for _ in range(_PORT_ATTEMPTS):
            self._claim()
            port = self._port or free_port()
            try:
                self._start_on(port)
            except _PortTakenError:
                continue
            except BaseException:
                self._lock.release()
                raise
            self._port = port
            return self
        self._lock.release()
        raise UnreachableError(
            f"Port {port} of {HOST} is in use.", "Give another --port, or none to have a free one chosen."
        )

    def stop(self) -> None:
        """Ends the broker cleanly; does nothing if it is not running."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Ends the broker as a power cut would (SIGKILL); start() brings it back with what it had flushed."""
        if self._process is not None:
            self._process.kill()
        self._reap()

    def require_running(self) -> None:
        """Raises UnreachableError, with the end of the broker's log, when its process has ended.

        If it has logged that it is at a limit of the machine, the error names that.
        """
        if not self.running:
            raise UnreachableError(
                f"The broker's process has ended. The last lines of {self.log_file}:\n{self._tail()}\n",
                limit_in_the_way(self._log_since_launch()) or "Read its log, mend what it names, and start it again.",
            )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start_on(self, port: int) -> None:
        if not _is_free(port):
            raise _PortTakenError
        write_files(self._layout, server_properties(port, free_port(), self._properties))
        jars = ensure_kafka()
        if not self._layout.formatted:
            self._format(jars)
        try:
            self._launch(jars)
            self._await_ready(port, Deadline(START_TIMEOUT_S))
        except BaseException:  # also Ctrl-C while waiting: no broker may be left running
            self.kill()
            raise

    def _format(self, jars: Path) -> None:
        cluster = self._joins.cluster_id if self._joins else _new_cluster_id()
        arguments = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", self._layout.server_file.name]
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            done = subprocess.run(self._java(jars, arguments), check=False, **self._surroundings(output))
        if done.returncode != 0:
            raise UnreachableError(
                f"The data directory {self._layout.root} could not be formatted:\n{self._tail()}\n",
                f"See {self.log_file}, or use a new directory.",
            )

    def _launch(self, jars: Path) -> None:
        """Starts the JVM in a session of its own: Ctrl-C in a terminal is for Python, which then stops it."""
        command = self._java(jars, ["kafka.Kafka", self._layout.server_file.name])
        with self.log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(command, start_new_session=True, **self._surroundings(output))
        self._lifeline = subprocess.Popen(
            ["sh", "-c", _LIFELINE, "lifeline", str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _surroundings(self, output: IO[bytes]) -> dict[str, Any]:
        """Returns what a JVM is started with: paths of its files count from the data directory.

        What it makes there, records among it, only this account can read.
        """
        around = {**os.environ, **java_variables(os.environ)}
        return {
            "cwd": self._layout.root,
            "env": around,
            "umask": 0o077,
            "stdin": subprocess.DEVNULL,
            "stdout": output,
            "stderr": output,
        }

    def _java(self, jars: Path, arguments: list[str]) -> list[str]:
        log = f"-Dlog4j2.configurationFile={self._layout.log4j_file.name}"
        account = java_properties(os.environ, self._layout.root)
        options = [*_JAVA_OPTIONS, *account, *sharing(jars), *self._options, log]
        return [find_java(), *options, "-cp", f"{jars}/*", *arguments]

    def _await_ready(self, port: int, deadline: Deadline) -> None:
        self._await(lambda: _accepts(port), deadline)
        admin = Admin({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0}, deadline_s=1)
        self._await(lambda: _has_broker(admin), deadline)

    def _await(self, is_ready: Callable[[], bool], deadline: Deadline) -> None:
        """Waits until `is_ready()`; raises as `_check_start` does, which ends the wait at `deadline`."""

        def ready() -> bool:
            self._check_start(deadline)
            return is_ready()

        poll_until(bool, ready, math.inf, 0.05)

    def _check_start(self, deadline: Deadline) -> None:
        if not self.running and "Address already in use" in self._log_since_launch():
            raise _PortTakenError
        self.require_running()
        if deadline.has_passed:
            raise UnreachableError(
                f"The broker was not ready after {START_TIMEOUT_S:.0f} s. Its log ends with:\n{self._tail()}\n",
                f"See {self.log_file}.",
            )

    def _tail(self) -> str:
        lines = self._log_since_launch().splitlines()[-_TAIL_LINES:]
        return "\n".join(line if len(line) <= _LINE else f"{line[:_LINE]}…" for line in lines)

    def _log_since_launch(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", errors="replace")

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
        if self._lifeline is not None:
            self._lifeline.kill()
            self._lifeline.communicate()
        self._lifeline = self._process = None
        self._lock.release()

    def _claim(self) -> None:
        """Claims the directory until the broker has ended: a second broker would replace the first one's settings."""
        storage = LocalStorage(str(self._layout.root))
        if not self._lock.claim(owner_lock.this_process()):
            raise ConfigError(
                f"A broker runs in {self._layout.root} already: that of process {owner_lock.live_owner(storage)}.",
                "Stop it, or give another --data-dir.",
            )


def limit_in_the_way(log: str) -> str | None:
    """Returns which limit of the machine a broker's log names, and what to do; None if it names none."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # Java raises its own to the most that is allowed
    maps = Path("/proc/sys/vm/max_map_count")
    held = maps.read_text(encoding="ascii").strip() if maps.exists() else "unknown"
    return next((text.format(files=files, maps=held) for words, text in _LIMITS.items() if words in log), None)


def free_port() -> int:
    """Returns a free port of 127.0.0.1, outside the range of outgoing connections."""
    candidates = random.SystemRandom().sample(_PORTS, 200)
    return next(port for port in candidates if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java binds: TIME_WAIT does not count
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _has_broker(admin: Admin) -> bool:
    try:
        return admin.brokers() > 0
    except KeyfoldError:
        return False


def _new_cluster_id() -> str:
    """Returns 16 random bytes as Kafka writes an Uuid; no leading dash, which StorageTool takes for an option."""
    return base64.urlsafe_b64encode(b"\x4d" + os.urandom(15)).rstrip(b"=").decode()
