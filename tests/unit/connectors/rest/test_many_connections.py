"""Clients that open connections and send nothing keep nobody out, and take no more than their share of files."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from connectors.config.files import load_worker
from connectors.errors import BusyError
from connectors.rest import password_checks, security, server
from connectors.rest.listeners import LIMITS, ClientLimits, bind
from connectors.rest.slow_calls import Slow, SlowCalls
from tests.support.cli import worker_file
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, rest_worker

MOST = 8
"""As many connections as the worker of these tests serves; clients open four times as many."""
OTHERS = MOST - 2
"""As many of these may be answered for requests that watch no worker."""
Open = Callable[[str], list[socket.socket]]


@pytest.fixture
def limits() -> ClientLimits:
    """Slow clients are ended only if others need their place."""
    return ClientLimits(connections=MOST, head_s=600.0, take_s=600.0)


@pytest.fixture
def opened(worker: RestWorker) -> Iterator[Open]:
    host, port = worker.url.removeprefix("http://").split(":")
    with ExitStack() as stack:

        def many(sent: str) -> list[socket.socket]:
            found = []
            for _ in range(4 * MOST):
                found.append(stack.enter_context(socket.create_connection((host, int(port)), timeout=20)))
                found[-1].sendall(sent.encode())
                if sent.endswith("\r\n\r\n") and len(sent) < 1_000:
                    assert b"200 OK" in found[-1].recv(1_000)
            return found

        yield many


def _served(worker: RestWorker) -> int:
    """Counts the connections that the worker, which is this process, has open."""
    return _open_at(int(worker.url.rpartition(":")[2]))


def _open_at(port: int) -> int:
    return sum(one.laddr.port == port and bool(one.raddr) for one in psutil.Process().net_connections("tcp"))


def _ask(worker: RestWorker) -> int:
    with worker.client.__class__(base_url=worker.url, timeout=20) as client:  # with a connection of its own
        return client.get("/health").status_code


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /connectors HTTP/1.1\r\nHost: localhost\r\n",
        "POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        "GET /connectors HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_clients_that_are_waited_for_make_room_for_others(worker: RestWorker, opened: Open, sent: str) -> None:
    """They sent nothing, half a head, half a body, or a request that is answered: each may keep its connection."""
    opened(sent)
    wait_until(lambda: _served(worker) <= MOST, "no more connections are open than are served")
    assert {_ask(worker) for _ in range(3 * MOST)} == {200}
    assert _served(worker) <= MOST


def test_clients_that_read_no_answer_make_room_for_others(worker: RestWorker, opened: Open) -> None:
    """What was written for them waits in the worker."""
    opened("GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)
    wait_until(lambda: _served(worker) <= MOST, "no more connections are open than are served")
    wait_until(lambda: _ask(worker) == 200, "no answer is being made any more: all wait for their clients")
    assert {_ask(worker) for _ in range(3 * MOST)} == {200}


def test_a_request_that_is_answered_makes_no_room(worker: RestWorker, opened: Open) -> None:
    """Only a connection of which the next step is its client's is ended, however long another waits for its answer."""
    asked = []

    def late() -> list[str]:
        asked.append(1)
        wait_until(lambda: len(asked) > 1, "the others were opened")
        return ["late"]

    worker.herder.answer = late
    host, port = worker.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as waits:
        waits.sendall(b"GET /connectors HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: bool(asked), "its request is being answered")
        opened("")
        assert {_ask(worker) for _ in range(3)} == {200}
        asked.append(2)
        deadline = time.monotonic() + 20
        answer = b""
        while b"late" not in answer and time.monotonic() < deadline:
            answer += waits.recv(1_000)
        assert b"200 OK" in answer


def test_health_is_answered_beside_as_many_requests_as_a_worker_takes(worker: RestWorker) -> None:
    """All others are refused, and told when to ask again: a probe that is refused would end the worker."""
    release, asked = threading.Event(), []

    def late() -> list[str]:
        asked.append(1)
        assert release.wait(100)
        return []

    worker.herder.answer = late
    with ThreadPoolExecutor(MOST) as pool:
        answers = []
        for _ in range(OTHERS):  # one after the other: a connection without a request makes room
            answers.append(pool.submit(worker.client.get, "/connectors", timeout=120))
            wait_until(lambda: len(asked) == len(answers), "a request is being answered")
        assert {_ask(worker) for _ in range(3)} == {200}
        refused = worker.client.get("/connectors")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        release.set()
        assert {each.result().status_code for each in answers} == {200}


def test_requests_that_wait_leave_connections_for_others() -> None:
    """All kinds of slow calls at their most, and all log-ins, are fewer than the connections that are served."""
    slow = vars(Slow()).values()
    calls = sum(each.most + each.most_waiting for each in slow)
    log_ins = security.LOGIN_THREADS + security.LOGINS_WAITING + 1 + password_checks.MOST_WAITING
    most = LIMITS.answered("/connectors")
    assert most is not None
    assert calls + log_ins < most == LIMITS.connections - 64


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("/health", None),
        ("/", 384),
        ("/metrics", 384),
        ("/connectors/a/status", 384),
        ("/connectors/a/tasks/0/status", 384),
        ("/connectors", 320),
        ("/connectors/a/b/status", 320),
        ("/keyfold/connectors/a/records", 320),
    ],
)
def test_the_last_connections_are_for_who_watches_the_worker(path: str, most: int | None) -> None:
    """All others are refused before these."""
    assert LIMITS.answered(path) == most


