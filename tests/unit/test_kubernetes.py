"""The manifest for Kubernetes, as far as that can be told without a cluster: by its schemas, and by keyfold itself."""

from __future__ import annotations

import json
import re
import shutil
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import bcrypt
import kubernetes_validate
import msgspec
import pytest

from connectors.config.errors import FaultyConfigError
from connectors.config.files import load_connector, load_worker
from connectors.config.worker import WorkerConfig
from connectors.rest.security import Role, read_users
from connectors.runtime.specs.connector_files import ConnectorFiles
from tests.support.kafka import wait_until

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "docker" / "kubernetes.yaml"
KINDS = ["ConfigMap", "ConfigMap", "Secret", "PersistentVolumeClaim", "Deployment", "Service"]
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()


def _resources() -> list[dict[str, Any]]:
    texts = MANIFEST.read_text(encoding="utf-8").split("\n---\n")
    return [msgspec.yaml.decode(text, type=dict[str, Any]) for text in texts]


def _one(kind: str, name: str = "keyfold") -> dict[str, Any]:
    return next(one for one in _resources() if (one["kind"], one["metadata"]["name"]) == (kind, name))


def _pod() -> dict[str, Any]:
    found: dict[str, Any] = _one("Deployment")["spec"]["template"]["spec"]
    return found


def _container() -> dict[str, Any]:
    (found,) = _pod()["containers"]
    return found


def _mounts() -> dict[str, str]:
    """The folders of the container, by their volume's name."""
    return {mount["name"]: mount["mountPath"] for mount in _container()["volumeMounts"]}


def _content(volume: Mapping[str, Any]) -> dict[str, str]:
    """The files that a volume has from the start."""
    if "configMap" in volume:
        return dict(_one("ConfigMap", volume["configMap"]["name"])["data"])
    return dict(_one("Secret", volume["secret"]["secretName"])["stringData"]) if "secret" in volume else {}


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Makes `files` the content of a volume as Kubernetes does: links into a folder that is replaced as a whole."""
    before = (folder / "..data").resolve()
    stamped = Path(mkdtemp(prefix="..2026_11_21_02_30_00.", dir=folder))
    for name, text in files.items():
        (stamped / name).write_text(text, encoding="utf-8")
    (folder / "..data_tmp").symlink_to(stamped.name)
    (folder / "..data_tmp").replace(folder / "..data")
    links = {path.name for path in folder.iterdir() if path.is_symlink() and not path.name.startswith("..")}
    for name in files.keys() - links:
        (folder / name).symlink_to(f"..data/{name}")
    for name in links - files.keys():
        (folder / name).unlink()
    if before.name != "..data":
        shutil.rmtree(before)


class Volumes:
    """The container's volumes in a folder: every path of the container is found there."""

    def __init__(self, folder: Path) -> None:
        self._folders = {path: folder / name for name, path in _mounts().items()}
        for volume in _pod()["volumes"]:
            place = self.at(_mounts()[volume["name"]])
            place.mkdir()
            if files := _content(volume):
                _write(place, {name: self.text(text).replace("HASH", HASH) for name, text in files.items()})

    def at(self, path: str) -> Path:
        """Where a path of the container is here."""
        return Path(self.text(path))

    def text(self, text: str) -> str:
        """A text whose paths are those here."""
        known = sorted(map(str, self._folders), key=len, reverse=True)
        return re.sub("|".join(map(re.escape, known)), lambda found: str(self._folders[found[0]]), text)

    def worker(self) -> WorkerConfig:
        """The worker file that the container's command names, checked."""
        arguments = _container()["args"]
        return load_worker(self.at(arguments[arguments.index("--worker") + 1]))


@pytest.fixture
def volumes(tmp_path: Path) -> Volumes:
    return Volumes(tmp_path)


@pytest.mark.parametrize("resource", _resources(), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_the_manifest_is_valid(resource: dict[str, Any]) -> None:
    """Each resource is one by Kubernetes's own schema, and has no field that is not in it."""
    kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)


