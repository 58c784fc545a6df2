"""A password in the line of another setting of a login: a fault names the setting and what it takes, no value."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors import logging_setup
from connectors.config.definitions import definitions
from connectors.config.errors import FaultyConfigError
from connectors.config.files import load_connector, load_worker
from connectors.config.secrets import is_secret
from connectors.config.worker import WorkerConfig
from connectors.credentials import is_of_login
from tests.support.cli import own_logging, worker_file, write_json
from tests.support.rest import RestWorker
from tests.support.settings import cases

CASES = {name: at for name, at in cases() if is_of_login(name) or is_secret(name)}
CLIENTS = {name.replace(".override.", "."): name for name in CASES if ".override." in name}
OF_WORKER = [*CLIENTS, *(name for name in definitions(WorkerConfig) if is_of_login(name) or is_secret(name))]
VALUES = ("Pass-4711", "Pass 4711,x=Pass-4711", "https://pass4711/x")


def test_there_are_settings_of_each_family() -> None:
    """Clients' logins, registries', stores'."""
    names = " ".join((*CASES, *OF_WORKER))
    for part in ("override.sasl.mechanism", "override.ssl.", "basic.auth.credentials.source", "storage.s3.path.style"):
        assert part in names


def test_no_answer_and_no_line_of_the_log_shows_what_is_refused(
    worker: RestWorker, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of a config that is checked, made or changed."""
    refused = 0
    with own_logging():
        logging_setup.configure("debug", "json")
        for key, at in CASES.items():
            for value in VALUES:
                config = {**at, key: value}
                answers = [worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json=config)]
                if not answers[0].json()["error_count"]:
                    continue
                refused += 1
                answers.append(worker.ask("POST", "/connectors", json={"name": "c", "config": config}))
                answers.append(worker.ask("PUT", "/connectors/c/config", json=config))
                assert [(key, one.text) for one in answers if "4711" in one.text] == []
                assert [one.status_code for one in answers] == [200, 400, 400]
    logged = capfd.readouterr()
    assert "4711" not in logged.out + logged.err
    assert refused > 100


@pytest.mark.parametrize("value", VALUES)
def test_no_fault_of_a_file_shows_what_is_refused(tmp_path: Path, value: str) -> None:
    """Neither of a worker file nor of a connector's."""
    faults = []
    for key in OF_WORKER:
        try:
            load_worker(worker_file(tmp_path, **{key: value}))
        except FaultyConfigError as error:
            faults.append((key, f"{error} {error.faults}"))
    worker = load_worker(worker_file(tmp_path))
    for key, at in CASES.items():
        try:
            load_connector(write_json(tmp_path / "c.json", {**at, key: value}), worker)
        except FaultyConfigError as error:
            faults.append((key, f"{error} {error.faults}"))
    assert [fault for fault in faults if "4711" in fault[1].replace(str(tmp_path), "")] == []
    assert len(faults) > 60
