"""Who may call the worker through the port that PySpark opens for its JVM: a real server of Py4J's, without a JVM."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from structlog.testing import capture_logs

from connectors.spark import private
from connectors.spark.callers import AGAIN_MS, RefusalLog, owner_of
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until

_HEAD: Final = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
_OF_JVM: Final = "0000000000000000FFFF00000100007F:9C40 0000000000000000FFFF00000100007F:1F90"
_OF_V4: Final = "0100007F:9C40 0100007F:1F90"
_ASK: Final = """
import os, socket, sys
if len(sys.argv) > 2:  # given up here, as another account may not even start this Python
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
with socket.socket() as connection:
    connection.settimeout(20)
    connection.connect(("127.0.0.1", int(sys.argv[1])))
    try:
        connection.sendall(b"c\\np0\\n__repr__\\ne\\n")
        print(connection.recv(100).decode())
    except OSError:
        print()
"""


def _line(ends: str, uid: int = 1000, inode: int = 77) -> str:
    return f"   3: {ends} 01 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 00000000a447e639\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="the lines are of such a machine")
@pytest.mark.parametrize(
    ("lists", "owner"),
    [
        ([_HEAD + _line(_OF_V4)], 1000),
        ([_HEAD, _HEAD + _line(_OF_JVM, 33)], 33),
        ([_HEAD + _line("0100007F:1F90 0100007F:9C40", 5)], None),
        ([_HEAD + _line("0100007F:9C41 0100007F:1F90")], None),
        ([_HEAD + _line(_OF_V4, 0, 0)], None),
        ([_HEAD + _line(_OF_V4, 0, 0) + _line(_OF_V4, 7)], 7),
        (["", _HEAD + "   3: 0100007F:9C40 0100007F:1F90 01\n"], None),
    ],
    ids=["ipv4", "a jvm's", "this end's own line", "another port", "closed", "closed, then open", "cut"],
)
def test_the_owner_is_that_of_the_other_ends_open_socket(lists: list[str], owner: int | None) -> None:
    """One that is closed already is nobody's: its line has 0 for the owner, which is no sign of root."""
    assert owner_of(lists, ("127.0.0.1", 8080), ("127.0.0.1", 40000)) == owner


def test_addresses_of_ipv6_are_found() -> None:
    """The loopback of IPv6 has a form of its own."""
    word = (1).to_bytes(4, "big")
    ends = f"{'0' * 24}{int.from_bytes(word, sys.byteorder):08X}"
    assert owner_of([_HEAD + _line(f"{ends}:9C40 {ends}:1F90")], ("::1", 8080), ("::1", 40000)) == 1000


def test_refusals_are_logged_once_in_a_while() -> None:
    """The first of a kind at once; then how many there were, for an account may connect as often as it likes."""
    clock = ManualClock()
    refusals = RefusalLog(clock)
    with capture_logs() as lines:
        for _ in range(1_000):
            refusals.add("refused", uid=7)
        refusals.add("unknown", why="closed")
        clock.advance(AGAIN_MS)
        refusals.add("refused", uid=8)
    assert [(line["event"], line["connections"]) for line in lines] == [
        ("refused", 1),
        ("unknown", 1),
        ("refused", 1_000),
    ]


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server for calls, of a gateway that was guarded as a session's is."""
    gateway = ClientServer(
        JavaParameters(port=1),
        PythonParameters(port=0, eager_load=False, daemonize=True, daemonize_connections=True, accept_timeout=0.1),
    )
    gateway.gateway_property.pool.put("what the query calls", "p0")
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))
    private.refuse_callers(spark)
    gateway.start_callback_server()
    number = gateway.get_callback_server().get_listening_port()
    wait_until(lambda: _listens(number), "the server listens, which a thread of its own lets it do")
    yield number
    gateway.shutdown_callback_server()


def test_this_account_may_call(port: int) -> None:
    """As the JVM does, over IPv4 and as it sees IPv4 from a socket of IPv6."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
        with socket.socket(family) as connection:
            connection.settimeout(20)
            connection.connect((host, port))
            connection.sendall(b"c\np0\n__repr__\ne\n")
            assert connection.recv(100).startswith(b"!y"), host


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start a process of another account")
def test_another_account_may_not_call(port: int) -> None:
    """Its connection is closed without an answer, also if many come; the server goes on for this account."""
    assert [_asked(port, "65534") for _ in range(3)] == ["", "", ""]
    assert _asked(port).startswith("!y")


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _asked(port: int, *uid: str) -> str:
    command = [sys.executable, "-I", "-S", "-c", _ASK, str(port), *uid]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
