"""`python -m tests.support.connect_classes.fresh [--records 2000] [--seed N] [CLASS…]`: asks about new records.

Both the real classes and ours are asked; what they answer differently is printed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from tests.support.connect.real_worker import ensure_connect
from tests.support.connect_classes.asking import are_equal, ask_java, ask_ours
from tests.support.connect_classes.cases import Case, Draw
from tests.support.connect_classes.converter_cases import ConverterCase
from tests.support.connect_classes.keep import EVERY, as_compared, ensure_debezium

RECORDS: Final = 2_000
_SHOWN: Final = 3


class Difference(Struct, frozen=True):
    """What was asked of a class, and two answers."""

    asked: dict[str, Any]
    theirs: dict[str, Any]
    ours: dict[str, Any]

    def __str__(self) -> str:
        return "\n".join(json.dumps(part, ensure_ascii=False)[:2_000] for part in (self.asked, self.theirs, self.ours))


def differences(case: Case | ConverterCase, draw: Draw) -> tuple[list[Difference], int]:
    """Returns what is answered differently, the shortest first, and how many answers were no errors."""
    asked = list(case.asked(draw))
    answers = ask_java([ensure_connect(), ensure_debezium()], asked)
    pairs = [
        (one, as_compared(case, theirs), as_compared(case, ask_ours(one)))
        for one, theirs in zip(asked, answers, strict=True)
    ]
    different = [Difference(*three) for three in pairs if not are_equal(*three)]
    sound = sum(theirs["error"] is None for theirs in answers)
    return sorted(different, key=lambda one: len(json.dumps(one.asked))), sound


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns how many classes answer differently."""
    parser = argparse.ArgumentParser(prog="fresh")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("classes", nargs="*")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}")
    failed = 0
    for case in EVERY:
        if given.classes and case.simple not in given.classes:
            continue
        different, sound = differences(case, Draw(given.records, given.seed))
        print(f"{case.simple}: {len(different)} of {given.records} differ; {sound} were no errors")
        for one in different[:_SHOWN]:
            print(f"{one}\n")
        failed += bool(different)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
