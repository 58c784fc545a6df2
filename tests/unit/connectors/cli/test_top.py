"""`keyfold top`: its rows from two samples, its orders and widths, and its keys on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.cli.commands.top import sample as asked_sample
from connectors.cli.views.top import ORDERS, TopSample, TopState, rows, text, values_of
from connectors.errors import UnreachableError
from connectors.rest.client import RestClient
from tests.support.cli import invoke
from tests.support.clocks import ManualClock
from tests.support.echo_server import echo_server
from tests.support.rest import RestWorker, rest_worker

READ = "keyfold_records_read_total"
STATUS = {"connector": {"state": "RUNNING", "worker_id": "w"}, "tasks": []}


def sample(at_ms: int, read: float, **states: TopState) -> TopSample:
    """Connectors, each of which has read so many records."""
    return TopSample(at_ms, states, {(READ, name): read for name in states})


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RestWorker]:
    with rest_worker(tmp_path) as listening:
        listening.create("orders")
        yield listening


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        (sample(0, 10, a=TopState("RUNNING")), sample(2_000, 30, a=TopState("RUNNING")), 10.0),
        (sample(0, 10, a=TopState("RUNNING")), sample(2_000, 4, a=TopState("RUNNING")), 2.0),
        (sample(5, 10, a=TopState("RUNNING")), sample(5, 30, a=TopState("RUNNING")), None),
        (sample(0, 10, b=TopState("RUNNING")), sample(2_000, 30, a=TopState("RUNNING")), None),
        (None, sample(2_000, 30, a=TopState("RUNNING")), None),
    ],
)
def test_a_rate_is_what_a_counter_gained(before: TopSample | None, now: TopSample, rate: float | None) -> None:
    """A counter that went back began at 0 again; without an earlier sample there is no rate."""
    assert rows(before, now)[0].read_per_second == rate


def test_lag_is_of_source_and_output() -> None:
    """Records of all topics are added up, the longest delay counts."""
    values = values_of(
        [
            ("keyfold_source_lag_records", "a", 5),
            ("keyfold_source_lag_records", "a", 7),
            ("keyfold_source_lag_seconds", "a", 3),
            ("keyfold_source_lag_seconds", "a", 9),
            ("keyfold_publish_lag_records", "a", 1),
        ]
    )
    row = rows(None, TopSample(0, {"a": TopState("FAILED", "no broker\n  at x")}, values))[0]
    assert (row.lag_records, row.lag_seconds, row.error) == (13, 9, "no broker")


def test_what_failed_is_first() -> None:
    """By state the worst is first, by name the alphabet counts."""
    shown = rows(None, sample(0, 1, a=TopState("RUNNING"), b=TopState("FAILED", "gone")))
    assert [row.connector for row in sorted(shown, key=ORDERS["state"])] == ["b", "a"]
    assert [row.connector for row in sorted(shown, key=ORDERS["name"])] == ["a", "b"]


@pytest.mark.parametrize("width", [80, 60, 40])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Names are cut and columns fall away; escapes of a terminal in an error are shown, not obeyed."""
    states = {"x" * 100: TopState("FAILED", "\x1b[2J" + "e" * 200)}
    shown = text(rows(None, TopSample(0, states, {})), width).replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(map(len, shown.splitlines())) <= width
    assert "\x1b" not in shown
    assert ("FOLDS" in shown) == (width == 80)


def test_once_prints_one_table(worker: RestWorker) -> None:
    """A pipe gets a table, --json an object, and an unknown order is a usage error."""
    done = invoke("top", "--once", "--interval", "0.1", "--url", worker.url)
    assert (done.exit_code, done.stdout.splitlines()[1].split()[0]) == (0, "orders")
    told = json.loads(invoke("top", "--json", "--interval", "0.1", "--url", worker.url).stdout)
    assert [each["connector"] for each in told["connectors"]] == ["orders"]
    assert invoke("top", "--sort", "colour", "--url", worker.url).exit_code == 2


def test_rates_are_by_the_time_of_the_metrics() -> None:
    """However long the states take, and whatever is done to the wall clock; no more is asked for than is shown."""
    clock, asked = ManualClock(), []

    def answer(path: str, _: object) -> tuple[int, bytes]:
        asked.append(path)
        clock.advance(1_000)
        return 200, b"" if path == "/metrics" else json.dumps({"a": {"status": STATUS}}).encode()

    with echo_server(answer) as url, RestClient(url) as client:
        taken = asked_sample(client, clock)
    assert asked == ["/connectors?expand=status", "/metrics"]
    assert (taken.at_ms, taken.states) == (clock.at_ms, {"a": TopState("RUNNING")})


def test_an_answer_of_another_form_shows_no_login() -> None:
    """The address is named without what it holds of a user."""

    def answer(path: str, _: object) -> tuple[int, bytes]:
        return 200, f'{READ}{{connector="a"}} many'.encode() if path == "/metrics" else b"{}"

    with echo_server(answer) as url:
        at = url.replace("://", "://ann:geheim-4711@")
        with RestClient(at) as client, pytest.raises(UnreachableError, match="its metrics have another form") as error:
            asked_sample(client, ManualClock())
        done = invoke("top", "--once", "--url", at)
    assert (done.exit_code, "its metrics have another form" in done.output) == (4, True), done.output
    assert [text for text in (str(error.value), done.output) if "geheim-4711" in text] == []
