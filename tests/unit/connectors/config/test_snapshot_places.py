"""Where a connector made over REST may have its snapshots, and where one of a file may."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import FaultyConfigError
from connectors.config.files import OtherFile, checked, clashes, load_connector, load_worker
from connectors.config.snapshot_places import place_of, rest_faults_of_place
from connectors.config.worker import ALLOWED, WorkerConfig
from connectors.placeholders import Limits
from tests.support.cli import connector_file, worker_file
from tests.support.settings import LEAST

OVER_REST = Limits((), (), "", over_rest=True)
STORE = "/kept/store"
IN = "would have snapshots in the worker's storage.location; name a folder of their own."
AROUND = "would have snapshots around the worker's storage.location; name a folder of their own."
OUTSIDE = f"is not below a prefix of {ALLOWED} of the worker file, as a connector made over REST has to."


def connector(name: str, location: str, *, over_rest: bool = True) -> ConnectorConfig:
    settings = {**LEAST, "name": name, "output.topic": f"${{topic}}.{name}", "snapshot.location": location}
    return ConnectorConfig.model_validate(settings, context=OVER_REST if over_rest else None)


def faults(name: str, location: str, storage: str = STORE, allowed: tuple[str, ...] | None = None) -> list[str]:
    return [fault.text for fault in rest_faults_of_place(connector(name, location), storage, allowed)]


@pytest.mark.parametrize(
    ("name", "location", "storage", "said"),
    [
        ("c", "none", STORE, []),
        ("c", "/kept/snapshots", STORE, []),
        ("c", "/kept", STORE, []),
        ("store", "/kept", STORE, [IN]),
        ("kept", "/", STORE, [AROUND]),
        ("c", "/kept/store/other/runs", STORE, [IN]),
        ("c", "/kept/store/.worker", STORE, [IN]),
        ("c", "/kept/snapshots/../store", STORE, [IN]),
        ("c", "file:///kept/store/other", STORE, [IN]),
        ("c", "/kept/stores", STORE, []),
        ("c", "s3://b/kept/store", STORE, []),
        ("c", "s3://b/kept/x", "s3://b/kept", [IN]),
        ("c", "s3://b/kept%2Fx", "s3://b/kept", [IN]),
        ("c", "s3://b/", "s3://b", [IN]),
        ("kept", "s3://b", "s3://b/kept/x/", [AROUND]),
        ("c", "s3://other/kept/x", "s3://b/kept", []),
        ("c", "s3://b/snapshots/../kept", "s3://b/kept", ['has "." or ".." in its prefix; write the prefix without.']),
        ("c", "abfss://b@a.dfs.core.windows.net/kept/x", "az://b/kept", [IN]),
    ],
)
def test_snapshots_are_not_among_what_the_worker_keeps(name: str, location: str, storage: str, said: list[str]) -> None:
    """Nor around it: a connector writes and removes below <snapshot.location>/<name>."""
    assert faults(name, location, storage) == said


@pytest.mark.parametrize(
    ("location", "allowed", "said"),
    [
        ("/data/snapshots", ("/data/snapshots",), []),
        ("/data/snapshots/team", ("/x", "file:///data/snapshots/"), []),
        ("/data", ("/data/snapshots",), [OUTSIDE]),
        ("/data/snapshots-of-others", ("/data/snapshots",), [OUTSIDE]),
        ("/data/snapshots/../../etc", ("/data/snapshots",), [OUTSIDE]),
        ("s3://b/team/a", ("s3://b/team",), []),
        ("s3://b/teams", ("s3://b/team",), [OUTSIDE]),
        ("s3://c/team", ("s3://b/team",), [OUTSIDE]),
        ("gs://b/team", ("s3://b/team",), [OUTSIDE]),
        ("abfss://b@other.dfs.core.windows.net/team", ("az://b/team",), [OUTSIDE]),
        ("/kept/store/x", ("/kept",), [IN]),
    ],
)
def test_prefixes_of_the_worker_file_bound_them(location: str, allowed: tuple[str, ...], said: list[str]) -> None:
    """Parts of paths are compared, not texts; storage.location is refused in any case."""
    assert faults("c", location, allowed=allowed) == said


def test_links_are_followed(tmp_path: Path) -> None:
    """A link out of what is allowed leads nowhere, and one into the storage is the storage."""
    for folder in ("store", "allowed", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "allowed" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "allowed" / "store").symlink_to(tmp_path / "store")
    allowed = (str(tmp_path / "allowed"),)
    assert faults("c", f"{tmp_path}/allowed/out", allowed=allowed) == [OUTSIDE]
    assert faults("c", f"{tmp_path}/allowed/store", str(tmp_path / "store")) == [IN]
    assert place_of(f"{tmp_path}/allowed/out") == place_of(f"{tmp_path}/elsewhere")


@pytest.mark.parametrize(
    ("name", "location", "said"),
    [
        ("b", "/snapshots", []),
        ("b", "/snapshots/", []),
        ("b", "/snapshots/a", ["a"]),
        ("b", "/snapshots/a/topic", ["a"]),
        ("snapshots", "/", ["a"]),
        ("b", "/snapshots/other", []),
        ("b", "none", []),
    ],
)
def test_snapshots_of_connectors_are_not_mixed(name: str, location: str, said: list[str]) -> None:
    """One snapshot.location for all is as it should be; the folder of another connector in it is not."""
    other = connector("a", "/snapshots", over_rest=False)
    text = 'would mix its snapshots with those of connector "{}"; name another folder.'
    for over_rest in (True, False):
        made = connector(name, location, over_rest=over_rest)
        clash = [(fault.key, fault.text) for fault in clashes(made, [OtherFile(Path("a.json"), "a", other)])]
        assert clash == [("snapshot.location", text.format(each)) for each in said if over_rest]


@pytest.mark.parametrize(("name", "location"), [("c", "/snapshots/iceberg.db"), ("c", "/snapshots/Iceberg.db-wal/x")])
def test_no_folder_is_where_a_catalog_is(name: str, location: str) -> None:
    """A folder that is made in place of the catalog's file would keep the other connector from its tables."""
    tables, made = iceberg({"name": "a"}), connector(name, location)
    assert clash_texts(made, tables) == ['is where connector "a" has its Iceberg catalog; name another folder.']
    text = 'would have the Iceberg catalog where connector "c" is; name another folder.'
    assert clash_texts(iceberg({"name": "a"}, OVER_REST), made) == [text]
    assert clash_texts(connector("b", "/snapshots/iceberg"), tables) == []


