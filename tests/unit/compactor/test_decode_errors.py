"""What a decoder says of content that others wrote shows none of it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from compactor.catalog import commits
from compactor.decode_errors import why
from compactor.errors import DamagedError
from compactor.storage.local import LocalStorage

SECRET = "Pass-4711"


class Word(msgspec.Struct, tag_field="type", tag="word"):
    word: Literal["a", "b"] = "a"


class Other(msgspec.Struct, tag_field="type", tag="other"):
    pass


def refused(data: bytes, kind: Any) -> Exception:
    with pytest.raises(msgspec.MsgspecError) as caught:
        msgspec.json.decode(data, type=kind)
    return caught.value


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (refused(b'{"type": "word", "word": "%s"}' % SECRET.encode(), Word), "Invalid enum value - at `$.word`"),
        (refused(b'{"type": "it\' - at `$.x %s"}' % SECRET.encode(), Word | Other), "Invalid value - at `$.type`"),
        (refused(b"4711", Literal[1, 2]), "Invalid enum value"),
        (refused(b'{"a": 1}', dict[str, str]), "Expected `str`, got `int` - at `$[...]`"),
        (
            UnicodeDecodeError("utf-8", b"ab\xff" + SECRET.encode(), 2, 3, "invalid start byte"),
            "it is no UTF-8 from byte 2 on",
        ),
        (ValueError(f"Column '{SECRET}' has 'a' kind."), "Column kind"),
        (ValueError(f'Couldn\'t read "{SECRET}"'), "Couldn't read"),
        (ValueError("x" * 999), "x" * 200),
        (KeyError(), "KeyError"),
    ],
)
def test_what_is_wrong_is_told_without_the_value(error: Exception, said: str) -> None:
    """With the place, as far as its names are ours, and in few characters."""
    assert why(error) == said


def commit(action: bytes) -> bytes:
    head = b'"format": 2, "version": 1, "epoch": 1, "at_ms": 1, "commit_id": "c", "previous": ""'
    return b'{%s, "actions": [%s]}' % (head, action)


def test_no_error_of_the_catalog_shows_what_is_in_its_file(tmp_path: Path) -> None:
    """Whoever can write to the store may have put any text there."""
    storage, data = LocalStorage(str(tmp_path)), commit(b'{"do": "%s"}' % SECRET.encode())
    with pytest.raises(DamagedError, match=r"is damaged: Invalid value - at `\$\.actions\[0\]\.do`\.") as caught:
        commits.decoded(storage, commits.commit_path(1), data, commits.Commit)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
