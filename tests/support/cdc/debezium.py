"""Debezium's connector for PostgreSQL in a real Kafka Connect: one connector for each encoding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.apicurio_converter import ensure_converter
from tests.support.connect.real_worker import ConnectWorker
from tests.support.fetched import ensure_unpacked, ivy_module
from tests.support.kafka import wait_until

VERSION: Final = "3.5.0.Final"
"""The newest of which Ivy finds the plugin: 3.5.2 has a parent that is not on Maven Central, later ones no plugin."""
SHA256: Final = "cf32d3dbc52ad89ce4f539173f4fe7ca62485f64ce218d9f674bfd24be96cd21"
_NAME: Final = "debezium-connector-postgres"
_MODULE: Final = ivy_module(
    "debezium-postgres",
    f"""<dependency org="io.debezium" name="{_NAME}" rev="{VERSION}" conf="default->master" transitive="false">
      <artifact name="{_NAME}" type="tar.gz" ext="tar.gz" m:classifier="plugin"/>
    </dependency>""",
)
CLASS: Final = "io.debezium.connector.postgresql.PostgresConnector"
STARTED_S: Final = 120.0


def ensure_plugin() -> Path:
    """Returns the folder with Debezium's plugin, which is fetched now (24 MB) if it is not there."""
    return ensure_unpacked(f"debezium-postgres-{VERSION}", _MODULE, SHA256)


class Debezium:
    """A Kafka Connect with Debezium's plugin and Apicurio's converters."""

    def __init__(self, broker: EmbeddedKafka, folder: Path) -> None:
        plugins = folder / "plugins"
        plugins.mkdir(parents=True)
        for name, jars in (("debezium", ensure_plugin()), ("apicurio", ensure_converter())):
            (plugins / name).symlink_to(jars)
        self.worker = ConnectWorker(broker, folder, "1g", plugin_path=str(plugins))

    def create(self, name: str, settings: dict[str, str]) -> None:
        """Creates a connector and waits until its task runs."""
        answer = httpx.put(f"{self.worker.url}/connectors/{name}/config", json=settings, timeout=60.0)
        assert answer.is_success, answer.text
        self.until_running(name)

    def lose_offset(self, name: str, while_stopped: Callable[[], object]) -> None:
        """Stops a connector, calls `while_stopped`, has Connect forget what it has read, and lets it run again."""
        connector = f"{self.worker.url}/connectors/{name}"
        httpx.put(f"{connector}/stop", timeout=60.0).raise_for_status()
        wait_until(lambda: _state(connector) == "STOPPED", f"Debezium's connector {name} is stopped", STARTED_S)
        while_stopped()
        httpx.delete(f"{connector}/offsets", timeout=60.0).raise_for_status()
        httpx.put(f"{connector}/resume", timeout=60.0).raise_for_status()
        self.until_running(name)

    def defaults(self) -> dict[str, str | None]:
        """Returns the defaults of the connector's settings, by name; None if there is none."""
        answer = httpx.put(
            f"{self.worker.url}/connector-plugins/PostgresConnector/config/validate",
            json={"connector.class": CLASS},
            timeout=60.0,
        )
        definitions = (each["definition"] for each in answer.raise_for_status().json()["configs"])
        return {each["name"]: each["default_value"] for each in definitions}

    def until_running(self, name: str) -> None:
        """Waits until connector and task run; fails with Connect's trace if one of them has failed."""
        wait_until(lambda: self._is_running(name), f"Debezium's connector {name} runs", STARTED_S)

    def _is_running(self, name: str) -> bool:
        answer = httpx.get(f"{self.worker.url}/connectors/{name}/status", timeout=60.0)
        if not answer.is_success:  # it is not there yet after a start of the worker
            return False
        status = answer.json()
        parts = [status["connector"], *status["tasks"]]
        failed = [part for part in parts if part["state"] == "FAILED"]
        assert not failed, failed[0].get("trace")
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)


def _state(connector: str) -> str:
    state: str = httpx.get(f"{connector}/status", timeout=60.0).raise_for_status().json()["connector"]["state"]
    return state
