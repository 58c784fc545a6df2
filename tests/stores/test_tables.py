"""Tables of Delta and Iceberg in object stores, reached by the settings of snapshot.location alone."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Final

import pytest

from compactor.errors import SnapshotError
from compactor.ports import TableVersion
from compactor.storage.locations import open_storage
from connectors.tables.stores import delta_options, iceberg_properties
from tests.support.erasure import files_with
from tests.support.stores.azurite import KEY
from tests.support.stores.running import RunningStore
from tests.support.tables import Tables, row

AB: Final = [row(0, "a"), row(1, "b")]
PLACES: Final = pytest.mark.parametrize(
    ("kind", "place"),
    [
        *((kind, place) for kind in ("delta", "iceberg") for place in ("moto", "s3_proxy")),
        ("delta", "azure"),
        ("delta", "google"),
    ],
)
SECRET: Final = "of-a-store-8Hq3Zt"
SECRETS: Final = (SECRET, KEY)
"""What stores of S3 are asked with here, and Azurite."""


def _tables(kind: str, store: RunningStore, folder: Path, **settings: Any) -> Tables:
    place: Any = open_storage(f"{store.location}/{secrets.token_hex(8)}", store.options())
    if kind == "delta":
        return Tables(kind, folder, place, delta_options(place.bucket), **settings)
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/lake.db"}
    own = {f"iceberg.catalog.{name}": text for name, text in catalog.items()}
    return Tables(kind, folder, place, iceberg_properties(place.bucket, place.url(""), catalog), **own, **settings)


def _in_folders(tables: Tables, snapshot: str, *rows: dict[str, Any]) -> TableVersion:
    """Writes the files of a snapshot with a folder for each of `rows`."""
    version = tables.version(snapshot, [[each] for each in rows])
    for file in version.files:
        (tables.folder / "c" / "t" / snapshot / f"of-{file}").mkdir()
        (tables.folder / "c" / "t" / snapshot / file).rename(tables.folder / "c" / "t" / snapshot / f"of-{file}" / file)
    return version._replace(files=[f"of-{file}/{file}" for file in version.files])


def _goes_on(tables: Tables) -> TableVersion:
    """Commits as a worker does: new rows, a newer owner, another writer, an older owner, expiry. Returns the newest."""
    for state in (AB, [*AB, row(2, "c")]):
        tables.commit(state)
        assert tables.rows() == state
    tables.delete("b")
    tables.commit([*AB, row(3, "d")], epoch=2)
    assert tables.rows() == [*AB, row(3, "d")]
    with pytest.raises(SnapshotError, match="committed by the owner of epoch 2; this one has 1"):
        tables.commit(AB)
    tables.commit([row(4, "e")], epoch=2)
    tables.commit([row(5, "f")], epoch=2)
    assert tables.rows() == [row(5, "f")]
    newest = tables.commit([row(6, "g")], epoch=2)
    assert tables.tables.purge(newest) is None
    assert tables.rows() == [row(6, "g")]
    return newest


@PLACES
def test_a_table_is_kept(kind: str, place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A table in a store equals each snapshot, with the fence and others' commits as in a folder, and goes whole."""
    store: RunningStore = request.getfixturevalue(place)
    bucket = open_storage(store.location, store.options())
    before = {info.path for info in bucket.walk("")}
    tables = _tables(kind, store, tmp_path)
    newest = _goes_on(tables)
    assert {info.path for info in bucket.walk("")} > before
    tables.tables.drop(newest)
    assert tables.tables.owned(newest) is None
    assert {info.path for info in bucket.walk("")} == before


@PLACES
def test_partitions_are_kept(kind: str, place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What names of folders escape is read back, and an erasure leaves no file and no word of one that is gone."""
    store: RunningStore = request.getfixturevalue(place)
    tables = _tables(kind, store, tmp_path, **{"snapshot.partition.by": "name"})
    odd, token = "a/b=c %é", secrets.token_hex(8)
    gone = f"{odd} {token}"
    tables.tables.commit(_in_folders(tables, "s1", row(0, odd), row(1, gone)))
    assert tables.rows() == [row(0, odd), row(1, gone)]
    newest = _in_folders(tables, "s2", row(0, odd))
    tables.tables.commit(newest)
    bucket = open_storage(store.location, store.options())
    assert files_with(token.encode(), bucket)
    assert tables.tables.purge(newest) is None
    assert (tables.rows(), files_with(token.encode(), bucket)) == ([row(0, odd)], [])


@PLACES
def test_no_secret_is_written(
    kind: str, place: str, tmp_path: Path, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a file of the table, nor its catalog, the log, or an error has the secret of the store."""
    store: RunningStore = request.getfixturevalue(place)
    marked = RunningStore(
        store.name, store.url, store.location, lambda url: {**store.keys(url), "storage.s3.secret.access.key": SECRET}
    )
    tables = _tables(kind, marked, tmp_path)
    tables.commit(AB)
    bucket = open_storage(store.location, store.options())
    everything = [bucket.read(info.path, info.bytes) for info in bucket.walk("") if info.bytes]
    assert everything
    texts = [*everything, *map(Path.read_bytes, tmp_path.glob("*.db"))]
    assert not [data for data in texts if any(secret.encode() in data for secret in SECRETS)]
    gone = RunningStore(store.name, "http://127.0.0.1:9", store.location, lambda _: marked.keys("http://127.0.0.1:9"))
    refused = _tables(kind, gone, tmp_path / "refused")
    refused.folder.mkdir()
    version = refused.version("s1", [AB])
    with pytest.raises(SnapshotError) as caught:
        refused.tables.commit(version)
    said = caught.value.message + "".join(capfd.readouterr())
    assert not [secret for secret in SECRETS if secret in said]
