"""Configuration files: how they are read, and that every fault is told with its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.config.files import load_connector, load_connectors, load_worker
from connectors.errors import ConfigError

LEAST = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
ROOT = Path(__file__).parents[4]


def file(folder: Path, content: Any, name: str = "c.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "content",
    [
        LEAST,
        {"name": "c", "config": {"connector.class": "CompactedTopic", "topics": "t"}},
        {"config": LEAST},
        {"name": "c", "config": LEAST},
        "\ufeff" + json.dumps(LEAST),
    ],
)
def test_flat_and_wrapped_files_mean_the_same(tmp_path: Path, content: Any) -> None:
    """A connector file is flat or Connect's {"name", "config"}."""
    path = file(tmp_path, content)
    found = load_connector(path)
    assert (found.path, found.config.name, found.config.topics) == (path, "c", ("t",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{\n  "name": "c",\n  "topics" "t"\n}', "line 3, column 12: this is not JSON: a colon is missing between"),
        ("", "line 1, column 1: this is not JSON: the file is empty"),
        ('{\n  "name": "c",\n}\n', "line 2, column 14: this is not JSON: a comma before the closing brace; remove it."),
        ('{"a": ["b",\n]}', "line 1, column 11: this is not JSON: a comma before the closing bracket"),
        ('{\n  "name": "c"\n  "topics": "t"\n}', "line 2, column 14: this is not JSON: a comma is missing."),
        ('{\n  "name": "c"', "line 2, column 13: this is not JSON: the file ends before its object does"),
        ('{\n  "name":\n}', "line 2, column 10: this is not JSON: a value is missing"),
        ("{'name': 1}", "line 1, column 2: this is not JSON: names and texts stand in double quotes"),
        ('{\n  // why\n  "name": 1}', "line 2, column 3: this is not JSON: JSON has no comments"),
        ('{"name": c}', "line 1, column 10: this is not JSON: a value is missing; texts stand in double quotes"),
        ('{"name": "c}', "line 1, column 10: this is not JSON: this text has no closing double quote"),
        ('{"name": "c\n"}', "line 1, column 12: this is not JSON: a text goes on over the end of its line"),
        ('{"name": "c\\d"}', "line 1, column 12: this is not JSON: a backslash begins an escape"),
        ('{"name": 1} {"a"', "line 1, column 13: this is not JSON: nothing may stand behind the end"),
        ('{"a": 1, "b": 2, "a": 3}', 'the key "a" stands twice'),
        ('{"config": {"a": 1, "a": 1}}', 'the key "a" stands twice'),
        ("[]", "must hold one JSON object"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"name": "\\uD800"}', r"\ud800 is half of a character"),
        ('{"name": "\\udfff\\ud83d"}', r"\udfff is half of a character"),
        ({"name": "d", "config": LEAST}, 'name: "d" outside of config and "c" inside'),
        ({"name": "c", "config": LEAST, "tasks": []}, "tasks: unknown here"),
        ({"name": "c", "config": LEAST, "initial_state": "PAUSED"}, "initial_state: not available yet in keyfold"),
        ({"name": "c", "config": "x"}, "config: unknown key"),
        ('{"min.compaction.lag.ms": NaN}', '"NaN" is not allowed'),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_place(tmp_path: Path, content: Any, said: str) -> None:
    """The error begins with the file and names line, column or key."""
    path = file(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        load_connector(path)
    lines = caught.value.message.splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert any(said in line for line in lines)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file, a folder and what is not UTF-8 are faults of configuration."""
    (tmp_path / "latin").write_bytes(b'{"name": "\xe9"}')
    for path, said in (
        (tmp_path / "x", "No such file or directory. See that the path is right"),
        (tmp_path, "directory"),
        (tmp_path / "latin", "UTF-8"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_connector(path)


def test_all_files_are_looked_at(tmp_path: Path) -> None:
    """Faults of several files come together, and two connectors of one name are one of them."""
    paths = [
        file(tmp_path, LEAST, "a.json"),
        file(tmp_path, LEAST | {"name": "b", "topcs": 1}, "b.json"),
        file(tmp_path, LEAST, "c.json"),
    ]
    with pytest.raises(ConfigError) as caught:
        load_connectors(paths)
    first, second = caught.value.message.splitlines()
    assert first.startswith(f"{paths[1]}: topcs: unknown key")
    assert second == f'{paths[2]}: name: "c" is also in {paths[0]}; rename one.'


def test_files_come_in_their_order(tmp_path: Path) -> None:
    """The connectors are those of the files, in the order of the files."""
    paths = [file(tmp_path, LEAST | {"name": name, "topics": name}, f"{name}.json") for name in ("b", "a")]
    assert [found.config.name for found in load_connectors(paths)] == ["b", "a"]


REGEX = {"topics": None, "topics.regex": "t.*"}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ({}, {}, "t.compacted"),
        ({"output.topic": "o"}, {"topics": "u", "output.topic": "o"}, "o"),
        ({"output.topic": "u.compacted"}, {"topics": "u"}, "u.compacted"),
        ({"topics": "s,t"}, REGEX, "t.compacted"),
        (REGEX, {"topics": "s,t"}, "t.compacted"),
        (REGEX, REGEX, "${topic}.compacted"),
        ({}, {"topics": "u"}, None),
        ({}, {"output.topic": "${topic}.other"}, None),
        ({"output.topic": "none"}, {"output.topic": "none"}, None),
        ({"topics": "s"}, REGEX, None),
        (REGEX, REGEX | {"topics.regex": "t", "output.topic": "${topic}.other"}, None),
        (REGEX, REGEX | {"topics.regex": "t[0-9]"}, None),
    ],
)
def test_two_connectors_never_share_an_output(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], shared: str | None
) -> None:
    """Refused where the files say it for sure; each would publish into the other's changelog."""
    settings = ({k: v for k, v in (LEAST | given).items() if v is not None} for given in (one, other))
    paths = [file(tmp_path, each | {"name": name}, f"{name}.json") for name, each in zip("ab", settings, strict=True)]
    if shared is None:
        assert len(load_connectors(paths)) == 2
        return
    with pytest.raises(ConfigError) as caught:
        load_connectors(paths)
    said = f'"{shared}" is also the output topic of connector "a" in {paths[0]}; each needs one of its own.'
    assert caught.value.message == f"{paths[1]}: output.topic: {said}"


def test_worker_and_connector_together(tmp_path: Path) -> None:
    """What only shows when both files are known is told under the connector's file."""
    worker = load_worker(
        file(
            tmp_path,
            {"bootstrap.servers": "h:1", "storage.location": str(tmp_path), "consumer.client.id": "w"},
            "w.json",
        )
    )
    wrong = LEAST | {"snapshot.location": f"file://{tmp_path}/", "consumer.override.security.protocol": "SASL_SSL"}
    with pytest.raises(ConfigError) as caught:
        load_connector(file(tmp_path, wrong), worker)
    assert "consumer.override.security.protocol: needs sasl.mechanism" in caught.value.message
    assert "snapshot.location: is the worker's storage.location" in caught.value.message


@pytest.mark.parametrize(
    "setting",
    [
        {"bootstrap.servers": "SASL://u:literal@h:1"},
        {"storage.location": "s3://u:literal@b/x"},
        {"storage.location": "file://u:literal@h/x"},
        {"consumer.sasl.oauthbearer.token.endpoint.url": "ftp://h/x?client_secret=literal"},
        {"consumer.sasl.oauthbearer.extensions": "token=literal"},
        {"consumer.security.protocol": "http://u:literal@h/x?y=literal"},
    ],
)
def test_no_fault_shows_a_secret(tmp_path: Path, setting: dict[str, str]) -> None:
    """A fault that quotes a setting hides what is secret in it, also inside URLs."""
    with pytest.raises(ConfigError) as caught:
        load_worker(file(tmp_path, {"bootstrap.servers": "h:1", "no.such.key": 1} | setting))
    assert "literal" not in caught.value.message


def test_a_worker_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment alone can make a worker, and is named when it is at fault."""
    with pytest.raises(ConfigError, match=r"environment: bootstrap\.servers: missing"):
        load_worker(None)
    monkeypatch.setenv("KEYFOLD_BOOTSTRAP_SERVERS", "h:1")
    assert load_worker(None).bootstrap_servers == "h:1"


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.json")), ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of configs/ is accepted as it stands, secrets given."""
    authority = tmp_path / "ca.pem"
    authority.write_text(_CERTIFICATE)
    monkeypatch.setenv("KAFKA_CA_FILE", str(authority))
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    if path.name.startswith("worker"):
        assert load_worker(path).bootstrap_servers
    else:
        assert load_connector(path, load_worker(ROOT / "configs" / "worker.json")).config.name == path.stem


_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBhTCCASugAwIBAgIUW1bio7Mp2H2z9MP0RZZb6M0UvmwwCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMa2V5Zm9sZC10ZXN0MCAXDTI2MTEyMTAzMzg0NloYDzIxMjYx
MDI4MDMzODQ2WjAXMRUwEwYDVQQDDAxrZXlmb2xkLXRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAASBi1BczRAbx7euJAmV3w1kJt2Ux2QztasdjibNgO0SbEuh
jmVB3Bm81nxSOe/pBDc8GnM/HFpKnYWP0S9AP00Bo1MwUTAdBgNVHQ4EFgQUzRdF
69WfHNf2cwQtjpTX80WbIgwwHwYDVR0jBBgwFoAUzRdF69WfHNf2cwQtjpTX80Wb
IgwwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiBkXpwV3m1VYy50
k+6u5iVFjR/RagcqtAtGwl8FIr2CzAIhAIoYaHwug6C5aeqFC/cwSoRcn1heUkMG
Rf/KFgJEYt1/
-----END CERTIFICATE-----
"""


def test_a_worker_s_converter_counts_for_a_connector_s_transforms(tmp_path: Path) -> None:
    """A connector that names none is refused only where it is known that its worker has none either."""
    bare = {"bootstrap.servers": "h:1", "storage.location": str(tmp_path)}
    path = file(tmp_path, {**LEAST, "transforms": "f", "transforms.f.type": "Flatten$Value"})
    load_connector(path)
    load_connector(path, load_worker(file(tmp_path, {**bare, "value.converter": "keyfold.Json"}, "w.json")))
    without = load_worker(file(tmp_path, bare, "w.json"))
    with pytest.raises(ConfigError, match=r"value\.converter: missing; .*Flatten\$Value \(transforms\.f\) needs them"):
        load_connector(path, without)
    with pytest.raises(ConfigError, match=r"keyfold\.Bytes"):
        load_connector(file(tmp_path, {**json.loads(path.read_text()), "value.converter": "keyfold.Bytes"}))
