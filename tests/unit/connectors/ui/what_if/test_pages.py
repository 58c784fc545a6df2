"""The what-if page: its form, the answer, and who may ask."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.config.files import load_connector, load_worker
from connectors.ui.app import WorkerPage
from connectors.ui.what_if import process
from tests.support.browser import browse, send, words
from tests.support.cli import NAME, connector_file, worker_file
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, rest_worker, rest_worker_with_page
from tests.unit.connectors.cli.test_analyze import LAG, keep_orders
from tests.unit.connectors.rest.test_security import users_file
from tests.unit.connectors.ui.test_acting import ADMIN, VIEWER

PATH = f"/ui/connectors/{NAME}/what-if"
LONG_LAG = {"min.compaction.lag.ms": "9000 d", "min.compaction.lag.ms.shown": "1 h"}
"""Longer than the kept records are old, whenever this is run."""


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[RestWorker]:
    """A worker with a connector that keeps two partitions of orders."""
    keep_orders(tmp_path)
    file = load_connector(connector_file(tmp_path, **LAG), load_worker(worker_file(tmp_path)))
    with rest_worker(tmp_path, file) as made:
        yield made


def _answered(worker: RestWorker, answer: httpx.Response, **more: Any) -> str:
    """Looks at a question until it is over; returns the page."""
    assert answer.status_code == 200, answer.text
    pages: list[str] = []

    def is_over() -> bool:
        pages.append(browse(worker, str(answer.url.raw_path, "ascii"), **more).text)
        return 'hx-trigger="every 1s"' not in pages[-1]

    wait_until(is_over, "the question is answered")
    return pages[-1]


def test_a_connectors_page_leads_to_it(orders: RestWorker) -> None:
    """The form shows what is set, with words for each stop; nothing is counted yet."""
    assert f'href="{PATH}"' in browse(orders, f"/ui/connectors/{NAME}").text
    page = browse(orders, PATH).text
    assert page.count('type="range"') == 4
    assert 'value="1 h"' in page
    assert "0|1 min|5 min" in page
    assert "Counted at" not in page
    assert browse(orders, "/ui/connectors/none/what-if").status_code == 404


def test_an_answer_stands_beside_the_present_settings(orders: RestWorker) -> None:
    """Records and bytes of both, by rule, in bars and in tables; the address shows it again."""
    page = _answered(orders, send(orders, PATH, fields=LONG_LAG))
    shown = words(page)
    assert "Changed: min.compaction.lag.ms 9000 d" in shown
    assert "kept now 12 53 B 12 53 B 0 0 B" in shown
    assert "superseded by a later record -3 -14 B 0 0 B +3 +14 B" in shown
    assert "rejected, or without a key -2 -12 B 0 0 B +2 +12 B" in shown
    assert "orders / 0 As it is set 10 49 B" in shown
    assert "and fold.full.interval.ms has passed" in shown
    assert "--with min.compaction.lag.ms=777600000000" in shown
    assert page.count('<svg class="stack"') == 6
    assert "With the changes, bytes: last records of their keys 10, not to be folded yet 34, " in page
    assert "orders / 0 With the changes 10 49 B 2 9 B tombstones past their horizon 8 40 B Due" in shown
    assert 'value="9000 d"' in page


def test_without_changes_the_present_alone_is_counted(orders: RestWorker) -> None:
    """Then there is nothing to compare."""
    page = _answered(orders, send(orders, PATH))
    assert "Move a slider to compare." in words(page)
    assert page.count('<svg class="stack"') == 4
    assert "With the changes" not in page


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"min.compaction.lag.ms": "soon"},
            "Invalid value soon for configuration min.compaction.lag.ms: Write 1 h 30 min",
        ),
        ({"delete.retention.ms": "10 000"}, "Invalid value 10 000 for configuration delete.retention.ms: Write 1 h"),
        ({"delete.retention.ms": "1_000"}, "Invalid value 1_000 for configuration delete.retention.ms: Write 1 h"),
        ({"min.cleanable.dirty.ratio": "2"}, "min.cleanable.dirty.ratio"),
        ({"compaction.scope": "<b>"}, "compaction.scope"),
        ({"max.compaction.lag.ms": "1 min"}, "max.compaction.lag.ms"),
    ],
)
def test_what_a_file_could_not_have_is_not_counted(orders: RestWorker, fields: dict[str, str], said: str) -> None:
    """The form says what is wrong, as text; an answer for htmx, which shows no errors, has another code."""
    answer = send(orders, PATH, fields=fields)
    assert answer.status_code == 400
    assert said in words(answer.text)
    assert 'role="alert"' in answer.text
    assert "<b>" not in answer.text
    assert send(orders, PATH, fields=fields, headers={"HX-Request": "true"}).status_code == 200


def test_a_connector_that_keeps_nothing_says_so(worker: RestWorker) -> None:
    """In the words of the command."""
    worker.create("a")
    page = _answered(worker, send(worker, "/ui/connectors/a/what-if"))
    assert "keeps nothing yet" in words(page)


def test_a_question_is_cancelled(tmp_path: Path) -> None:
    """By a button that works without JavaScript; until then there is a link to look again, and how far it is."""
    step = '{"type":"step","name":"counting records","partition":3,"partitions":12}'
    pid = tmp_path / "pid"
    body = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); print({step!r}, flush=True)"
    count = partial(process.count_in_process, command=(sys.executable, "-c", f"{body}; time.sleep(600)"))
    file = load_connector(connector_file(tmp_path, **LAG), load_worker(worker_file(tmp_path)))
    with rest_worker_with_page(tmp_path, partial(WorkerPage, count=count), file) as worker:
        _cancel(worker, pid)


def _cancel(orders: RestWorker, pid: Path) -> None:
    asked = send(orders, PATH, fields=LONG_LAG)
    run = asked.url.params["run"]
    address = f"{PATH}?run={run}"
    wait_until(lambda: "partition 3 of 12" in words(browse(orders, address).text), "it is counted")
    page = browse(orders, address).text
    assert f'href="{address}"' in page
    assert f'hx-get="{address}"' in page
    assert f'name="run" value="{run}"' in page
    counting = Path(f"/proc/{pid.read_text()}")
    assert counting.exists()
    waits = send(orders, PATH)
    assert "1 question is counted before this one." in words(waits.text)
    ended = _answered(orders, send(orders, f"{PATH}/cancel", fields={"run": run}))
    assert "Given up. It was cancelled." in words(ended)
    assert not counting.exists()


def test_an_address_of_old_says_that_it_is_kept_no_more(orders: RestWorker) -> None:
    """And offers to count again."""
    page = browse(orders, f"{PATH}?run=gone")
    assert page.status_code == 200
    assert "kept no more" in words(page.text)


def test_an_answer_about_a_deleted_connector_is_not_one_about_a_new_one(worker: RestWorker) -> None:
    """Of its name: what the deleted one would have folded is not the new one's."""
    worker.create("a")
    asked = send(worker, "/ui/connectors/a/what-if")
    address = asked.url.raw_path.decode()
    assert "keeps nothing yet" in words(_answered(worker, asked))
    send(worker, "/ui/connectors/a/delete", fields={"confirm": "a"})
    worker.create("a")
    shown = words(browse(worker, address).text)
    assert ("kept no more" in shown, "keeps nothing yet" in shown) == (True, False)


