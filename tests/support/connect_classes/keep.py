"""`python -m tests.support.connect_classes.keep [CLASS…]`: asks the real classes, and keeps their answers."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from connectors.jvm.artifacts import KAFKA_VERSION
from tests.support.connect.real_worker import ensure_connect
from tests.support.connect_classes.asking import ask_java
from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.converter_cases import CASES as CONVERTERS
from tests.support.connect_classes.converter_cases import ConverterCase
from tests.support.connect_classes.debezium_cases import CASES as DEBEZIUM
from tests.support.connect_classes.kafka_cases import CASES as KAFKA
from tests.support.connect_classes.mongodb_cases import CASES as MONGODB
from tests.support.fetched import ensure_jars, ivy_module

DEBEZIUM_VERSION: Final = "3.2.0.Final"
BSON_VERSION: Final = "5.2.0"
"""What Debezium's class for events of MongoDB reads documents with."""
_IVY: Final = ivy_module(
    "debezium",
    *(
        f'<dependency org="io.debezium" name="debezium-{name}" rev="{DEBEZIUM_VERSION}" conf="default->master" '
        'transitive="false"/>'
        for name in ("core", "api", "common", "openlineage-api", "connector-mongodb")
    ),
    f'<dependency org="org.mongodb" name="bson" rev="{BSON_VERSION}" conf="default->master" transitive="false"/>',
)
CASES: Final[tuple[Case, ...]] = (*KAFKA, *DEBEZIUM, *MONGODB)
EVERY: Final[tuple[Case | ConverterCase, ...]] = (*CASES, *CONVERTERS)
FOLDER: Final = Path(__file__).parents[2] / "data" / f"connect-classes-{KAFKA_VERSION}"


def kept(case: Case | ConverterCase) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Reads what was asked of the class of `case`, and its answers."""
    lines = _file(case).read_text(encoding="utf-8").split("\n")
    return [(one["asked"], one["theirs"]) for one in map(json.loads, filter(None, lines))]


def as_compared(case: Case | ConverterCase, answer: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer as it is compared: of JSON that is written the value counts, not its digits or blanks."""
    if isinstance(case, Case):
        return without_schema_of_null(answer) if case.bare_nulls else answer
    written = answer["answer"]
    return (
        {**answer, "answer": json.loads(base64.b64decode(written))}
        if case.json and isinstance(written, str)
        else answer
    )


def without_schema_of_null(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer whose value has no schema where it is null."""
    found = answer["answer"]
    if not found or found["value"][1] is not None:
        return answer
    return {**answer, "answer": {**found, "value": [None, None]}}


def ensure_debezium() -> Path:
    """Returns the folder with the JARs of Debezium's transforms, which are fetched now where they are not there."""
    return ensure_jars(f"debezium-mongodb-{DEBEZIUM_VERSION}", _IVY)


def _file(case: Case | ConverterCase) -> Path:
    return FOLDER / f"{case.simple}.jsonl"


def main(names: Iterable[str]) -> None:
    """Keeps the answers of the classes with these simple names; of all without any."""
    wanted = frozenset(names)
    FOLDER.mkdir(exist_ok=True)
    for case in EVERY:
        if wanted and case.simple not in wanted:
            continue
        asked = list(case.asked())
        answers = ask_java([ensure_connect(), ensure_debezium()], asked)
        pairs = zip(asked, answers, strict=True)
        lines = [json.dumps({"asked": one, "theirs": theirs}, separators=(",", ":")) for one, theirs in pairs]
        _file(case).write_text("\n".join(lines) + "\n", encoding="utf-8")
        errors = sum(answer["error"] is not None for answer in answers)
        print(f"{case.simple}: {len(lines)} answers, {errors} of them errors")


if __name__ == "__main__":
    main(sys.argv[1:])
