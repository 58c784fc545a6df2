"""The what-if page of a running worker: figures are those of the command, and a cancelled process is gone."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.browser import ACCEPT, words
from tests.support.cli import invoke
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess

pytestmark = pytest.mark.timeout(300)

LAG = "min.compaction.lag.ms"
RECORDS = 400
LONG_LAG = 9_000 * 86_400_000
"""Longer than the records are old, whenever this is run."""


def _sent(worker: RestProcess, path: str, **fields: str) -> httpx.Response:
    """Sends a form of the page, with its token, and follows to the page that answers."""
    token = re.search(r'name="form" value="([0-9a-f]{64})"', _page(worker, "/ui/new"))
    assert token is not None
    headers = {"Accept": ACCEPT, "Origin": worker.url, "Sec-Fetch-Site": "same-origin"}
    return worker.ask("POST", path, data={"form": token[1], **fields}, headers=headers, follow_redirects=True)


def _page(worker: RestProcess, path: str) -> str:
    return worker.ask("GET", path, headers={"Accept": ACCEPT}).text


def _ingested(deployment: Deployment) -> int:
    """Returns how many offsets are taken in; 0 as long as the connector keeps nothing."""
    return sum(log.end for log in deployment.state().logs) if deployment.taken_over() else 0


def _counting(worker: RestProcess) -> list[psutil.Process]:
    return worker.processes("counting_process")


def test_figures_are_those_of_the_command_and_a_cancelled_process_is_gone(
    broker: EmbeddedKafka, new_topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Of what a worker keeps while it runs; and nothing is left of a process, also if it is frozen."""
    topic = create_topic(broker.bootstrap, new_topic_name("w"), 2, cleanup_policy="delete")
    deployment = Deployment(tmp_path, broker.bootstrap, topic)
    deployment.settings[LAG] = LONG_LAG  # all that is taken in waits
    with RestProcess(tmp_path, broker.bootstrap) as worker:
        worker.create(deployment)
        produce(broker.bootstrap, topic, random_records(7, RECORDS))
        wait_until(lambda: _ingested(deployment) == RECORDS, "everything is taken in", PROCESS_TIMEOUT_S)
        path = f"/ui/connectors/{deployment.name}/what-if"

        asked = _sent(worker, path, **{LAG: "0", "delete.retention.ms": "7 d"})
        address = str(asked.url.raw_path, "ascii")
        wait_until(lambda: "Counted at" in words(_page(worker, address)), "it is counted", PROCESS_TIMEOUT_S)
        _check_figures(words(_page(worker, address)), _told(deployment))
        assert _counting(worker) == []

        frozen = _sent(worker, path)
        wait_until(lambda: bool(_counting(worker)), "a process counts")
        (process,) = _counting(worker)
        process.send_signal(signal.SIGSTOP)
        ended = _sent(worker, f"{path}/cancel", run=frozen.url.params["run"])
        address = str(ended.url.raw_path, "ascii")
        wait_until(lambda: "It was cancelled." in words(_page(worker, address)), "it is given up")
        assert not process.is_running()
        assert _counting(worker) == []
        assert worker.state(deployment.name) == "RUNNING"


def _told(deployment: Deployment) -> dict[str, Any]:
    """Returns what `keyfold analyze --json` says under the same settings."""
    connector, worker_file = deployment.write()
    changes = ["--with", f"{LAG}=0", "--with", f"delete.retention.ms={7 * 86_400_000}"]
    told = invoke("analyze", str(connector), "--worker", str(worker_file), *changes, "--json")
    assert told.exit_code == 0, told.stderr
    report: dict[str, Any] = json.loads(told.stdout)
    return report


def _check_figures(page: str, report: dict[str, Any]) -> None:
    (topic,) = report["topics"]
    assert topic["changed"]["superseded"]["records"] > 0
    for label, field in (("kept now", "before"), ("kept after a full fold", "after"), ("tombstones", "tombstones")):
        present, changed = (topic[case][field]["records"] for case in ("present", "changed"))
        assert re.search(rf"{label} {present:,} \S+ \S+ {changed:,} \S+ \S+ [+-]?[0-9,]+ ", page), (label, page)
    for each in report["partitions"]:
        for case, name in (("present", "As it is set"), ("changed", "With the changes")):
            effect = each[case]["effect"]
            row = rf"{each['topic']} / {each['partition']} {name} {effect['before']['records']:,} \S+ \S+ .*? "
            assert re.search(rf"{row}{effect['after']['records']:,} \S+ \S+ {re.escape(each[case]['why'][:12])}", page)
            for rule in ("superseded", "rejected"):
                if effect[rule]["records"]:
                    assert f"{effect[rule]['records']:,} " in page