def test_a_worker_is_watched_while_all_other_connections_wait(worker: RestWorker) -> None:
    """However many changes wait for the store: others are refused at once, with when to ask again."""
    release, waits = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        waits.release()
        assert release.wait(30)

    worker.create("a")
    for _ in range(MOST):
        worker.storage.before("create", wait)
    others = worker.client.__class__(base_url=worker.url, timeout=30)
    with ThreadPoolExecutor(MOST) as pool, others:
        made = [pool.submit(_created, worker, f"c{number}") for number in range(OTHERS)]
        for _ in made:
            assert waits.acquire(timeout=20)
        refused = others.get("/connectors")
        assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
        for path in ("/metrics", "/connectors/a/status", "/", "/health"):
            assert others.get(path).status_code == 200, path
        release.set()
        assert {one.result() for one in made} == {201}
        assert others.get("/connectors").status_code == 200


def test_requests_of_clients_that_have_gone_count(worker: RestWorker) -> None:
    """What they asked for is still made: others are refused, and who watches the worker is answered."""
    release, asked = threading.Event(), list[int]()

    def late() -> list[str]:
        asked.append(1)
        assert release.wait(100)
        return []

    worker.create("a")
    worker.herder.answer = late
    for number in range(OTHERS):
        with socket.create_connection(_address(worker), timeout=20) as client:
            client.sendall(b"GET /connectors HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda number=number: len(asked) > number, "its request is being answered")  # type: ignore[misc]
    wait_until(lambda: _served(worker) <= 1, "they have gone")
    assert worker.client.get("/connectors").status_code == 503
    for path in ("/metrics", "/connectors/a/status", "/", "/health"):
        assert worker.client.get(path).status_code == 200, path
    release.set()
    wait_until(lambda: worker.client.get("/connectors").status_code == 200, "their requests are answered")


def test_connections_beyond_those_that_are_served_end_once_they_wait(tmp_path: Path, limits: ClientLimits) -> None:
    """If all were answered as more came there are too many, and no further one may come to make room."""
    release, asked = Future[None](), list[str]()

    async def late(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await asyncio.wrap_future(release)
        await Response()(scope, receive, send)

    config = load_worker(worker_file(tmp_path, listeners="http://127.0.0.1:0"))
    (bound,) = bind(config)
    served = server.RestServer(config, [(bound, late)], limits)
    served.start()
    try:
        with ExitStack() as stack:
            for number in range(MOST + 3):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", bound.port), timeout=20))
                client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                wait_until(lambda number=number: len(asked) > number, "it is being answered")  # type: ignore[misc]
            assert _open_at(bound.port) == MOST + 3
            release.set_result(None)
            wait_until(lambda: _open_at(bound.port) <= MOST, "those that wait make room for nobody else")
    finally:
        served.stop()


def _address(worker: RestWorker) -> tuple[str, int]:
    host, port = worker.url.removeprefix("http://").split(":")
    return host, int(port)


def _created(worker: RestWorker, name: str) -> int:
    config = {"connector.class": "keyfold.CompactedTopic", "topics": name}
    with worker.client.__class__(base_url=worker.url, timeout=30) as client:
        return client.post("/connectors", json={"name": name, "config": config}).status_code


def test_a_call_that_would_wait_behind_too_many_is_refused_at_once() -> None:
    """Each that waits has a connection."""

    async def ask() -> None:
        calls, release = SlowCalls("calls", 1, waiting=2), threading.Event()
        asked = [asyncio.create_task(calls.run(release.wait, 20)) for _ in range(3)]
        await asyncio.sleep(0)  # each has begun
        with pytest.raises(BusyError, match="1 calls are under way"):
            await calls.run(bool)
        release.set()
        assert await asyncio.gather(*asked) == [True] * 3
        assert await calls.run(bool) is False

    asyncio.run(ask())


def test_a_thread_that_ends_a_call_makes_the_next_one() -> None:
    """The event loop, which other threads may keep waiting, does nothing for it; and no further thread is started."""
    threads: list[int] = []

    def note(event: threading.Event) -> None:
        threads.append(threading.get_ident())
        event.set()

    async def ask() -> None:
        calls, release, is_made = SlowCalls("calls", 1), threading.Event(), threading.Event()
        asked: list[asyncio.Task[Any]] = [asyncio.create_task(calls.run(release.wait, 20))]
        asked += [asyncio.create_task(calls.run(note, event)) for event in (threading.Event(), is_made)]
        await asyncio.sleep(0)  # each has begun
        release.set()
        assert is_made.wait(10), "both are made while this coroutine keeps the loop waiting"
        await asyncio.gather(*asked)

    asyncio.run(ask())
    assert len(set(threads)) == 1


@pytest.mark.parametrize("goes", [False, True])
def test_a_call_that_is_given_up_is_not_made(goes: bool) -> None:
    """It waited too long, or its request has ended; another one has its place."""
    made: list[str] = []

    async def ask() -> None:
        calls, release = SlowCalls("calls", 1, waiting=1, wait_s=20 if goes else 0.01), threading.Event()
        first = asyncio.create_task(calls.run(release.wait, 20))
        await asyncio.sleep(0)  # it has begun
        waits = asyncio.create_task(calls.run(made.append, "given up"))
        await asyncio.sleep(0)
        if goes:
            waits.cancel()
        with pytest.raises(asyncio.CancelledError if goes else BusyError):
            await waits
        last = asyncio.create_task(calls.run(made.append, "last"))
        await asyncio.sleep(0)
        release.set()
        async with asyncio.timeout(20):
            await asyncio.gather(first, last, return_exceptions=not goes)

    asyncio.run(ask())
    assert made in ([["last"]] if goes else [[], ["last"]])


@pytest.mark.parametrize("under_way", [0, 1])
def test_a_call_whose_thread_cannot_be_started_is_never_made(under_way: int) -> None:
    """The request fails and its call is forgotten; all later ones are made, whether others were under way or not."""
    made: list[str] = []
    outcomes = iter([*[True] * under_way, False])

    def start(thread: threading.Thread) -> None:
        if not next(outcomes, True):
            raise RuntimeError("can't start new thread")
        thread.start()

    async def ask() -> None:
        calls, release = SlowCalls("calls", 2, start=start), threading.Event()
        before = [asyncio.create_task(calls.run(release.wait, 20)) for _ in range(under_way)]
        await asyncio.sleep(0)  # each has begun
        with pytest.raises(BusyError, match="could start no thread for calls: can't start new thread"):
            await calls.run(made.append, "refused")
        async with asyncio.timeout(20):  # one that takes the place of the refused call would wait for ever
            await asyncio.gather(*(calls.run(made.append, "later") for _ in range(2 - under_way)))
        release.set()
        async with asyncio.timeout(20):
            await asyncio.gather(*before, *(calls.run(made.append, "last") for _ in range(2)))

    asyncio.run(ask())
    assert made == ["later"] * (2 - under_way) + ["last"] * 2


def test_what_is_answered_from_memory_has_few_threads(tmp_path: Path) -> None:
    """More of them only make each other wait; how the worker is takes none of them."""
    lock, release = threading.Lock(), threading.Event()
    under_way = 0

    def counted() -> list[str]:
        nonlocal under_way
        with lock:
            under_way += 1
        assert release.wait(20)
        return []

    with rest_worker(tmp_path) as worker, ThreadPoolExecutor(40) as pool:
        worker.herder.answer = counted
        asked = [pool.submit(worker.client.get, "/connectors", timeout=30) for _ in range(40)]
        wait_until(lambda: under_way == server.THREADS, "all threads are taken")
        assert {_ask(worker) for _ in range(10)} == {200}
        assert under_way == server.THREADS
        release.set()
        assert {one.result().status_code for one in asked} == {200}
