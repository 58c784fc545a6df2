"""Lets Spark's planner process ask the driver for micro-batches, over a Unix socket of this machine.

Spark gives a Python source a process of its own for its planning. What is planned is known in the driver, so that
process only passes questions on (`datasource.py`). The socket lies in a folder that only this account can enter.
"""

from __future__ import annotations

import pickle
import secrets
import socket
import tempfile
import threading
from contextlib import suppress
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import TYPE_CHECKING, Any, Final

import structlog

from connectors.errors import NoThreadError, SparkGoneError
from connectors.source.datasource import Address
from connectors.threads import CancellableThread

if TYPE_CHECKING:
    from connectors.source.micro_batches import MicroBatches

_CLOSE_S: Final = 2.0
"""How long (s) `close` waits for the thread that accepts; it has nothing else to do."""
_AGAIN_S: Final = 0.2
"""The pause (s) before it accepts again without a file or thread left; without one it would spin."""
_log = structlog.get_logger()


class DriverLink:
    """Answers planner processes from `plans`, each on a thread of its own, from `open` to `close`."""

    def __init__(self, plans: MicroBatches) -> None:
        self._plans = plans
        try:
            self._listener = Listener(None, "AF_UNIX")  # without the key: accept() would wait for a frozen planner
        except OSError as error:
            folder = tempfile.gettempdir()
            raise SparkGoneError(
                f"Spark's planner has no way to this worker: a socket cannot be made in {folder}: {error}.",
                f"Make room in {folder}, or set TMPDIR to a folder with a short path; then start the worker again.",
            ) from error
        self.address = Address(str(self._listener.address), secrets.token_hex(16))
        self._accepting = CancellableThread("driver-link", self._accept)

    def open(self) -> None:
        """Begins to answer."""
        self._accepting.start()

    def close(self) -> None:
        """Takes no further connection; those that are there end with their processes."""
        self._accepting.stop()
        if self._accepting.is_alive():
            # It sees that it is to end. Without a handshake, which is not answered if it has ended meanwhile.
            with suppress(OSError), socket.socket(socket.AF_UNIX) as knock:
                knock.settimeout(_CLOSE_S)
                knock.connect(self.address.path)
        self._accepting.join(_CLOSE_S)
        self._listener.close()

    def _accept(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                connection = self._listener.accept()
                CancellableThread("driver-link-planner", partial(self._answer, connection)).start()
            except (OSError, NoThreadError) as error:
                # No file or thread is left; a planner that is lost asks again.
                if not stop.wait(_AGAIN_S):
                    _log.warning("a process of Spark's that plans was not let in", error=str(error))

    def _answer(self, connection: Connection, _stop: threading.Event) -> None:
        with connection, suppress(EOFError, OSError):  # the process has ended
            if not self._is_known(connection):
                return
            while True:
                name, arguments = connection.recv()
                try:
                    answer = (True, self._answer_to(name, *arguments))
                except Exception as error:  # noqa: BLE001  # raised in the planner, and its query fails with it
                    answer = (False, f"{type(error).__name__}: {error}")
                connection.send(answer)

    def _is_known(self, connection: Connection) -> bool:
        """Proves each side to the other, as `Listener.accept` does if it has the key."""
        key = self.address.key.encode()
        try:
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
        except AuthenticationError as error:
            _log.debug("connection refused", error=str(error))
            return False
        return True

    def _answer_to(self, name: str, *arguments: int) -> Any:
        match name, arguments:
            case "begin", ():
                return self._plans.begin()
            case "latest", (start,):
                return self._plans.latest(start)
            case "tasks", (start, end):
                return [pickle.dumps(task) for task in self._plans.tasks(start, end)]
        raise ValueError(f"The driver has no answer to {name} with {len(arguments)} arguments.")