def test_a_misspelt_field_is_found() -> None:
    """The schema refuses what `kubectl apply` would."""
    deployment = _one("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)


def test_the_manifest_is_whole() -> None:
    """There is one of each kind that a worker needs; what the pod mounts is among them, and each volume is mounted."""
    assert [one["kind"] for one in _resources()] == KINDS
    volumes = {volume["name"]: volume for volume in _pod()["volumes"]}
    assert volumes.keys() == _mounts().keys()
    assert _one("PersistentVolumeClaim", volumes["data"]["persistentVolumeClaim"]["claimName"])
    assert [name for name, volume in volumes.items() if _content(volume)] == ["worker", "connectors", "secrets"]
    labels = _one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert _one("Deployment")["spec"]["selector"]["matchLabels"] == _one("Service")["spec"]["selector"] == labels


def test_no_two_workers_at_once() -> None:
    """One pod, which has ended before its successor begins, and time for that."""
    spec = _one("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_pod_fits_the_image() -> None:
    """Account, data folder and command are those of the Dockerfile; the image's tag is this version."""
    lines = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    user = next(line.split()[1] for line in reversed(lines) if line.startswith("USER"))
    security = _pod()["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
    assert security["fsGroup"] == security["runAsGroup"]
    assert f"VOLUME {_mounts()['data']}" in lines
    assert 'ENTRYPOINT ["keyfold"]' in lines
    assert _container()["args"][0] == "run"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert _container()["image"].endswith(f"/keyfold:{version}")


def test_the_worker_file_is_valid(volumes: Volumes) -> None:
    """Keyfold takes it, the password of its placeholders too; data lies on the volume, and nothing else does."""
    worker = volumes.worker()
    assert volumes.at(_mounts()["data"]) in worker.storage_path.parents
    assert worker.connectors_path == volumes.at(_mounts()["connectors"])
    grace_s = _pod()["terminationGracePeriodSeconds"]
    assert grace_s > 2 * worker.task_shutdown_graceful_timeout_ms / 1000


def test_a_password_that_is_missing_is_found(volumes: Volumes) -> None:
    """Where the Secret has no password, the fault names the placeholder."""
    (volumes.at(_mounts()["secrets"]) / "password").unlink()
    with pytest.raises(FaultyConfigError, match=re.escape(":password} cannot be resolved")):
        volumes.worker()


def test_probes_ask_the_listener(volumes: Volumes) -> None:
    """Each asks /health, where no password is needed, at the port that the worker listens on for other machines."""
    (listener,) = volumes.worker().listeners
    (port,) = _container()["ports"]
    assert (listener.is_loopback, listener.port) == (False, port["containerPort"])
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert _container()[probe]["httpGet"] == {"path": "/health", "port": port["name"]}
    (service,) = _one("Service")["spec"]["ports"]
    assert (service["port"], service["targetPort"]) == (listener.port, port["name"])


def test_nobody_is_let_in_by_the_manifest_as_it_is(volumes: Volumes, tmp_path: Path) -> None:
    """The users' file needs hashes of one's own; with them there are an admin, and one who reads for Prometheus."""
    path = volumes.worker().rest_auth_users_file
    assert path is not None
    assert {name: user.role for name, user in read_users(path).items()} == {
        "admin": Role.ADMIN,
        "prometheus": Role.VIEWER,
    }
    example = tmp_path / "users"
    example.write_text(_one("Secret")["stringData"]["users"])
    with pytest.raises(FaultyConfigError, match="htpasswd"):
        read_users(example)


def test_the_connector_is_valid(volumes: Volumes) -> None:
    """Keyfold takes each connector file together with the worker's; snapshots lie on the volume."""
    folder = volumes.at(_mounts()["connectors"])
    found = [load_connector(path, volumes.worker()).config for path in folder.glob("*.json")]
    assert [f"{config.name}.json" for config in found] == list(_one("ConfigMap", "keyfold-connectors")["data"])
    snapshots = [Path(config.snapshot_location or "") for config in found]
    assert [path for path in snapshots if volumes.at(_mounts()["data"]) not in path.parents] == []


def test_a_changed_config_map_is_seen(volumes: Volumes) -> None:
    """Its files are links into a folder that is replaced as a whole: each is read once, and changes take effect."""
    folder = volumes.at(_mounts()["connectors"])
    files = ConnectorFiles(volumes.worker(), ())
    (first,) = files.load()
    assert first.path == folder / "customers.json"
    changed = threading.Event()
    text = first.path.read_text(encoding="utf-8")
    another = text.replace("customers", "orders")
    with files.watching(changed.set):
        wait_until(lambda: _seen(folder, changed), "the folder is watched")
        while changed.wait(0.5):  # what is still to come of that
            changed.clear()
        _write(folder, {"customers.json": text, "orders.json": another})
        assert changed.wait(30)
    found = files.reload()
    assert (found.removed, [file.config.name for file in found.put], found.unchanged) == (
        (),
        ["orders"],
        ("customers",),
    )
    _write(folder, {"orders.json": json.dumps({**json.loads(another), "tasks.max": "3"})})
    found = files.reload()
    assert (found.removed, [file.config.name for file in found.put], found.unchanged) == (
        ("customers",),
        ["orders"],
        (),
    )


def _seen(folder: Path, changed: threading.Event) -> bool:
    """Whether a change in the folder is noticed."""
    (folder / "..touched").write_text("")
    (folder / "..touched").unlink()
    return changed.wait(0.2)
