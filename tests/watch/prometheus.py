"""A real Prometheus, with the files of docker/prometheus: Debian's package, or what PATH has."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx

from connectors.dev.embedded_kafka import free_port
from tests.support.dashboards import DOCKER
from tests.support.kafka import wait_until

TIMEOUT_S = 60.0
_EACH = "1s"
_FILES = DOCKER / "prometheus"


class Series(NamedTuple):
    """What an expression gives: labels, and (seconds since 1970, value) by time."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """Scrapes the worker at `target` (host:port) each second, and evaluates the alerts as often.

    Two things differ from docker/prometheus: the target, and that alerts fire two seconds after they hold.
    """

    def __init__(self, folder: Path, target: str) -> None:
        folder.mkdir()
        config = (_FILES / "prometheus.yml").read_text(encoding="utf-8")
        config = re.sub(r"(_interval:) \d+s", rf"\1 {_EACH}", config).replace("worker:8083", target)
        rules = (_FILES / "alerts.yml").read_text(encoding="utf-8")
        (folder / "prometheus.yml").write_text(config, encoding="utf-8")
        (folder / "alerts.yml").write_text(re.sub(r"( for:) \d+m", r"\1 2s", rules), encoding="utf-8")
        self.url = f"http://127.0.0.1:{free_port()}"
        self._folder = folder
        self._client = httpx.Client(base_url=self.url, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        self._log = (self._folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            cwd=self._folder,
            stdout=self._log,
            stderr=self._log,
        )
        wait_until(self._is_ready, "Prometheus answers", TIMEOUT_S)
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.close()
        self._process.terminate()
        self._process.wait(TIMEOUT_S)
        self._log.close()

    def now(self, expression: str) -> list[Series]:
        """Evaluates an expression. Raises AssertionError with Prometheus's words if it refuses it."""
        found = self._ask("query", query=expression)["result"]
        return [Series(one["metric"], [_point(one["value"])]) for one in found]

    def between(self, expression: str, start_s: float, end_s: float, step_s: float) -> list[Series]:
        """Evaluates an expression from `start_s` to `end_s`, every `step_s`."""
        found = self._ask("query_range", query=expression, start=start_s, end=end_s, step=step_s)["result"]
        return [Series(one["metric"], [_point(each) for each in one["values"]]) for one in found]

    def rules(self) -> list[dict[str, Any]]:
        """Returns the alerting rules with their health, state and alerts."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def firing(self) -> list[dict[str, Any]]:
        """Returns the alerts that fire, with labels and annotations."""
        return [alert for alert in self._ask("alerts")["alerts"] if alert["state"] == "firing"]

    def _ask(self, path: str, **parameters: Any) -> dict[str, Any]:
        answer = self._client.get(f"/api/v1/{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


def _point(told: tuple[float, str]) -> tuple[float, float]:
    return float(told[0]), float(told[1])
