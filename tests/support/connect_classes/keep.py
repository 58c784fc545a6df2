"""`python -m tests.support.connect_classes.keep [CLASS…]`: asks the real classes, and keeps their answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from connectors.jvm.artifacts import KAFKA_VERSION
from tests.support.connect.real_worker import ensure_connect
from tests.support.connect_classes.asking import ask_java
from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.kafka_cases import CASES as KAFKA

CASES: Final[tuple[Case, ...]] = KAFKA
FOLDER: Final = Path(__file__).parents[2] / "data" / f"connect-classes-{KAFKA_VERSION}"


def kept(case: Case) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Reads what was asked of the class of `case`, and its answers."""
    lines = _file(case).read_text(encoding="utf-8").split("\n")
    return [(one["asked"], one["theirs"]) for one in map(json.loads, filter(None, lines))]


def _file(case: Case) -> Path:
    return FOLDER / f"{case.simple}.jsonl"


def main(names: Iterable[str]) -> None:
    """Keeps the answers of the classes with these simple names; of all without any."""
    wanted = frozenset(names)
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        if wanted and case.simple not in wanted:
            continue
        asked = list(case.asked())
        answers = ask_java([ensure_connect()], asked)
        pairs = zip(asked, answers, strict=True)
        lines = [json.dumps({"asked": one, "theirs": theirs}, separators=(",", ":")) for one, theirs in pairs]
        _file(case).write_text("\n".join(lines) + "\n", encoding="utf-8")
        errors = sum(answer["error"] is not None for answer in answers)
        print(f"{case.simple}: {len(lines)} answers, {errors} of them errors")


if __name__ == "__main__":
    main(sys.argv[1:])
