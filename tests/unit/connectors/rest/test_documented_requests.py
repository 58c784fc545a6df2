"""docs/rest.md: every request that it shows is answered as it says, and every path that there is is shown.

A request is a block of its own: `$ curl …`, the status, the body. "…" in a body stands for any value, inside a text for
any part of it; as the last member of a list, or as a key, for more of them. In a body that is no JSON it is a line that
stands for any lines. What has to have happened before a request stands above its block, in a comment of Markdown.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.model import record
from compactor.model.log import PartitionLog, empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.runs import writer
from compactor.runs.file_stats import level0_run
from compactor.runs.writer import RunTarget
from connectors.config.files import load_connector
from connectors.operations import offsets
from tests.support.cli import connector_file
from tests.support.engine import row
from tests.support.rest import RestWorker, rest_worker

PAGE = Path(__file__).parents[4] / "docs" / "rest.md"
BLOCK = re.compile(
    r"(?:<!-- given: (?P<given>[^\n]+) -->\n)?```console\n\$ (?P<command>.+?)\n(?P<status>\d{3})\n(?P<body>.*?)```",
    re.DOTALL,
)
ADDRESS = "localhost:8083"
ADVERTISED = {"rest.advertised.host.name": "127.0.0.1", "rest.advertised.port": "8083"}
ANY = "…"
RESTARTED_MS = 1_795_229_400_000


class Request(NamedTuple):
    """A request of the page; `given` is what has happened before, `body` its JSON, `answer` the text of its answer."""

    given: str | None
    method: str
    path: str
    body: Any
    status: int
    answer: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def requests(page: str) -> list[Request]:
    """All requests of the page, in their order."""
    return [_request(found) for found in BLOCK.finditer(page)]


def _request(found: re.Match[str]) -> Request:
    program, *words = shlex.split(found["command"])
    options = {}
    while len(words) > 1:
        name = next(word for word in words if word.startswith("-"))
        at = words.index(name)
        options[name] = words[at + 1]
        del words[at : at + 2]
    assert (program, options.keys() - {"-X", "--json"}) == ("curl", set()), found["command"]
    assert words[0].startswith(f"{ADDRESS}/"), found["command"]
    body = json.loads(options["--json"]) if "--json" in options else None
    method = options.get("-X", "GET" if body is None else "POST")
    return Request(found["given"], method, words[0].removeprefix(ADDRESS), body, int(found["status"]), found["body"])


def differences(said: Any, found: Any, where: str = "body") -> Iterator[str]:
    """Yields what `found` has that was not `said`, and the reverse."""
    if said == ANY:
        return
    if isinstance(said, dict) and isinstance(found, dict):
        yield from _in_object(said, found, where)
    elif isinstance(said, list) and isinstance(found, list):
        yield from _in_list(said, found, where)
    elif isinstance(said, str) and isinstance(found, str) and ANY in said:
        if re.fullmatch(".*".join(map(re.escape, said.split(ANY))), found, re.DOTALL) is None:
            yield f"{where} is {found!r}, not {said!r}"
    elif said != found or type(said) is not type(found):
        yield f"{where} is {found!r}, not {said!r}"


def _in_object(said: Mapping[str, Any], found: Mapping[str, Any], where: str) -> Iterator[str]:
    named = said.keys() - {ANY}
    if named - found.keys() or (ANY not in said and found.keys() - named):
        yield f"{where} has {sorted(found)}, not {sorted(said)}"
    for name in sorted(named & found.keys()):
        yield from differences(said[name], found[name], f"{where}.{name}")


def _in_list(said: list[Any], found: list[Any], where: str) -> Iterator[str]:
    """Members that are left out of the page have the form of the last one that is shown."""
    is_open = said[-1:] == [ANY]
    shown = said[:-1] if is_open else said
    if len(found) < len(shown) or (not is_open and len(found) > len(shown)):
        yield f"{where} has {len(found)} members, not {len(shown)}"
    for number, (left, right) in enumerate(zip(shown, found, strict=False)):
        yield from differences(left, right, f"{where}[{number}]")
    for number in range(len(shown), len(found) if shown else 0):
        if _form(found[number]) != _form(shown[-1]):
            yield f"{where}[{number}] has another form than the one before it"


def _form(value: Any) -> Any:
    """The keys of an object, at any depth; of anything else whether it is an object, a list, or neither."""
    if isinstance(value, dict):
        return {name: _form(inner) for name, inner in value.items()}
    return "list" if isinstance(value, list) else ""


def _answered(request: Request, answer: httpx.Response) -> Iterator[str]:
    """Yields what differs between the page and the worker's answer."""
    if answer.status_code != request.status:
        yield f"status {answer.status_code}, not {request.status}: {answer.text}"
    elif answer.headers.get("content-type") == "application/json":
        yield from differences(json.loads(request.answer), answer.json())
    elif request.answer.strip() or answer.text:
        lines = map(re.escape, request.answer.splitlines())
        if re.match("\n".join(".*" if line == ANY else line for line in lines), answer.text, re.DOTALL) is None:
            yield f"text {answer.text[:2_000]!r}"


def _fail(worker: RestWorker) -> None:
    said = "Connector customers: source topic customers does not exist. Create it, or correct topics."
    worker.supervisor("customers").fail(said, next_restart_ms=RESTARTED_MS)


def _publish(worker: RestWorker) -> None:
    logs = tuple(_log(partition, published) for partition, published in enumerate((120, 95)))
    worker.supervisor("customers").catalog_state = CatalogState(connector="customers", buckets=2, logs=logs)


