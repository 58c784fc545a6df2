"""Asks the real classes, in a JVM, and ours; both answer in the forms of `forms.py`."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from connectors.converters.converter import Converter
from connectors.converters.names import CONVERTERS
from connectors.errors import DataError
from connectors.jvm.java import find_java
from connectors.options import OptionsError, read
from connectors.transforms.names import PREDICATES, TRANSFORMS
from connectors.transforms.transform import Predicate, Side, SidedTransform, Step, Transform, TruncateError
from tests.support.connect_classes.forms import (
    comparable,
    pair_form,
    record_of,
    result_form,
    schema_of,
    value_of,
)
from tests.support.connect_classes.known import is_known

PROGRAM: Final = Path(__file__).with_name("Classes.java")
_LIMIT_S: Final = 300
_MADE: Final[dict[str, Any]] = {}

DEFECTS: Final = frozenset({"ClassCastException", "NullPointerException"})
"""Errors that a class does not mean: where Kafka's stumbles like this, ours may answer."""

Asked = dict[str, Any]
Answer = dict[str, Any]


def ask_java(folders: Sequence[Path], asked: Sequence[Asked]) -> list[Answer]:
    """Returns what the real classes in the JARs of `folders` answer."""
    command = [find_java(), "-Duser.timezone=UTC", "-cp", ":".join(f"{folder}/*" for folder in folders), str(PROGRAM)]
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    run = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    found = [json.loads(line) for line in run.stdout.split("\n") if line.startswith("{")]
    assert len(found) == len(asked), run.stderr[-2000:]
    return [{"answer": comparable(one.get("answer")), "error": one.get("error")} for one in found]


def are_equal(asked: Asked, theirs: Answer, ours: Answer) -> bool:
    """Returns whether two answers mean the same, or differ as they are meant to: an error is one, whatever it says."""
    if theirs["error"] in DEFECTS or is_known(asked, theirs, ours):
        return True
    return theirs["answer"] == ours["answer"] and (theirs["error"] is None) is (ours["error"] is None)


def ask_ours(asked: Asked) -> Answer:
    """Returns what our class answers."""
    try:
        return {"answer": comparable(_answer(asked)), "error": None}
    except (DataError, OptionsError) as error:  # a setting may be refused that the class fails on later
        return {"answer": None, "error": str(error)}
    except Exception as error:  # noqa: BLE001  # a defect of ours, whatever the class answers
        return {"answer": {"defect": repr(error)}, "error": repr(error)}


def _answer(asked: Asked) -> Any:
    match asked["call"]:
        case "transform":
            transform = _step(asked)
            assert isinstance(transform, Transform)
            try:
                return result_form(transform.apply(record_of(asked["record"])))
            except TruncateError:  # Debezium's class drops it; here the connector's setting decides
                return result_form(None)
        case "predicate":
            predicate = _step(asked)
            assert isinstance(predicate, Predicate)
            return predicate.test(record_of(asked["record"]))
        case "to_connect_data":
            data = asked["data"]
            found = _converter(asked).to_connect_data("t", [], None if data is None else base64.b64decode(data))
            return pair_form(*found)
    schema = schema_of(asked["schema"])
    written = _converter(asked).from_connect_data("t", [], schema, value_of(asked["value"]))
    return None if written is None else base64.b64encode(written).decode()


def _step(asked: Asked) -> Step:
    return _made(asked, lambda: _new_step(asked))


def _new_step(asked: Asked) -> Step:
    names = TRANSFORMS if asked["call"] == "transform" else PREDICATES
    named = names.find(asked["class"])
    kind = named.of.load()
    options = read(kind.OPTIONS, asked["config"])
    if named.side is None:
        return kind(options)
    assert issubclass(kind, SidedTransform)
    return kind(options, Side(named.side))


def _converter(asked: Asked) -> Converter:
    def new() -> Converter:
        kind = CONVERTERS.find(asked["class"]).of.load()
        return kind(read(kind.OPTIONS, asked["config"]), is_key=asked["is_key"])

    return _made(asked, new)


def _made(asked: Asked, new: Any) -> Any:
    key = json.dumps([asked["call"], asked["class"], asked["config"], asked.get("is_key")], sort_keys=True)
    if key not in _MADE:
        _MADE[key] = new()
    return _MADE[key]
