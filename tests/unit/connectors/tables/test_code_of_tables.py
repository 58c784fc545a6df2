"""A table's properties may name classes. Whoever may write them would run those in the worker: none is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from threading import Event

import pytest
from moto import mock_aws
from pyiceberg.catalog.glue import GlueCatalog

from compactor.errors import SnapshotError
from connectors.tables.iceberg import IcebergFiles
from connectors.tables.topic_tables import TopicTables
from tests.support.tables import SCHEMA, Disturbed, Tables, row

MODULE = "code_of_a_table"
PROPERTIES = pytest.mark.parametrize(
    ("name", "value"), [("py-io-impl", f"{MODULE}.Files"), ("write.py-location-provider.impl", f"{MODULE}.Places")]
)


class Mark:
    """A module `MODULE` that leaves a file in `folder` when it is imported."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "imported"
        lines = (
            "from pathlib import Path",
            "from pyiceberg.io.pyarrow import PyArrowFileIO as Files",
            "from pyiceberg.table.locations import SimpleLocationProvider as Places",
            f"Path({str(self._file)!r}).touch()",
        )
        (folder / f"{MODULE}.py").write_text("\n".join(lines))

    @property
    def is_left(self) -> bool:
        """Whether the module has been imported since `wipe`."""
        return self._file.exists()

    def wipe(self) -> None:
        """Removes the file, and the module from those that are imported."""
        self._file.unlink(missing_ok=True)
        sys.modules.pop(MODULE, None)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mark]:
    """The module, on Python's path."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    left = Mark(folder)
    yield left
    left.wipe()


def tables_with(name: str, value: str, folder: Path, mark: Mark) -> Tables:
    """Returns tables with a commit, after which another writer has set a property."""
    tables = Tables("iceberg", folder)
    tables.commit([row(0, "a")])
    set_by_another(tables, name, value, mark)
    return tables


def set_by_another(tables: Tables, name: str, value: str, mark: Mark) -> None:
    """Sets a property, which imports the module there, and wipes the mark."""
    with tables.iceberg().transaction() as transaction:
        transaction.set_properties({name: value})
    assert mark.is_left
    mark.wipe()


@PROPERTIES
@pytest.mark.parametrize(
    "use",
    [
        lambda tables: tables.commit([row(1, "b")]),
        lambda tables: tables.tables.purge(tables.version("s2", [[row(1, "b")]])),
        lambda tables: tables.tables.table(tables.version("s2", [[row(1, "b")]])).expire(1),
    ],
)
def test_a_table_that_names_code_is_refused(
    use: Callable[[Tables], object], name: str, value: str, tmp_path: Path, mark: Mark
) -> None:
    """A commit, a purge and what removes old versions say which property it is."""
    tables = tables_with(name, value, tmp_path, mark)
    said = rf"^Connector c: the Iceberg table c\.t has the property {name}\."
    with pytest.raises(SnapshotError, match=said) as refused:
        use(tables)
    assert "It names code" in refused.value.action
    assert not mark.is_left


@PROPERTIES
def test_code_that_is_named_during_a_commit_is_refused(name: str, value: str, tmp_path: Path, mark: Mark) -> None:
    """The commit itself reads the table again."""
    tables = Tables("iceberg", tmp_path)
    tables.commit([row(0, "a")])
    disturbed = TopicTables(
        lambda version: Disturbed(
            tables.tables.table(version), lambda: set_by_another(tables, name, value, mark), early=False
        ),
        1 << 20,
        3,
        "disturbed",
        Event().is_set,
    )
    with pytest.raises(SnapshotError, match=f"has the property {name}"):
        disturbed.commit(tables.version("s2", [[row(1, "b")]]))
    assert not mark.is_left


@PROPERTIES
def test_a_table_of_glue_that_names_code_is_refused(
    name: str, value: str, tmp_path: Path, mark: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is imported does not depend on the catalog."""
    for each in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(each, "test")
    reached = {"warehouse": str(tmp_path), "glue.region": "us-east-1"}
    with mock_aws():
        theirs = GlueCatalog("theirs", **reached)
        theirs.create_namespace("c")
        theirs.create_table("c.t", SCHEMA, properties={name: value})
        mark.wipe()
        with pytest.raises(SnapshotError, match=f"has the property {name}"):
            IcebergFiles(GlueCatalog("ours", **reached), ("c", "t"), None, "c").head()
    assert not mark.is_left


@pytest.mark.parametrize("kind", ["sql", "glue", "hive", "dynamodb"])
def test_catalogs_open_the_files_of_a_table_in_one_way(kind: str) -> None:
    """Not all of their libraries can be installed everywhere; keyfold looks at the properties in what they all call."""
    source = (files("pyiceberg.catalog") / f"{kind}.py").read_text(encoding="utf-8")
    assert "self._load_file_io(metadata.properties, metadata_location)" in source
    assert "def _load_file_io" not in source
    assert "load_file_io(metadata" not in source.replace("self._load_file_io(metadata", "")
