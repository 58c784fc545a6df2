"""The image and the compose file, as far as that can be told without a container engine."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
from compose_spec import PyCompose

from connectors.config.files import load_worker
from connectors.config.worker import PREFIX
from connectors.jvm.artifacts import KAFKA_VERSION
from tests.support.cli import NOBODY
from tests.support.rest import RestWorker, rest_worker

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COPIED_TO_BUILD = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "compactor", "connectors", "docker")


def _instructions() -> list[list[str]]:
    """The Dockerfile's instructions, as words."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def _steps() -> dict[str, str]:
    """The functions of steps.sh: name → body."""
    script = (DOCKER / "steps.sh").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+)\(\) \{\n(.*?)^\}", script, re.DOTALL | re.MULTILINE))


def _compose() -> dict[str, Any]:
    return PyCompose.from_yaml((DOCKER / "compose.yaml").read_text(encoding="utf-8")).to_dict()


def _health() -> ModuleType:
    spec = importlib.util.spec_from_file_location("health", DOCKER / "health.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestWorker]:
    """A worker that the health check is told to ask."""
    with rest_worker(tmp_path) as found:
        monkeypatch.setenv("KEYFOLD_REST_URL", found.url)
        yield found


def test_dockerfile_passes_its_linter() -> None:
    """The linter hadolint finds nothing in the Dockerfile."""
    linter = Path(sysconfig.get_path("scripts"), "hadolint")
    done = subprocess.run([linter, "--no-color", DOCKER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


def test_image_does_not_run_as_root() -> None:
    """The last USER is a number, as a cluster's policy on root can read it, and not 0."""
    users = [words[1] for words in _instructions() if words[0] == "USER"]
    assert int(users[-1].split(":")[0]) > 0


def test_image_copies_what_is_there() -> None:
    """Every path that COPY takes from the repository exists."""
    copies = [words for words in _instructions() if words[0] == "COPY" and not words[1].startswith("--from")]
    sources = [source for words in copies for source in words[1:-1] if not source.startswith("--")]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {source.split("/")[0] for source in sources} >= set(COPIED_TO_BUILD)


def test_image_runs_every_step_there_is() -> None:
    """Each step of steps.sh is called in the Dockerfile, with as many arguments as it takes, and no other."""
    subprocess.run(["sh", "-n", DOCKER / "steps.sh"], check=True)
    steps = {name: len(set(re.findall(r"\$(\d)", body))) for name, body in _steps().items()}
    runs = " && ".join(" ".join(words[1:]) for words in _instructions() if words[0] == "RUN").split(" && ")
    called = {words[2]: len(words[3:]) for words in map(str.split, runs)}
    assert called == steps == {"install": 2, "slim": 1, "java": 1, "tools": 0, "user": 0}


def test_what_the_image_runs_is_readable_for_its_account() -> None:
    """What is copied for the worker's account has its rights set, as a clone may keep its files to their owner.

    The folders are there before: Docker 28 gives those that it makes the rights of the files.
    """
    found = _instructions()
    last = max(at for at, words in enumerate(found) if words[0] == "FROM")
    copies = [words for words in found[last:] if words[0] == "COPY" and not words[1].startswith("--from")]
    assert [words for words in copies if words[1] != "--chmod=0644"] == [copies[0]]
    assert copies[0][1] == "docker/steps.sh"  # which root runs
    made = [str(Path(copies[0][-1]).parent), *re.findall(r"/[\w/]+", _steps()["user"])]
    assert [words[-1] for words in copies[1:] if words[-1].rstrip("/") not in made] == []


def test_any_user_id_of_group_root_may_write_to_the_images_volume() -> None:
    """OpenShift gives a container one that nobody knows, in that group; no other account may write there."""
    volume = next(words[1] for words in _instructions() if words[0] == "VOLUME")
    commands = [line.split() for line in _steps()["user"].splitlines()]
    assert ["chown", "keyfold:root", volume] in commands
    assert ["chmod", "0775", volume] in commands


def test_compose_file_is_valid() -> None:
    """The compose file is one by the Compose Specification: the demo's records, a worker, and what watches it."""
    compose = PyCompose.from_yaml((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    compose.validate()
    assert set(compose.service_names()) == {"broker", "load", "worker", "prometheus", "grafana"}


def test_compose_mounts_what_is_there() -> None:
    """What a service mounts from the repository exists, and is not written to; the others are named volumes."""
    compose = _compose()
    mounts = [volume.split(":") for service in compose["services"].values() for volume in service.get("volumes", ())]
    ours = [mount for mount in mounts if mount[0].startswith(".")]
    assert [mount[0] for mount in ours if not (DOCKER / mount[0]).exists()] == []
    assert [mount[0] for mount in ours if mount[2:] != ["ro"]] == []
    assert {mount[0] for mount in mounts if mount not in ours} == set(compose["volumes"])


def test_compose_names_versions() -> None:
    """What a service runs is built here, or is an image of one version: another day runs the same."""
    services = _compose()["services"].values()
    images = [service["image"] for service in services if "build" not in service]
    assert [image for image in images if not re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", image)] == []


def test_compose_opens_ports_on_this_machine_only() -> None:
    """REST has no passwords there, nor has Grafana: no other machine reaches them."""
    ports = {name: service.get("ports", []) for name, service in _compose()["services"].items()}
    assert {name: found for name, found in ports.items() if found} == {
        "worker": ["127.0.0.1:8083:8083"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }


def test_compose_says_which_addresses_to_open() -> None:
    """The file's first lines name each port that is open, and they lead to the page, Grafana and Prometheus."""
    head = (DOCKER / "compose.yaml").read_text(encoding="utf-8").partition("\nname:")[0]
    opened = [port for service in _compose()["services"].values() for port in service.get("ports", ())]
    assert set(re.findall(r"http://(127\.0\.0\.1:\d+)", head)) == {port.rpartition(":")[0] for port in opened}


def test_compose_begins_one_after_the_other() -> None:
    """What is asked by another service has a health check, the worker's is the image's, and no circle waits."""
    services = _compose()["services"]
    waits = {name: service.get("depends_on", {}) for name, service in services.items()}
    assert {name: {on: told["condition"] for on, told in needed.items()} for name, needed in waits.items()} == {
        "broker": {},
        "load": {"broker": "service_healthy"},
        "worker": {"load": "service_completed_successfully"},
        "prometheus": {"worker": "service_started"},
        "grafana": {"prometheus": "service_healthy"},
    }
    healthy = {on for needed in waits.values() for on, told in needed.items() if told["condition"] == "service_healthy"}
    assert [name for name in healthy if "test" not in services[name].get("healthcheck", {})] == []
    asked = {name: services[name]["healthcheck"]["test"][-1] for name in ("prometheus", "grafana")}
    ports = {name: services[name]["ports"][0].rpartition(":")[2] for name in asked}
    assert {name: urlsplit(url).port for name, url in asked.items()} == {
        name: int(port) for name, port in ports.items()
    }


def test_the_worker_listens_where_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the image on its own loopback, in the compose file for its network: at the port that the health check asks."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    exposed = [int(words[1]) for words in _instructions() if words[0] == "EXPOSE"]
    asked = urlsplit(_health().URL)
    (alone,) = load_worker(DOCKER / "worker.json").listeners
    assert (alone.is_loopback, [alone.port], alone.port) == (True, exposed, asked.port)
    for name, value in _compose()["services"]["worker"]["environment"].items():
        monkeypatch.setenv(name, str(value))
    config = load_worker(DOCKER / "worker.json")
    (shared,) = config.listeners
    assert (shared.is_loopback, shared.port, config.rest_auth) == (False, asked.port, "none")


@pytest.mark.parametrize(("name", "key"), [("worker.json", "storage.location"), ("flights.json", "snapshot.location")])
def test_the_images_files_keep_data_on_its_volume(name: str, key: str) -> None:
    """The files in /etc/keyfold are those of configs/, with folders on the volume, beside which they do not lie."""
    ours, examples = (json.loads((folder / name).read_text("utf-8")) for folder in (DOCKER, ROOT / "configs"))
    volume = next(words[1] for words in _instructions() if words[0] == "VOLUME")
    assert Path(ours[key]).parent == Path(volume)
    assert ours | {key: None} == examples | {key: None}


def test_compose_runs_the_broker_that_the_tests_run() -> None:
    """The broker's image has the version of the embedded broker."""
    assert _compose()["services"]["broker"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


@pytest.mark.timeout(120)
def test_install_step_gives_a_command_that_runs(tmp_path: Path) -> None:
    """The image's install step, given only what the image copies, makes an environment whose `keyfold` runs."""
    source, target = tmp_path / "src", tmp_path / "venv"
    for name in COPIED_TO_BUILD:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    packages = {"PYTHONPATH": str(distribution("setuptools").locate_file("")), "STEPS_PIP": "--no-deps --no-index"}
    environment = {**os.environ, **packages, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", source / "docker" / "steps.sh", "install", source, target],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "keyfold" in done.stdout
    installed = next(target.glob("lib/python*/site-packages/connectors"))
    assert (installed / "jvm" / f"kafka-{KAFKA_VERSION}.sha256").is_file()
    assert not list(installed.parent.glob("tests"))


@pytest.mark.parametrize(("health", "code"), [("starting", 1), ("healthy", 0), ("unhealthy", 1)])
def test_health_is_what_the_worker_says(
    worker: RestWorker, capsys: pytest.CaptureFixture[str], health: str, code: int
) -> None:
    """Only a worker that says so is healthy; what it says is printed."""
    worker.health = health
    assert _health().main() == code
    assert json.loads(capsys.readouterr().out)["status"] == health


def test_a_connector_does_not_make_the_worker_unhealthy(worker: RestWorker) -> None:
    """One that FAILED is the others' no reason to be stopped."""
    worker.create("a")
    worker.supervisor("a").fail("Away.")
    assert _health().main() == 0


@pytest.mark.parametrize("url", [f"http://{NOBODY}", "http://[", "nowhere"])
def test_a_worker_that_does_not_answer_is_unhealthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    """The check says which address it has asked."""
    monkeypatch.setenv("KEYFOLD_REST_URL", url)
    assert _health().main() == 1
    assert f"no worker answers at {url}" in capsys.readouterr().out
