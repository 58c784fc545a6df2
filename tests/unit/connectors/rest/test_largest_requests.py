"""No request keeps the others waiting: the largest that is let in is answered while `/health` is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest
from msgspec import Struct
from msgspec.structs import replace

from compactor.model.log import empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.config.flat_file import LONGEST_SETTINGS, MOST_SETTINGS, MOST_STEPS
from connectors.rest.answers import LONGEST
from connectors.rest.listeners import ClientLimits
from connectors.rest.security import BODY_MAX
from tests.support.rest import RestWorker, limited_rest_worker
from tests.unit.connectors.rest.test_record_requests import keep

HEALTH_S: Final = 0.25
"""How long `/health` may take meanwhile: the thread of all requests is busy for less than 50 ms at a time; the rest is
for a machine that does other things too."""
TRIES: Final = 5
"""Other programs may take the processors meanwhile, which is not so each time; what the worker itself does is."""
ANSWER_S: Final = 60.0
MEMORY: Final = 48 << 20
"""By as many bytes the process may grow, but for an answer that is longer: worker and client have it, the client twice
while it reads."""
TASKS, PARTITIONS = 10_000, 10_000
NAME = "/connectors/{connector}"
CLASS = {"connector.class": "keyfold.CompactedTopic"}


class Case(Struct, frozen=True):
    """A request of a route, and the statuses that it may be answered with."""

    method: str
    route: str
    statuses: tuple[int, ...]
    query: str = ""
    body: Any = None
    of: str = "a"

    @property
    def is_of_largest(self) -> bool:
        """Whether the largest connector is asked, which stays as it is."""
        return self.method == "GET" or "restart" in self.route


def _of_all_bytes(make: Any) -> str:
    """Returns the longest JSON text of what `make` makes of a number, that a body may be."""
    size = len(json.dumps(make(10_000)))
    text = json.dumps(make(int(BODY_MAX / size * 9_000)))
    assert BODY_MAX * 0.8 < len(text) < BODY_MAX
    return text


FLAT = _of_all_bytes(lambda most: {str(number): "" for number in range(most)})
NESTED = json.dumps({"a": [[]] * (BODY_MAX // 5)})
TOPICS = {**CLASS, "topics": ",".join(f"t{number}" for number in range((LONGEST_SETTINGS - 1_000) // 7))}
CHAIN = {
    **CLASS,
    "topics": "t",
    "transforms": ",".join(f"t{number}" for number in range(MOST_STEPS)),
    **{f"transforms.t{number}.type": "org.apache.kafka.connect.transforms.DropHeaders" for number in range(MOST_STEPS)},
    **{f"transforms.t{number}.headers": "h" * 2_000 for number in range(MOST_STEPS)},
}
WRONG = {**CLASS, **{f"wrong.{number}.{'x' * 200}": "v" for number in range(MOST_SETTINGS - 1)}}
OFFSETS = _of_all_bytes(
    lambda most: {
        "offsets": [
            {"partition": {"kafka_topic": "t", "kafka_partition": number}, "offset": {"kafka_offset": 1}}
            for number in range(most)
        ]
    }
)
PUT, VALIDATE = f"{NAME}/config", "/connector-plugins/{plugin}/config/validate"
CASES = (
    Case("GET", "/", (200,)),
    Case("GET", "/health", (200, 500), "strict=true"),
    Case("GET", "/metrics", (200,)),
    Case("GET", "/connectors", (200,)),
    Case("GET", "/connectors", (200,), "expand=info&expand=status"),
    *(Case("POST", "/connectors", (201, 400), body=body) for body in (FLAT, NESTED, {"name": "new", "config": TOPICS})),
    Case("GET", NAME, (200,)),
    Case("DELETE", NAME, (204,)),
    Case("GET", f"{NAME}/config", (200,)),
    *(Case("PUT", PUT, (200, 201, 400), body=body) for body in (FLAT, NESTED, TOPICS, CHAIN, WRONG)),
    *(Case("PATCH", PUT, (200, 400), body=body) for body in (FLAT, NESTED, TOPICS, CHAIN, WRONG)),
    Case("GET", f"{NAME}/status", (200,)),
    Case("GET", f"{NAME}/tasks", (400,)),
    Case("GET", f"{NAME}/tasks", (200,), of="b"),
    Case("GET", f"{NAME}/tasks/{{task}}/status", (200,)),
    Case("POST", f"{NAME}/restart", (202,), "includeTasks=true"),
    Case("POST", f"{NAME}/tasks/{{task}}/restart", (204,)),
    *(Case("PUT", f"{NAME}/{verb}", (202, 204)) for verb in ("pause", "resume", "stop")),
    Case("GET", f"{NAME}/topics", (200,)),
    Case("PUT", f"{NAME}/topics/reset", (202,)),
    Case("GET", f"{NAME}/offsets", (200,)),
    *(Case("PATCH", f"{NAME}/offsets", (400,), body=body) for body in (OFFSETS, FLAT, NESTED)),
    Case("DELETE", f"{NAME}/offsets", (400,)),
    Case("GET", "/connector-plugins", (200,), "connectorsOnly=false"),
    Case("GET", "/connector-plugins/{plugin}/config", (200,)),
    *(Case("PUT", VALIDATE, (200, 400), body=body) for body in (FLAT, NESTED, TOPICS, CHAIN, WRONG)),
    Case("GET", "/admin/loggers", (200,)),
    Case("GET", "/admin/loggers/{logger}", (200, 404)),
    Case("PUT", "/admin/loggers/{logger}", (200,), body={"level": "INFO"}),
    Case("PUT", "/admin/loggers/{logger}", (404,), body=json.dumps({"level": "x" * (BODY_MAX - 100)})),
    Case("GET", "/keyfold/connectors/{connector}/records", (200,), "&".join(f"key=k{at}" for at in range(100))),
    Case("GET", "/openapi.json", (200,)),
)
CONNECTORS: Final = TRIES * len(CASES)
"""Each try of a case has its own: a case may delete it, or leave another config in it."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestWorker]:
    """A worker of many connectors: `a` is as large as one may be, `c0` is for changes."""
    with limited_rest_worker(tmp_path_factory.mktemp("rest"), ClientLimits()) as made:
        for number in range(CONNECTORS):
            created = made.create(f"c{number}", topics="t" * 200, **{"output.topic": f"${{topic}}.{number}"})
            assert created.status_code == 201, created.text
        keep(made, [(b"k%d" % at, b"v") for at in range(100)])
        kept = made.supervisor("a").catalog_state.logs
        config = {**TOPICS, "tasks.max": TASKS}
        assert made.ask("PUT", "/connectors/a/config", json=config, timeout=ANSWER_S).status_code == 200
        logs = (replace(empty(TopicPartition("u", at), 0, 0, None), end=1 << 40) for at in range(PARTITIONS))
        supervisor = made.supervisor("a")
        supervisor.catalog_state = CatalogState(connector="a", logs=(*kept, *logs), buckets=TASKS)
        supervisor.fail("trace " * 500)
        largest = {**TOPICS, "tasks.max": LONGEST // LONGEST_SETTINGS, "output.topic": "${topic}.b"}
        assert made.ask("PUT", "/connectors/b/config", json=largest, timeout=ANSWER_S).status_code == 201
        yield made


class Took(list[float]):
    """How long each answer took (s), and by how many bytes the process, client and worker, has grown at most."""

    memory = 0


@contextmanager
def asked_for_health(worker: RestWorker) -> Iterator[Took]:
    """Asks for it in the block, again and again; yields what the block takes, complete after it."""
    took, over, process = Took([0.0]), threading.Event(), psutil.Process()
    before = process.memory_info().rss

    def ask() -> None:
        with httpx.Client(base_url=worker.url, timeout=ANSWER_S, verify=False) as client:
            while not over.wait(0.005):
                began = time.monotonic()
                client.get("/health")
                took.append(time.monotonic() - began)
                took.memory = max(took.memory, process.memory_info().rss - before)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield took
    finally:
        over.set()
        asking.join()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.route} {str(case.body or '')[:12]}")
