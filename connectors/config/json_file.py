"""A JSON object from a file, with the place of what is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.json_faults import sentence


class _DoubledKeyError(ValueError):
    """A key that stands twice in one object."""


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Numbers with a fraction come as their text, so that they are shown as written.

    Raises ConfigError for a file that cannot be read, is not JSON (with line and column), is no object, or has a
    key twice.
    """
    try:
        content = json.loads(
            path.read_text(encoding="utf-8-sig"),
            object_pairs_hook=_without_doubles,
            parse_float=str,
            parse_int=str,
            parse_constant=str,
        )
    except json.JSONDecodeError as error:
        raise _faulty(path, sentence(error)) from None
    except _DoubledKeyError as error:
        raise _faulty(path, f"the key {error} stands twice; remove one.") from None
    except UnicodeDecodeError as error:
        raise _faulty(path, f"byte {error.start}: this is not UTF-8.") from None
    except (OSError, RecursionError) as error:
        raise _faulty(path, f"cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(content, dict):
        raise _faulty(path, "must hold one JSON object.")
    return content


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DoubledKeyError(next(f'"{name}"' for name in names if names.count(name) > 1))
    return found


def _faulty(path: Path, text: str) -> FaultyConfigError:
    return FaultyConfigError(str(path), [Fault("", text)])
