"""Pages that are open: made once for all who look, within bounds, for as long as somebody looks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from compactor.errors import KeyfoldError
from connectors.errors import BusyError
from connectors.rest.security import ROLE, USER, Role
from connectors.ui.live.changes import BEGIN, END
from connectors.ui.live.feeds import LiveFeeds, LiveLimits
from connectors.ui.protection import FormTokens
from connectors.ui.visitor import visitor

SOON_S = 10.0
FAST = LiveLimits(every_s=0.01)


class CountingPage:
    """A page that says how often it was made; a test says what else happens then."""

    def __init__(self) -> None:
        self.made = 0
        self.asked: list[Request] = []
        self.rounds = threading.Semaphore(0)
        self.text: Callable[[int], str] = lambda _: "the same"

    def __call__(self, request: Request) -> Response:
        self.made += 1
        self.asked.append(request)
        self.rounds.release()
        return HTMLResponse(f'{BEGIN}<!--part--><p id="a">{self.text(self.made)}</p><!--/part-->{END}')


def asks(path: str = "/ui", query: str = "", user: str = "", role: Role = Role.ADMIN) -> Request:
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"accept", b"text/event-stream"), (b"authorization", b"Basic secret")],
            "server": ("localhost", 80),
            "state": {USER: user, ROLE: role},
        }
    )


class Watching:
    """Who looks at pages; `read` waits for the next event."""

    def __init__(self, limits: LiveLimits = FAST) -> None:
        self.tokens = FormTokens()
        self.page = CountingPage()
        self.feeds = LiveFeeds(self.tokens, limits)

    @contextmanager
    def look(self, request: Request | None = None) -> Any:
        asked = request or asks()
        with self.feeds.joined(asked, self.page) as feed:
            yield self.feeds.events(feed, asked)


async def read(events: AsyncIterator[bytes]) -> bytes:
    return await asyncio.wait_for(anext(events, b"ended"), SOON_S)


async def rounds(page: CountingPage, more: int) -> None:
    """Waits until the page was made so many times more."""
    page.rounds = threading.Semaphore(0)
    for _ in range(more):
        assert await asyncio.to_thread(page.rounds.acquire, timeout=SOON_S)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_page_is_made_once_for_all_who_look_at_it() -> None:
    """Ten cost as much as one; each gets what has changed."""

    async def ten() -> None:
        watching = Watching()
        watching.page.text = str
        with watching.look() as first:
            others = [watching.look() for _ in range(9)]
            viewers = [first, *(each.__enter__() for each in others)]
            assert [await read(each) for each in viewers] == [b"retry: 3000\n: hello\n\n"] * 10
            assert all([b"event: whole" in await read(each) for each in viewers])
            before = watching.page.made
            told = [await read(each) for each in viewers]
            assert all(b"event: parts" in each for each in told)
            assert watching.page.made - before <= 3
            for each in others:
                each.__exit__(None, None, None)

    run(ten())


def test_what_has_not_changed_is_not_sent_again() -> None:
    """The page is made again and again; who looks hears of it once."""

    async def same() -> None:
        watching = Watching()
        with watching.look() as events:
            await read(events)
            assert b"the same" in await read(events)
            following = asyncio.ensure_future(anext(events))
            await rounds(watching.page, 5)
            assert not following.done()
            watching.page.text = lambda _: "another"
            assert b"another" in await asyncio.wait_for(following, SOON_S)

    run(same())


def test_who_comes_late_or_reads_late_gets_all() -> None:
    """What was missed is in it; nothing is kept for anybody."""

    async def late() -> None:
        watching = Watching()
        watching.page.text = str
        with watching.look() as first, watching.look() as slow:
            for events in (first, slow):
                await read(events)
                await read(events)
            await rounds(watching.page, 5)
            assert b"event: whole" in await read(slow)
            with watching.look() as new:
                await read(new)
                assert b"event: whole" in await read(new)

    run(late())


def test_nothing_is_made_while_nobody_looks() -> None:
    """The last who leaves ends it, and the next begins it again."""

    async def alone() -> None:
        watching = Watching()
        with watching.look() as events:
            await read(events)
            await read(events)
        await asyncio.sleep(0)
        before = watching.page.made
        other = Watching()
        with other.look():
            await rounds(other.page, 5)
        assert watching.page.made - before <= 1
        with watching.look() as events:
            await read(events)
            assert b"event: whole" in await read(events)

    run(alone())


def test_pages_differ_by_address_question_and_role() -> None:
    """A viewer's has no button; the user is in none of them, nor what he has sent along."""

    async def differ() -> None:
        watching = Watching()
        same = [asks(query="state=late&page=2"), asks(query="page=2&state=late&x="), asks(query="page=2&state=late")]
        others = [asks(), asks("/ui/connectors/a"), asks(role=Role.VIEWER), asks(user="ann", role=Role.VIEWER)]
        looks = [watching.look(each) for each in (*same, *others)]
        for look in looks:
            look.__enter__()
        await rounds(watching.page, 4)
        asked = watching.page.asked[:4]
        assert len({(each.url.path, each.url.query, visitor(each).is_admin) for each in asked}) == 4
        assert not any(visitor(each).user in ("", "ann") or each.headers for each in asked)
        for look in looks:
            look.__exit__(None, None, None)

    run(differ())


