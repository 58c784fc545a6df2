"""A placeholder in every setting that there is: what it stands for is in no answer, log line, metric or status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import logging_setup
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import checked, load_worker
from connectors.known_values import hide_all
from connectors.runtime.herder import Herder
from tests.support.cli import own_logging, worker_file
from tests.support.rest import RestWorker, rest_worker
from tests.support.settings import LEAST, cases

WORD = "s3cr3tWord"
VALUES = {
    "word": WORD,
    "number": "48151623",
    "pattern": "(geh3im[",
    "path": "/geh3im/pfad.pem",
    "url": "http://us3r:geh3imes@geh3im.example:99/x",
    "pair": "us3r:geh3imes",
    "list": "geh3im1,geh3im2,geh3im1",
    "percent": "%geh3im$9\\",
    "hex": "hex:geh3im",
    "long": "geh3im" * 400,
    "header": "header:geh3im",
}
PARTS = (WORD, "48151623", "geh3im", "us3r")
"""What of them an answer must not have."""
CASES = tuple(cases())
"""Classes have settings of one name, so that a key comes several times."""


def leaks(text: str) -> list[str]:
    return [part for part in PARTS if part.lower() in text.lower()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    for name, value in VALUES.items():
        (tmp_path / "secrets" / name).write_text(value)
    return tmp_path


def settings_of_worker(folder: Path) -> dict[str, str]:
    return {"config.providers.directory.param.allowed.paths": str(folder / "secrets")}


@pytest.fixture
def worker(folder: Path) -> Iterator[RestWorker]:
    with rest_worker(folder, **settings_of_worker(folder)) as found:
        yield found


def test_no_answer_log_line_metric_or_status_shows_it(
    worker: RestWorker, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is sent to be checked, made and changed; a connector that there is then is asked for everything."""
    with own_logging():
        logging_setup.configure("debug", "json")
        written = f"${{directory:{folder}/secrets:word}}"
        made = 0
        for key, at in CASES:
            config = {**at, key: written}
            answers = [worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json=config)]
            name = config.get("name", "c") if key != "name" else "c"
            answers.append(worker.ask("POST", "/connectors", json={"name": name, "config": config}))
            made += answers[-1].status_code == 201
            if answers[-1].status_code == 201:
                answers.append(worker.ask("PUT", f"/connectors/{name}/config", json=config))
                answers += [worker.ask("GET", f"/connectors/{name}/{what}") for what in ("config", "status", "tasks")]
                answers.append(worker.ask("GET", "/metrics"))
                worker.ask("DELETE", f"/connectors/{name}")
            assert [(key, one.request.url, one.text) for one in answers if leaks(one.text)] == []
            assert all(one.status_code in {200, 201, 400} for one in answers), key
    logged = capfd.readouterr()
    assert leaks(logged.out + logged.err) == []
    assert made > 65


@pytest.mark.parametrize("kind", VALUES)
def test_no_fault_shows_it_whatever_it_is(folder: Path, kind: str) -> None:
    """Numbers, broken patterns, paths, addresses: neither a connector made over REST nor one of a file says it."""
    worker = load_worker(worker_file(folder, **settings_of_worker(folder)))
    written = f"${{directory:{folder}/secrets:{kind}}}"
    for key, at in CASES:
        config = {**at, key: written}
        for over_rest in (True, False):
            try:
                checked(config, worker) if over_rest else ConnectorConfig.model_validate(config)
            except FaultyConfigError as error:
                texts = [error.message, *(fault.value or "" for fault in error.faults)]
                assert [(key, text) for text in texts if leaks(text)] == []


def test_a_rule_over_several_settings_does_not_show_it() -> None:
    """What does not fit is told by the keys that have placeholders."""
    given = {**LEAST, "min.compaction.lag.ms": "${env:LAG}", "max.compaction.lag.ms": "7"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAG", "48151623")
        with pytest.raises(FaultyConfigError, match=r"Placeholders are in min\.compaction\.lag\.ms"):
            ConnectorConfig.model_validate(given)


def test_names_numbers_and_places_take_no_placeholder_over_rest(folder: Path) -> None:
    """Status, metrics and files show them; the value is not even looked at."""
    worker = load_worker(worker_file(folder, **settings_of_worker(folder)))
    for key in ("topics", "output.topic", "tasks.max", "snapshot.location", "output.topic.config.segment.ms"):
        with pytest.raises(FaultyConfigError, match="takes no placeholder here"):
            checked({**LEAST, key: f"${{directory:{folder}/secrets:word}}"}, worker)
    router = {
        **LEAST,
        "transforms": "r",
        "transforms.r.type": "RegexRouter",
        "transforms.r.regex": "x",
        "transforms.r.replacement": f"${{directory:{folder}/secrets:word}}",
    }
    with pytest.raises(FaultyConfigError, match="takes no placeholder here"):
        checked(router, worker)


def test_a_guess_in_a_request_is_not_told_to_be_right(worker: RestWorker, folder: Path) -> None:
    """An error quotes what was sent, whether some connector's secret is the same or not."""
    assert worker.create("a", **{"consumer.override.client.rack": f"${{directory:{folder}/secrets:word}}"}).is_success
    assert hide_all(WORD) != WORD
    answer = worker.create("b", **{"tasks.max": WORD})
    assert f"Invalid value {WORD} for configuration tasks.max" in answer.json()["message"]


def test_a_stored_connector_that_may_no_longer_resolve_is_left_out_and_told(
    worker: RestWorker, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log names the setting that the worker file lacks; with it the connector is there again."""
    assert worker.create("a", **{"consumer.override.client.rack": f"${{directory:{folder}/secrets:word}}"}).is_success
    worker.herder.release()
    with own_logging():
        logging_setup.configure("info", "json")
        with rest_worker(folder) as without:
            assert without.herder.names() == []
    assert "config.providers.directory.param.allowed.paths" in capfd.readouterr().err
    with rest_worker(folder, **settings_of_worker(folder)) as again:
        assert again.herder.names() == ["a"]
    assert isinstance(worker.herder, Herder)
