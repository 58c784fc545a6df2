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
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from compose_spec import PyCompose

from connectors.jvm.artifacts import KAFKA_VERSION

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


def _description(**status: object) -> dict[str, Any]:
    found = {"state": "RUNNING", "error": None, "next_restart_ms": None, "stale": False, **status}
    return {"owner": {"alive": True}, "status": found}


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
    assert called == steps == {"install": 2, "java": 0, "user": 0}


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


def test_compose_file_is_valid() -> None:
    """The compose file is one by the Compose Specification, and has broker, worker and the demo's records."""
    compose = PyCompose.from_yaml((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
    compose.validate()
    assert set(compose.service_names()) == {"broker", "load", "worker"}


def test_compose_mounts_what_is_there() -> None:
    """Every file that the worker's service mounts from the repository exists; the others are named volumes."""
    compose = _compose()
    sources = [volume.split(":")[0] for volume in compose["services"]["worker"]["volumes"]]
    files = [DOCKER / source for source in sources if source.startswith(".")]
    assert [file for file in files if not file.is_file()] == []
    assert {source for source in sources if not source.startswith(".")} <= set(compose["volumes"])


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
    packages = {"PYTHONPATH": sysconfig.get_path("purelib"), "STEPS_PIP": "--no-deps --no-index"}
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


@pytest.mark.parametrize(
    ("description", "word"),
    [
        (_description(), None),
        (_description(state="RESTARTING"), None),
        (_description(state="FAILED", error="gone", next_restart_ms=1), None),
        (_description(state="FAILED", error="gone"), "gone"),
        (_description(stale=True), "status"),
        ({"owner": {"alive": True}, "status": None}, "status"),
        ({"owner": {"alive": False}, "status": None}, "owns"),
    ],
)
def test_health_is_what_describe_says(description: dict[str, Any], word: str | None) -> None:
    """A worker is healthy while it owns its connector and speaks, unless the connector FAILED and no restart is due."""
    fault = _health().fault(description)
    assert (fault is None) if word is None else (word in fault)