def test_each_gets_the_token_of_his_own_forms() -> None:
    """The page is made for nobody, whose token works for nobody."""

    async def own() -> None:
        watching = Watching()
        watching.page.text = lambda _: watching.tokens.of(visitor(watching.page.asked[-1]).user)
        with watching.look(asks(user="ann")) as ann, watching.look(asks(user="bob")) as bob:
            for user, events in (("ann", ann), ("bob", bob)):
                await read(events)
                assert watching.tokens.of(user).encode() in await read(events)
            assert len({visitor(each).user for each in watching.page.asked}) == 1

    run(own())


def test_as_many_pages_are_renewed_as_may_be() -> None:
    """Others are told to come later; one that is closed makes room."""

    async def many() -> None:
        watching = Watching(LiveLimits(every_s=0.01, streams=2))
        other = watching.look(asks("/ui/connectors/a"))
        with watching.look(), other, pytest.raises(BusyError, match="2 pages are renewed"), watching.look():
            raise AssertionError
        with watching.look():
            pass

    run(many())


def test_a_stream_ends_for_the_browser_to_ask_again() -> None:
    """Its password is checked then."""

    async def bounded() -> None:
        watching = Watching(LiveLimits(every_s=0.01, stream_s=0.05))
        watching.page.text = str
        with watching.look() as events:
            async with asyncio.timeout(SOON_S):
                told = [each async for each in events]
            assert told[0].startswith(b"retry")

    run(bounded())


def test_all_streams_end_with_the_worker_and_none_begins() -> None:
    """At once, whatever the next round is waited for."""

    async def stopped() -> None:
        watching = Watching(LiveLimits(every_s=600))
        with watching.look() as events:
            await read(events)
            await read(events)
            following = asyncio.ensure_future(anext(events, b"ended"))
            await asyncio.sleep(0)
            watching.feeds.stop()
            assert await asyncio.wait_for(following, SOON_S) == b"ended"
        with pytest.raises(BusyError, match="The worker ends"), watching.look():
            raise AssertionError

    run(stopped())


def test_a_page_that_there_is_no_more_is_over() -> None:
    """The browser loads it again, which says why."""

    async def gone() -> None:
        watching = Watching()

        def no_more(_: int) -> str:
            raise KeyfoldError("It is gone.", "Look elsewhere.")

        with watching.look() as events:
            await read(events)
            await read(events)
            watching.page.text = no_more
            assert await read(events) == b'event: over\ndata: ""\n\n'
            assert await read(events) == b"ended"

    run(gone())


def test_a_page_that_was_over_and_is_there_again_is_renewed() -> None:
    """Also while somebody has not read that it was over; he counts as one who looks."""

    async def again() -> None:
        watching = Watching(LiveLimits(every_s=0.01, streams=2))

        def no_more(_: int) -> str:
            raise KeyfoldError("It is gone.", "Look elsewhere.")

        with watching.look() as late:
            await read(late)
            await read(late)
            watching.page.text = no_more
            with watching.look() as events:
                async with asyncio.timeout(SOON_S):
                    assert b"event: over" in [each async for each in events][-1]
            watching.page.text = lambda _: "there again"
            with watching.look() as events:
                await read(events)
                assert b"there again" in await read(events)
                with pytest.raises(BusyError, match="2 pages are renewed"), watching.look():
                    raise AssertionError
            assert b"event: over" in await read(late)

    run(again())


def test_a_defect_leaves_a_page_as_it_was() -> None:
    """That is logged once; it is made again, and goes on once that works."""

    async def broken() -> None:
        watching = Watching()

        def defect(_: int) -> str:
            raise ZeroDivisionError

        with watching.look() as events, structlog.testing.capture_logs() as logged:
            await read(events)
            assert b"the same" in await read(events)
            following = asyncio.ensure_future(anext(events))
            watching.page.text = defect
            await rounds(watching.page, 5)
            assert not following.done()
            assert [line["event"] for line in logged] == ["page is not renewed"]
            watching.page.text = lambda _: "mended"
            assert b"mended" in await asyncio.wait_for(following, SOON_S)

    run(broken())
