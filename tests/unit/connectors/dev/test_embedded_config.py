"""The embedded broker's files are what Kafka and log4j read, wherever they are."""

from __future__ import annotations

from pathlib import Path

from connectors.dev.embedded_config import Layout, read_property, server_properties, write_files


def test_properties_come_back_as_they_were(tmp_path: Path) -> None:
    """What Java's format would read as something else is escaped: backslashes, characters that are not ASCII."""
    layout = Layout(tmp_path)
    properties = {"ssl.keystore.location": "C:\\keys\\größe", "a": " b"}
    write_files(layout, properties)
    assert {name: read_property(layout.server_file, name) for name in properties} == properties
    layout.server_file.read_text(encoding="ascii")


def test_no_file_holds_the_path_of_its_folder(tmp_path: Path) -> None:
    """Kafka would split it at commas; log4j would look for variables in it."""
    layout = Layout(tmp_path / "a, ${b}")
    write_files(layout, server_properties(1, 2, {}))
    assert not [file for file in layout.root.iterdir() if "a, " in file.read_text(encoding="ascii")]