SAME, AMONG = "is a table of connector", "is among the tables of connector"


@pytest.mark.parametrize(
    ("own", "other", "of_file", "over_rest"),
    [
        ({"name": "b"}, {}, None, None),
        ({"snapshot.table.name": "a.t"}, {}, SAME, SAME),
        ({"snapshot.table.name": "a.other"}, {}, None, AMONG),
        ({"snapshot.table.name": "a.${topic}", "topics": "later"}, {}, None, AMONG),
        ({"snapshot.table.name": "a.t", "snapshot.location": "/elsewhere"}, {}, None, None),
        ({"snapshot.table.name": "a.t", "snapshot.location": "/snapshots/../snapshots"}, {}, SAME, SAME),
        ({"name": "a.b", "topics": "t"}, {"name": "a_b"}, SAME, SAME),
        ({"snapshot.table.name": "lake.x"}, {"snapshot.table.name": "lake.y"}, None, None),
        ({"snapshot.table.name": "lake.x"}, {"snapshot.table.name": "lake.x"}, SAME, SAME),
        ({"name": "lake"}, {"snapshot.table.name": "lake.y"}, None, AMONG),
        ({"name": "lake"}, {"snapshot.table.name": "lake.t"}, SAME, SAME),
        ({"topics": "shop.t"}, {"name": "a", "snapshot.table.name": "b.shop_t"}, SAME, SAME),
        ({"snapshot.table.name": "${topic}.x", "topics": "a"}, {}, None, AMONG),
        ({"snapshot.table.name": "${topic}.x", "topics": "c"}, {}, None, None),
        ({"snapshot.table.name": "${topic}.x", "topics.regex": "c.*"}, {}, None, AMONG),
        ({"snapshot.table.name": "l.x_${topic}", "topics.regex": "c.*"}, {"snapshot.table.name": "l.y"}, None, None),
        ({"snapshot.table.name": "l.x_${topic}", "topics.regex": "c.*"}, {"snapshot.table.name": "l.x_"}, None, None),
        ({"snapshot.table.name": "l.x_${topic}", "topics.regex": "c.*"}, {"snapshot.table.name": "l.x_1"}, None, AMONG),
        ({"snapshot.table.name": "l.${topic}", "topics.regex": "t.*"}, {"snapshot.table.name": "l.t"}, SAME, SAME),
        (
            {"snapshot.table.name": "l.x_${topic}", "topics.regex": "c.*"},
            {"snapshot.table.name": "l.y_${topic}", "topics.regex": "c.*"},
            None,
            None,
        ),
        (
            {"snapshot.table.name": "l.x_${topic}", "topics.regex": "c.*"},
            {"snapshot.table.name": "l.${topic}_y", "topics.regex": "d.*"},
            None,
            AMONG,
        ),
        (
            {"snapshot.table.name": "l.${topic}", "topics.regex": "c.*"},
            {"snapshot.table.name": "l.${topic}", "topics.regex": "c.*"},
            SAME,
            SAME,
        ),
    ],
)
def test_a_table_has_one_connector(
    own: dict[str, str], other: dict[str, str], of_file: str | None, over_rest: str | None
) -> None:
    """Who commits first has the table, and the other's snapshots would fail; over REST none may be taken beforehand."""
    there = iceberg({"name": "a", **other})
    for said, limits in ((of_file, None), (over_rest, OVER_REST)):
        texts = clash_texts(iceberg({"name": "b", **own}, limits), there)
        assert [f'{said} "{there.name}"' in text for text in texts] == [True] * (said is not None)


