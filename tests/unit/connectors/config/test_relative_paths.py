"""Relative paths: those in a file count from its folder, those of the environment from the current one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import definitions
from connectors.config.fields import local_path
from connectors.config.files import load_connector, load_worker
from connectors.config.relative_paths import anchored
from connectors.config.worker import WorkerConfig
from connectors.placeholders import resolve

SERVERS = {"bootstrap.servers": "h:1"}
LEAST = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not that of the files."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def _file(folder: Path, name: str, content: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("data", "data"),
        ("./data", "data"),
        ("../data", "../data"),
        (" data ", "data"),
        ("file:data", "data"),
        ("${env:KF_PLACE}/x", "place/x"),
        (None, "keyfold-data"),
        ("/somewhere", "/somewhere"),
        ("file:///somewhere", "/somewhere"),
    ],
)
def test_folders_count_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str | None, found: str
) -> None:
    """storage.location, its default too, and snapshot.location are the same folders wherever a command is called."""
    monkeypatch.setenv("KF_PLACE", "place")
    worker = SERVERS if location is None else SERVERS | {"storage.location": location}
    assert load_worker(_file(tmp_path, "w.json", worker)).storage_path == tmp_path / found
    if location is not None:
        path = _file(tmp_path, "c.json", {"name": "c", "config": LEAST | {"snapshot.location": location}})
        assert local_path(load_connector(path).config.snapshot_location or "") == tmp_path / found


def test_a_file_is_named_from_the_current_folder(tmp_path: Path, elsewhere: Path) -> None:
    """A file that is named by a relative path, or is a link, has the folder that its name stands in."""
    content = _file(tmp_path, "w.json", SERVERS)
    Path("link.json").symlink_to(content)
    assert load_worker(Path("../w.json")).storage_path.resolve() == tmp_path / "keyfold-data"
    assert load_worker(Path("link.json")).storage_path == elsewhere / "keyfold-data"


def test_the_environment_counts_from_the_current_folder(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KEYFOLD_STORAGE_LOCATION, and the default where there is no worker file."""
    monkeypatch.setenv("KEYFOLD_BOOTSTRAP_SERVERS", "h:1")
    assert load_worker(None).storage_path.absolute() == elsewhere / "keyfold-data"
    monkeypatch.setenv("KEYFOLD_STORAGE_LOCATION", "here")
    assert load_worker(_file(tmp_path, "w.json", SERVERS)).storage_path.absolute() == elsewhere / "here"


def test_a_pipe_has_no_folder(elsewhere: Path) -> None:
    """What is read from a pipe, as with <(…), counts from the current folder."""
    source, sink = os.pipe()
    os.write(sink, json.dumps(SERVERS).encode())
    os.close(sink)
    try:
        assert load_worker(Path(f"/dev/fd/{source}")).storage_path == elsewhere / "keyfold-data"
    finally:
        os.close(source)


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        ("consumer.ssl.ca.location", "ca.pem", "DIR/ca.pem"),
        ("admin.override.ssl.keystore.location", "keys/k.p12", "DIR/keys/k.p12"),
        ("producer.sasl.oauthbearer.assertion.private.key.file", "k.pem", "DIR/k.pem"),
        ("consumer.ssl.ca.location", "/etc/ca.pem", "/etc/ca.pem"),
        ("consumer.ssl.ca.location", "probe", "probe"),
        ("consumer.ssl.ca.location", "${env:KF_NOT_THERE}", "${env:KF_NOT_THERE}"),
        ("consumer.client.id", "ca.pem", "ca.pem"),
        ("spark.files", "x.txt", "x.txt"),
        ("snapshot.location", "none", "none"),
        ("snapshot.location", "s3://b/x", "s3://b/x"),
        ("topics", "t", "t"),
        ("consumer.sasl.password", "${file:s.json:pw}", "${file:DIR/s.json:pw}"),
        ("consumer.sasl.password", "${file:/s.json:pw}", "${file:/s.json:pw}"),
        ("spark.x", "a${directory:s:pw}b", "a${directory:DIR/s:pw}b"),
        ("tasks.max", 1, 1),
    ],
)
def test_paths_of_clients_and_of_secrets_count_from_the_file(tmp_path: Path, key: str, text: Any, found: Any) -> None:
    """So do files of keys and certificates, and files in placeholders; everything else stays as it is written."""
    expected = found.replace("DIR", str(tmp_path)) if isinstance(found, str) else found
    keys = definitions(ConnectorConfig) | definitions(WorkerConfig)
    assert anchored({key: text}, keys, tmp_path) == {key: expected}


def test_a_secret_beside_the_file_is_found(tmp_path: Path) -> None:
    """The file of a placeholder is looked for beside the worker file."""
    _file(tmp_path, "s.json", {"pw": "secret"})
    config = load_worker(_file(tmp_path, "w.json", SERVERS | {"consumer.sasl.password": "${file:s.json:pw}"}))
    assert resolve(config.consumer["sasl.password"]) == "secret"
