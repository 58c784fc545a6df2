"""The encodings of texts that StringConverter takes: those of Java by any name that Python knows."""

from __future__ import annotations

import codecs

import pytest

from connectors.converters.primitive_converters import StringConverter
from connectors.options import OptionsError, read


def converter(encoding: str) -> StringConverter:
    return StringConverter(read(StringConverter.OPTIONS, {"encoding": encoding}), is_key=False)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        *(("UTF-8", b"\xc3\xa4"), ("utf8", b"\xc3\xa4"), ("ISO-8859-1", b"\xe4"), ("latin1", b"\xe4")),
        *(("windows-1252", b"\xe4"), ("Cp1252", b"\xe4"), ("UTF-16BE", b"\x00\xe4"), ("ISO_8859-1:1987", b"\xe4")),
        *(("IBM850", b"\x84"), ("utf--8", b"\xc3\xa4")),
    ],
)
def test_a_text_is_read_and_written_by_any_name_of_its_encoding(encoding: str, data: bytes) -> None:
    """Java's names are among them."""
    schema, value = converter(encoding).to_connect_data("t", [], data)
    assert value == "ä"
    assert converter(encoding).from_connect_data("t", [], schema, value) == data


@pytest.mark.parametrize("encoding", ["utf-9", "idna", "hex", "..", "os", "a\0b", "\ud800", "ä"])
def test_what_is_no_encoding_is_refused(encoding: str) -> None:
    """Nor are forms that Python calls encodings."""
    with pytest.raises(OptionsError, match="encoding"):
        converter(encoding)


def test_python_is_not_asked_for_names_that_it_does_not_know() -> None:
    """It keeps each name that it was asked for: a client of REST may send any number of them, of 64 kB each."""
    asked: list[str] = []
    codecs.register(asked.append)  # which is asked for what no other knows, and knows nothing either
    try:
        for encoding in ("no-encoding", "x" * 1000):
            with pytest.raises(OptionsError):
                converter(encoding)
    finally:
        codecs.unregister(asked.append)
    assert asked == []