@pytest.mark.parametrize(
    ("own", "other", "is_same"),
    [
        ({"uri": "http://127.0.0.1:1", "token": "Xq1"}, {"uri": "http://127.0.0.1:1", "token": "Xq2"}, True),
        ({"uri": "http://127.0.0.1:1", "warehouse": "x"}, {"uri": "http://127.0.0.1:1", "warehouse": "y"}, False),
        ({"uri": "http://127.0.0.1:1"}, {"uri": "http://127.0.0.1:2"}, False),
        ({"type": "glue", "glue.region": "x"}, {"type": "glue", "glue.region": "x"}, True),
        ({"type": "glue", "glue.region": "x"}, {"type": "glue", "glue.region": "y"}, False),
        ({}, {"uri": "http://127.0.0.1:1"}, False),
    ],
)
def test_tables_are_of_their_catalog(own: dict[str, str], other: dict[str, str], *, is_same: bool) -> None:
    """One name in two catalogs is two tables."""
    catalogs = [{f"iceberg.catalog.{key}": text for key, text in each.items()} for each in (own, other)]
    named = {"snapshot.table.name": "l.t"}
    a, b = (iceberg({"name": f"c{number}", **named, **each}) for number, each in enumerate(catalogs))
    assert bool(clash_texts(a, b)) == is_same


