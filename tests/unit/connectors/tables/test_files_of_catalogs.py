"""Which files a catalog may have the worker read, write and remove, and which addresses one over REST may name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import AlwaysTrue

from compactor.errors import SnapshotError
from compactor.storage.local import LocalStorage
from connectors.tables import catalog_files
from connectors.tables.catalog_files import FileBounds
from connectors.tables.iceberg import IcebergFiles
from tests.support.echo_server import echo_server
from tests.support.iceberg_rest import iceberg_rest
from tests.support.tables import Tables, row

AB, BC = [row(0, "a"), row(1, "b")], [row(1, "b"), row(2, "c")]
OF_MACHINE = "is a file of this machine and not below iceberg.catalog.warehouse"
STORAGE = "is in the worker's storage.location"
SNAPSHOTS = "is in snapshot.location and not below iceberg.catalog.warehouse"
NO_STORE = "is in no object store"


@pytest.mark.parametrize(
    ("warehouse", "location", "said"),
    [
        ("file:///lake/w", "file:///lake/w/t/data/1.parquet", None),
        ("/lake/w", "file:/lake/w/t", None),
        ("file:///lake/w", "/lake/w/t", None),
        ("file:///lake/w", "file:///lake/w/../x", OF_MACHINE),
        ("file:///lake/w", "file:///lake/ww/x", OF_MACHINE),
        ("file:///lake/w", "file://etc/passwd", OF_MACHINE),
        ("file:///lake/w", "file:///lake/w/x#/../../etc", None),  # as a file of that name before "#"
        ("", "file:///etc/passwd", OF_MACHINE),
        ("production", "production/x", OF_MACHINE),
        ("team/lake", "team/lake/x", OF_MACHINE),
        ("s3tablescatalog/lake", "s3tablescatalog/lake/../../etc", OF_MACHINE),
        ("s3://lake/w", "FILE:///etc/passwd", OF_MACHINE),
        ("s3://lake/w", "etc/passwd", OF_MACHINE),
        ("s3://lake/w", "s3://lake/w/t", None),
        ("s3://lake/w", "s3://of-others/t", None),
        ("", "gs://of-others/t", None),
        ("s3://lake", "s3://lake/kept/c/catalog/1.json", STORAGE),
        ("s3://lake/kept", "s3://lake/kept/c/catalog/1.json", STORAGE),
        ("s3://lake/kept/w", "s3://lake/kept/c/catalog/1.json", STORAGE),
        ("s3://lake/kept/w", "s3://lake/kept/w/t/data/1.parquet", None),
        ("", "s3a://lake//kept/./other/runs/1", STORAGE),
        ("", "s3://lake/kept/../x", NO_STORE),
        ("", "s3://lake/snapshots/c/t/1.parquet", SNAPSHOTS),
        ("s3://lake/snapshots/w", "s3n://lake/snapshots/w/t", None),
        ("", "hdfs://namenode/x", NO_STORE),
        ("", "http://127.0.0.1/x", NO_STORE),
        ("", "viewfs:///x", NO_STORE),
    ],
)
def test_bounds_of_files(warehouse: str, location: str, said: str | None) -> None:
    """What the operator names as warehouse, and object stores but for what the worker keeps there."""
    why = FileBounds(warehouse, "s3://lake/kept/c/", "s3://lake/snapshots/").refusal(location)
    assert (why is None) if said is None else (why is not None and said in why)


@pytest.mark.parametrize(
    ("kind", "said"), [({"type": "rest", "uri": "http://127.0.0.1"}, OF_MACHINE), ({"type": "sql"}, None)]
)
def test_a_warehouse_of_a_catalog_over_rest_may_have_a_name_with_slashes(
    kind: dict[str, str], said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no folder of the worker's; for any other catalog it is a path from the worker's folder on."""
    monkeypatch.chdir(tmp_path)
    why = FileBounds.of({**kind, "warehouse": "team/lake"}).refusal(f"{tmp_path}/team/lake/t/1.parquet")
    assert (why is None) if said is None else (why is not None and said in why)


def test_links_and_containers_are_what_they_lead_to(tmp_path: Path) -> None:
    """A link out of the warehouse is not in it; a container of Azure has several names."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "out").symlink_to(tmp_path)
    bounds = FileBounds(str(tmp_path / "w"), "az://lake/kept/c", "")
    assert OF_MACHINE in str(bounds.refusal(f"{tmp_path}/w/out/x"))
    assert STORAGE in str(bounds.refusal("abfss://lake@account.dfs.core.windows.net/kept/c/runs"))
    assert bounds.refusal("wasbs://other@account.blob.core.windows.net/kept") is None


def _noting(victim: str) -> Callable[[Any], Any]:
    """Returns what has a catalog say that the table's metadata was in the file `victim`, but with each commit."""
    last = 0

    def altered(answer: Any) -> Any:
        nonlocal last
        if "metadata" in answer:
            snapshots = answer["metadata"]["last-sequence-number"]
            noted = [{"metadata-file": victim, "timestamp-ms": 1}] if snapshots == last else []
            answer["metadata"]["metadata-log"], last = noted, snapshots
        return answer

    return altered


