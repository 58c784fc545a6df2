"""The page of dead letters, on a running worker and a real broker."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.browser import browse, send, words
from tests.support.dead_letters import deployment_with_letters
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import consume_all, produce, wait_until
from tests.support.rest_process import RestProcess

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def mistaken(tmp_path: Path, broker: EmbeddedKafka, topic_name: str) -> Deployment:
    """A connector that takes plain JSON for JSON with schemas, so that no record can be read."""
    made = deployment_with_letters(tmp_path, broker.bootstrap, topic_name)
    made.settings["value.converter.schemas.enable"] = "true"
    return made


def ended(worker: RestProcess, page: httpx.Response) -> str:
    """The words of a run's page, once it has ended."""
    assert page.status_code == 200, words(page.text)
    wait_until(lambda: "under way" not in words(browse(worker, page.url.path).text), "the run ends", PROCESS_TIMEOUT_S)
    return words(browse(worker, page.url.path).text)


def test_letters_are_shown_and_sent_back_once_the_fault_is_corrected(mistaken: Deployment, tmp_path: Path) -> None:
    """A dry run says beforehand that they would be let go again; afterwards, that they would be taken."""
    records = [(number % 2, b"k%d" % number, b'{"id": %d}' % number) for number in range(6)]
    produce(mistaken.bootstrap, mistaken.topic, [*records, (0, b"never", b"{bad")])
    place = f"/ui/connectors/{mistaken.name}/letters"
    with RestProcess(tmp_path, mistaken.bootstrap) as worker:
        assert worker.create(mistaken).status_code == 201
        shown = "7 letters were looked at"
        wait_until(lambda: shown in words(browse(worker, place).text), "all are letters", PROCESS_TIMEOUT_S)
        assert f"{mistaken.topic} VALUE_CONVERTER keyfold.Json DataError 7 7" in words(browse(worker, place).text)
        letters = re.findall(r"letters/at/\d/\d+", browse(worker, place).text)
        seen = [words(browse(worker, f"{place}{each.removeprefix('letters')}").text) for each in letters]
        assert any("Value {bad" in each and "Key never" in each for each in seen)
        assert all(f"Source topic {mistaken.topic}" in each for each in seen)

        first = send(worker, f"{place}/dry-run")
        assert "7 of them would be let go again" in ended(worker, first)
        mistaken.settings["value.converter.schemas.enable"] = "false"
        config = {key: value for key, value in mistaken.settings.items() if key != "name"}
        assert worker.ask("PUT", f"/connectors/{mistaken.name}/config", json=config).status_code == 200
        second = send(worker, f"{place}/dry-run", fields={"topic": mistaken.topic})
        assert "7 letters would go back to their topics; 1 of them would be let go again" in ended(worker, second)
        assert consume_all(mistaken.bootstrap, mistaken.output) == []

        done = send(worker, f"{second.url.path}/redrive", fields={"confirm": "yes"})
        assert "7 letters went back to their topics." in ended(worker, done)
        published = f"{len(records)} records are published"
        wait_until(lambda: len(consume_all(mistaken.bootstrap, mistaken.output)) == 6, published, PROCESS_TIMEOUT_S)
        values = sorted(each.value or b"" for each in consume_all(mistaken.bootstrap, mistaken.output))
        assert values == [b'{"id": %d}' % number for number in range(6)]
        again = "VALUE_CONVERTER keyfold.Json DataError 8 1"
        wait_until(lambda: again in words(browse(worker, place).text), "one is a letter again", PROCESS_TIMEOUT_S)
        assert "Redrive: done" in words(browse(worker, f"/ui/connectors/{mistaken.name}").text)