def _log(partition: int, published: int) -> PartitionLog:
    begun = empty(TopicPartition("customers", partition), partition, 0, None)
    return replace(begun, end=published, folded_end=published, published=published)


def _keep(worker: RestWorker) -> None:
    rows = [
        {**row(0, at, key, value), "topic": "customers", "timestamp": RESTARTED_MS}
        for at, (key, value) in enumerate(((b"customer-7", b"order 6"), (b"customer-7", b"order 7")))
    ]
    target = RunTarget(storage=worker.location.sub("customers"), prefix="1-j", max_bytes=1 << 20, is_indexed=True)
    stats = list(writer.write([pa.RecordBatch.from_pylist(rows, record.RUN)], target, "ingest.write"))
    log = replace(_log(0, 2), runs=(level0_run(0, 2, stats, RESTARTED_MS),))
    worker.supervisor("customers").catalog_state = CatalogState(connector="customers", buckets=2, logs=(log,))


def _stop(worker: RestWorker) -> None:
    worker.ask("PUT", "/connectors/customers/stop")


def _resume(worker: RestWorker) -> None:
    worker.ask("PUT", "/connectors/customers/resume")


GIVEN: Mapping[str, Callable[[RestWorker], None]] = {
    "customers has failed": _fail,
    "customers has published": _publish,
    "customers keeps records": _keep,
    "customers is stopped": _stop,
    "customers runs": _resume,
}


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestWorker]:
    """The worker of the page: with a connector of a file, under the address that the page has.

    Nothing is changed by a change of offsets, for which there is no broker (tests/e2e/test_offsets.py has one).
    """
    monkeypatch.setattr(offsets, "change_offsets", lambda *_: ())
    file = connector_file(tmp_path, name="flights", topics="flights").rename(tmp_path / "flights.json")
    with rest_worker(tmp_path, load_connector(file), **ADVERTISED) as found:
        yield found


@pytest.fixture
def own_levels() -> Iterator[None]:
    """Puts the levels of loggers back."""
    known = {name: one.level for name, one in _loggers()}
    yield
    for name, one in _loggers():
        one.setLevel(known.get(name, logging.NOTSET))


def _loggers() -> list[tuple[str, logging.Logger]]:
    found = logging.root.manager.loggerDict.copy().items()
    return [(name, one) for name, one in found if isinstance(one, logging.Logger)]


@pytest.mark.usefixtures("own_levels")
def test_every_request_is_answered_as_the_page_says(worker: RestWorker) -> None:
    """Status and body of each, one after the other, on one worker."""
    wrong = []
    for request in requests(PAGE.read_text(encoding="utf-8")):
        if request.given is not None:
            GIVEN[request.given](worker)
        more = {} if request.body is None else {"json": request.body}
        found = worker.ask(request.method, request.path, **more)
        wrong += [f"{request}: {text}" for text in _answered(request, found)]
    assert wrong == []


def test_everything_that_can_be_asked_is_on_the_page(worker: RestWorker) -> None:
    """Each path with each of its methods, as /openapi.json has them."""
    shown = {(request.method, request.path.partition("?")[0]) for request in requests(PAGE.read_text(encoding="utf-8"))}
    missing = [
        f"{method.upper()} {path}"
        for path, methods in worker.ask("GET", "/openapi.json").json()["paths"].items()
        for method in methods
        if not any(name == method.upper() and re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), one) for name, one in shown)
    ]
    assert missing == []


def test_every_block_is_a_request() -> None:
    """No block of the page is passed over for its form."""
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("```console") == len(requests(page)) > 40
    assert page.count("<!-- given: ") == sum(request.given is not None for request in requests(page))


@pytest.mark.parametrize(
    ("said", "found", "same"),
    [
        ("a", "a", True),
        ("a", "b", False),
        (1, 1, True),
        (1, True, False),
        (1, "1", False),
        (None, None, True),
        (ANY, 7, True),
        (ANY, {"a": 1}, True),
        ("a … c", "a b\nc", False),
        ("a … c", "a b\nb c", True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, ANY: ANY}, {"a": 1, "b": 2}, True),
        ({"a": 1, ANY: ANY}, {"b": 2}, False),
        ([1], [1], True),
        ([1], [1, 2], False),
        ([1, ANY], [1, 2], True),
        ([1, ANY], [], False),
        ([{"a": 1}, ANY], [{"a": 1}, {"a": 2}], True),
        ([{"a": 1}, ANY], [{"a": 1}, {"b": 2}], False),
        ([{"a": {"b": []}}, ANY], [{"a": {"b": []}}, {"a": {"c": []}}], False),
        ({"a": [1]}, {"a": 1}, False),
    ],
)
def test_a_wrong_answer_is_found(said: Any, found: Any, same: bool) -> None:
    """The page's form of a body takes what it leaves open, and nothing else."""
    assert (list(differences(said, found)) == []) is same


def test_a_request_is_read_as_curl_reads_it() -> None:
    """Method, path and body come from the options, and JSON may go over several lines."""
    page = "<!-- given: x -->\n```console\n$ curl -X PUT 'localhost:8083/a?b=c' --json '{\n  \"d\": 1}'\n201\n{}\n```\n"
    assert requests(page) == [Request("x", "PUT", "/a?b=c", {"d": 1}, 201, "{}\n")]
    assert requests("```console\n$ curl localhost:8083/ --json '{}'\n204\n```")[0].method == "POST"