def test_a_viewer_sees_an_answer_and_asks_nothing(tmp_path: Path) -> None:
    """To ask costs a core for a while."""
    keep_orders(tmp_path)
    file = load_connector(connector_file(tmp_path, **LAG), load_worker(worker_file(tmp_path)))
    users = users_file(tmp_path, ann="admin", bob="viewer")
    with rest_worker(tmp_path, file, **{"rest.auth": "basic", "rest.auth.users.file": str(users)}) as secured:
        answer = send(secured, PATH, auth=ADMIN)
        assert "Counted at" in words(_answered(secured, answer, auth=ADMIN))
        page = browse(secured, str(answer.url.raw_path, "ascii"), auth=VIEWER).text
        assert "Counted at" in words(page)
        assert "for ann" in words(page)
        assert "<form" not in page
        assert "takes the role admin" in words(page)
        for path in (PATH, f"{PATH}/cancel"):
            assert send(secured, path, form="x", auth=VIEWER).status_code == 403
            assert send(secured, path, form="x", auth=ADMIN).status_code == 403


def test_partitions_come_in_pages(orders: RestWorker) -> None:
    """A number that is none is the first page."""
    answer = send(orders, PATH)
    _answered(orders, answer)
    for page in ("1", "9", "x", "-1"):
        shown = browse(orders, f"{answer.url.raw_path.decode()}&page={page}").text
        assert re.search(r"orders.*/ 1", words(shown))