def test_the_largest_request_of_a_route_keeps_nobody_waiting(worker: RestWorker, case: Case) -> None:
    """Its values are checked, and its answer is made, elsewhere than on the thread of all requests."""
    body = case.body if isinstance(case.body, str | None) else json.dumps(case.body)
    headers = {} if body is None else {"Content-Type": "application/json"}
    slowest = []
    for again in range(TRIES):
        own = TRIES * CASES.index(case) + again
        name, number = case.of if case.is_of_largest else f"c{own}", 0 if "restart" in case.route else TASKS - 1
        logger = f"{'a.' * 9}{own}"
        path = case.route.format(connector=name, task=number, plugin="CompactedTopic", logger=logger)
        with asked_for_health(worker) as took:
            answer = worker.ask(case.method, f"{path}?{case.query}", content=body, headers=headers, timeout=ANSWER_S)
        assert answer.status_code in case.statuses, answer.text[:500]
        assert took.memory < MEMORY + 3 * (len(answer.content) if len(answer.content) > MEMORY else 0)
        assert len(answer.content) <= LONGEST
        slowest.append(max(took))
        if slowest[-1] < HEALTH_S:
            return
    pytest.fail(f"/health took {slowest} s")


def test_every_route_has_a_case(worker: RestWorker) -> None:
    """A new one says what its largest request is."""
    paths = worker.ask("GET", "/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert routes | {("GET", "/openapi.json")} == {(case.method, case.route) for case in CASES}


VIEWED = 8


def test_a_config_is_masked_once(tmp_path: Path) -> None:
    """To look for secrets in a large one takes 0.1 s of a core, and all may be asked for again and again."""
    with limited_rest_worker(tmp_path, ClientLimits()) as made:
        for number in range(VIEWED):
            settings = {**TOPICS, "output.topic": f"${{topic}}.{number}"}
            made.ask("PUT", f"/connectors/c{number}/config", json=settings, timeout=ANSWER_S)
        began = time.process_time()
        for _ in range(TRIES):
            answer = made.ask("GET", "/connectors?expand=info", timeout=ANSWER_S)
        assert time.process_time() - began < VIEWED * TRIES * 0.025
    infos = answer.json()
    assert len(infos) == VIEWED
    assert {info["info"]["config"]["topics"] for info in infos.values()} == {TOPICS["topics"]}


@pytest.mark.parametrize(("count", "is_short"), [(2, False), (TASKS, True)])
def test_the_trace_of_many_tasks_is_shown_once(worker: RestWorker, count: int, is_short: bool) -> None:
    """Each has its connector's, and a status is there however many they are: of 10,000 it had 80 MB."""
    trace = "trace " * 1_300
    settings = {**CLASS, "topics": "v", "tasks.max": count}
    assert worker.ask("PUT", "/connectors/v/config", json=settings).status_code in (200, 201)
    worker.supervisor("v").fail(trace)
    status = worker.ask("GET", "/connectors/v/status").json()
    assert status["connector"]["trace"] == trace
    own = {task["trace"] for task in status["tasks"]}
    assert len(status["tasks"]) == count
    assert own == ({"See the trace of the connector: it is that of all its tasks."} if is_short else {trace})


LONG = "://x?" + "a=b& " * 200_000
"""In which secrets are looked for long."""


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connectors", {"initial_state": LONG, "name": "new", "config": CLASS}),
        ("POST", "/connectors", {LONG: "", "name": "new", "config": CLASS}),
        ("POST", "/connectors", {"name": "new", "config": {**CLASS, "name": LONG}}),
        ("PATCH", "/connectors/c0/offsets", {"offsets": [{LONG: ""}]}),
        (
            "PATCH",
            "/connectors/c0/offsets",
            {"offsets": [{"partition": {"kafka_topic": [LONG], "kafka_partition": 0}}]},
        ),
        (
            "PATCH",
            "/connectors/c0/offsets",
            {"offsets": [{"partition": {"kafka_topic": "t", "kafka_partition": LONG}}]},
        ),
        ("PUT", "/connector-plugins/CompactedTopic/config/validate", {"connector.class": LONG}),
        ("PUT", "/admin/loggers/a", {"level": LONG}),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_message_quotes_little(worker: RestWorker, method: str, path: str, body: Any) -> None:
    """What is quoted is masked, and the answer says still what to do."""
    answer = worker.ask(method, path, json=body, timeout=ANSWER_S)
    assert answer.status_code in (400, 404)
    assert len(answer.content) < 1_500
    assert "…" in answer.json()["message"]


def test_a_message_of_many_faults_is_short(worker: RestWorker) -> None:
    """The first ones are named."""
    body = {"name": "new", "config": {**dict(list(WRONG.items())[:900]), "topics": LONG[:50_000]}}
    answer = worker.ask("POST", "/connectors", json=body, timeout=ANSWER_S)
    assert answer.status_code == 400
    assert 10_000 < len(answer.json()["message"]) < 20_000
    assert "wrong.1." in answer.json()["message"]