def test_many_tables_are_compared_at_once() -> None:
    """A request names thousands of topics, and each table with each of all others would take seconds of a core."""

    def named(name: str, topics: int) -> ConnectorConfig:
        names = ",".join(f"{name}-{number}" for number in range(topics))
        return iceberg({"name": name, "topics": names, "snapshot.table.name": "lake.${topic}"}, OVER_REST)

    own, others = named("own", 2_000), [named(f"c{number}", 50) for number in range(50)]
    files = [OtherFile(Path("a.json"), other.name, other) for other in others]
    began = time.process_time()
    assert clashes(own, files) == ()
    assert time.process_time() - began < 0.5


def iceberg(own: Mapping[str, str], limits: Limits | None = None) -> ConnectorConfig:
    settings = {
        "connector.class": "keyfold.CompactedTopic",
        "output.topic": "none",
        "snapshot.location": "/snapshots",
        "snapshot.value.format": "typed",
        "value.converter": "keyfold.Json",
        "value.converter.schemas.enable": "true",
        "snapshot.table": "iceberg",
        **({} if "topics.regex" in own else {"topics": "t"}),
        **own,
    }
    return ConnectorConfig.model_validate(settings, context=limits)


def clash_texts(own: ConnectorConfig, other: ConnectorConfig) -> list[str]:
    return [fault.text for fault in clashes(own, [OtherFile(Path("a.json"), other.name, other)])]


def test_a_connector_of_a_file_may_have_them_anywhere(tmp_path: Path) -> None:
    """Who writes files on the worker's machine decides; storage.location itself is no place for them."""
    worker = load_worker(worker_file(tmp_path, **{ALLOWED: "/nowhere"}))
    assert _refused(worker, f"{tmp_path}/snapshots") == [OUTSIDE]
    for place in ("snapshots", f"{tmp_path}/store/snapshots"):
        of_file = connector_file(tmp_path, **{"snapshot.location": place})
        assert load_connector(of_file, worker).config.snapshot_location == str(tmp_path / place)
    assert _refused(worker, str(tmp_path / "store")) == [
        "is the worker's storage.location; snapshots need a folder of their own."
    ]


def _refused(worker: WorkerConfig, location: str) -> list[str]:
    with pytest.raises(FaultyConfigError) as caught:
        checked({**LEAST, "snapshot.location": location}, worker)
    return [fault.text for fault in caught.value.faults]


_OWN = "abfss://b@own.dfs.core.windows.net/x"
_OTHER = "abfss://b@other.dfs.core.windows.net/x"


@pytest.mark.parametrize(
    ("worker", "location", "is_refused"),
    [
        ({"storage.azure.account.name": "own"}, _OWN, False),
        ({"storage.azure.account.name": "own"}, "az://b/x", False),
        ({"storage.azure.account.name": "own"}, _OTHER, True),
        ({"storage.location": "abfss://kept@own.dfs.core.windows.net/k"}, _OWN, False),
        ({"storage.location": "abfss://kept@own.dfs.core.windows.net/k"}, _OTHER, True),
        ({}, _OTHER, True),
        ({ALLOWED: _OTHER}, _OTHER, False),
    ],
)
def test_the_credentials_of_azure_go_to_no_account_of_a_requests_choice(
    tmp_path: Path, worker: dict[str, str], location: str, is_refused: bool
) -> None:
    """Each request to a store has them. Which accounts may have them is the worker file's to say."""
    own = load_worker(worker_file(tmp_path, "broker:9092", **worker))
    said = _refused(own, location) if is_refused else []
    assert ["names another account than storage.azure.account.name" in text for text in said] == [True] * is_refused
    if not is_refused:
        assert checked({**LEAST, "snapshot.location": location}, own).snapshot_location == location


@pytest.mark.parametrize("text", ["relative/folder", "/a,,/b", "ftp://h/x", "s3://u:p@b/x"])
def test_prefixes_are_whole_locations(tmp_path: Path, text: str) -> None:
    """A relative path would count from nowhere."""
    with pytest.raises(FaultyConfigError, match=ALLOWED):
        load_worker(worker_file(tmp_path, **{ALLOWED: text}))
