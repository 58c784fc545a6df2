"""What a worker in Kubernetes needs to run its tasks in pods, as far as that can be told without a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest

from connectors.config.files import load_worker
from connectors.spark.executor_settings import is_cluster, ships

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
PAGE = ROOT / "docs" / "scaling.md"


def _resources(name: str) -> list[dict[str, Any]]:
    texts = (DOCKER / name).read_text(encoding="utf-8").split("\n---\n")
    return [msgspec.yaml.decode(text, type=dict[str, Any]) for text in texts]


def _one(kind: str) -> dict[str, Any]:
    return next(one for one in _resources("kubernetes-spark.yaml") if one["kind"] == kind)


def _patch() -> dict[str, Any]:
    (found,) = _resources("kubernetes-spark-patch.yaml")
    return found


def _pod(deployment: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found


def _deployment() -> dict[str, Any]:
    return next(one for one in _resources("kubernetes.yaml") if one["kind"] == "Deployment")


def _settings() -> dict[str, str]:
    """The worker file of the page's section on Kubernetes."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(r"```json\n(\{.*?)```", text, re.DOTALL)
    settings: dict[str, str] = json.loads(found)
    return settings


@pytest.mark.parametrize("resource", _resources("kubernetes-spark.yaml"), ids=lambda one: one["kind"])
def test_the_manifest_is_valid(resource: dict[str, Any]) -> None:
    """Each resource is one by Kubernetes's own schema, and has no field that is not in it."""
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def test_the_patched_deployment_is_valid() -> None:
    """The patch names the container and the account that are there, and ports that the container does not have yet."""
    deployment, patch = _deployment(), _pod(_patch())
    (container,), (changed,) = _pod(deployment)["containers"], patch.pop("containers")
    assert changed["name"] == container["name"]
    assert {each["name"] for each in changed["ports"]}.isdisjoint(each["name"] for each in container["ports"])
    container["ports"] += changed["ports"]
    _pod(deployment).update(patch)
    kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)
    assert patch["serviceAccountName"] == _one("ServiceAccount")["metadata"]["name"]


def test_the_account_has_the_role() -> None:
    """And the role lets it make, watch and remove pods."""
    binding = _one("RoleBinding")
    assert binding["roleRef"]["name"] == _one("Role")["metadata"]["name"]
    assert binding["subjects"][0]["name"] == _one("ServiceAccount")["metadata"]["name"]
    (rule,) = _one("Role")["rules"]
    assert {"pods", "configmaps"} <= set(rule["resources"])
    assert {"create", "watch", "delete"} <= set(rule["verbs"])


def test_executors_find_the_driver_before_it_is_ready() -> None:
    """By the service's name and ports, which are those of the worker file; a worker is ready only with executors."""
    service, settings = _one("Service"), _settings()
    assert service["metadata"]["name"] == settings["spark.driver.host"]
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert service["spec"]["selector"] == _deployment()["spec"]["template"]["metadata"]["labels"]
    ports = {each["name"]: each["containerPort"] for each in _pod(_patch())["containers"][0]["ports"]}
    assert {each["targetPort"]: each["port"] for each in service["spec"]["ports"]} == ports
    assert ports == {
        "driver": int(settings["spark.driver.port"]),
        "blocks": int(settings["spark.driver.blockManager.port"]),
    }


def test_the_worker_file_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyfold takes it, names the pod by its host name, and sends its executors what they need."""
    monkeypatch.setenv("HOSTNAME", "keyfold-7c9f")
    (tmp_path / "worker.json").write_text(json.dumps(_settings()))
    worker = load_worker(tmp_path / "worker.json")
    assert worker.spark_settings["spark.kubernetes.driver.pod.name"] == "keyfold-7c9f"
    assert is_cluster(worker.spark_master)
    assert ships(worker.executors_package, worker.spark_settings)