def _listing(victim: str) -> Callable[[Any], Any]:
    """Returns what has a catalog say that the list of the snapshot's manifests is `victim`."""

    def altered(answer: Any) -> Any:
        for snapshot in answer.get("metadata", {}).get("snapshots", ()):
            snapshot["manifest-list"] = victim
        return answer

    return altered


def _placing(victim: str) -> Callable[[Any], Any]:
    """Returns what has a catalog say that the table's files belong into the folder of `victim`."""

    def altered(answer: Any) -> Any:
        if "metadata" in answer:
            answer["metadata"]["location"] = str(Path(victim).parent)
        return answer

    return altered


@pytest.mark.parametrize("folder", ["elsewhere", "kept"])
@pytest.mark.parametrize("attack", [_noting, _listing, _placing])
def test_a_catalog_reaches_no_file_of_the_worker(
    attack: Callable[[str], Callable[[Any], Any]], folder: str, tmp_path: Path
) -> None:
    """It says which files are a table's, and the worker would read, write and remove these."""
    victim = tmp_path / folder / "victim"
    victim.parent.mkdir()
    victim.write_text("the worker's own")
    refused = []
    with iceberg_rest(tmp_path, "token", {}, attack(str(victim))) as url:
        named = {"type": "rest", "uri": url, "token": "token", "warehouse": f"file://{tmp_path}/warehouse"}
        tables = Tables("iceberg", tmp_path, **{f"iceberg.catalog.{name}": text for name, text in named.items()})
        for rows in (AB, BC):
            try:
                tables.commit(rows)
            except SnapshotError as error:
                refused.append(error.message)
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]
    assert victim.read_text() == "the worker's own"
    assert all(f"victim', which {OF_MACHINE}" in text or f"/{folder}/" in text for text in refused)


@pytest.mark.parametrize("folder", ["elsewhere", "kept"])
def test_a_files_metadata_reaches_no_file_of_the_worker(folder: str, tmp_path: Path) -> None:
    """Whoever may write into the table's folder, or bucket, is not who may remove the worker's files."""
    victim = tmp_path / folder / "victim"
    victim.parent.mkdir()
    victim.touch()
    named = {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db", "warehouse": f"file://{tmp_path}/warehouse"}
    tables = Tables("iceberg", tmp_path, **{f"iceberg.catalog.{name}": text for name, text in named.items()})
    tables.commit(AB)
    newest = max(tmp_path.glob("warehouse/**/*.metadata.json"))
    metadata = json.loads(newest.read_text())
    metadata["metadata-log"] = [{"metadata-file": str(victim), "timestamp-ms": metadata["last-updated-ms"]}]
    metadata["properties"]["write.metadata.previous-versions-max"] = "1"
    newest.write_text(json.dumps(metadata))
    tables.commit(BC)
    assert victim.exists()
    assert len(list(tmp_path.glob("warehouse/**/*.metadata.json"))) > 2


def test_what_expires_is_no_file_of_another_connector(tmp_path: Path) -> None:
    """An older version names one beside its warehouse: the worker's own client for that does not remove it."""
    victim, snapshots = tmp_path / "snapshots" / "other" / "1.parquet", LocalStorage(str(tmp_path / "snapshots"))
    victim.parent.mkdir(parents=True)
    rows = pa.table({"n": pa.array([1], pa.int32())})
    pq.write_table(rows, victim)
    named = {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db", "warehouse": (tmp_path / "warehouse").as_uri()}
    catalog = load_catalog("ours", **named)
    catalog.create_namespace("c")
    table = catalog.create_table(("c", "t"), rows.schema)
    table.add_files([victim.as_uri()])
    table.delete(AlwaysTrue())
    own = {catalog_files.KEPT: (tmp_path / "kept" / "c").as_uri(), catalog_files.SNAPSHOTS: snapshots.url("")}
    bounded = load_catalog("ours", **named, **own)
    with pytest.raises(ValueError, match=OF_MACHINE):
        IcebergFiles(bounded, ("c", "t"), None, "c", bucket=snapshots).expire(1)
    assert victim.exists()


def test_a_catalog_names_no_other_address(tmp_path: Path) -> None:
    """A login would go there, and what is answered there may stand in an error."""
    asked: list[str] = []

    def note(path: str, _: Any) -> tuple[int, bytes]:
        asked.append(path)
        return 200, b"{}"

    with echo_server(note) as other:

        def altered(answer: Any) -> Any:
            if "overrides" in answer:
                answer["overrides"] = {"uri": f"{other}/latest/?", "oauth2-server-uri": f"{other}/token"}
            return answer

        with iceberg_rest(tmp_path, "token", {}, altered) as url:
            login = {"credential": "id:secret", "oauth2-server-uri": f"{url}/v1/oauth/tokens"}
            named = {"type": "rest", "uri": url, "warehouse": f"file://{tmp_path}/warehouse", **login}
            tables = Tables("iceberg", tmp_path, **{f"iceberg.catalog.{name}": text for name, text in named.items()})
            tables.commit(AB)
    assert asked == []
