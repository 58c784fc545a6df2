"""Says why a record was rejected, in the one text that a run keeps of it (`rejected` of compactor/model/record.py).

Where a converter or a transform has refused a record, the text begins with the stage and the class:
`VALUE_CONVERTER keyfold.Avro DataError: schema 7 does not exist`. Any other text is the reason alone: the record could
not be folded, or was written by an earlier release.

On its own because one folder writes it and others read it.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from msgspec import Struct

SINK_CLASS: Final = "keyfold.CompactedTopic"


class Stage(Enum):
    """Where a record was when it went wrong (`org.apache.kafka.connect.runtime.errors.Stage`)."""

    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"
    TASK_PUT = "TASK_PUT"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"


class Rejection(Struct, frozen=True):
    """Why one record was rejected. `class_name` is that of the file: of the converter, transform or predicate.

    `exception` is the error's class, without its module; empty where no error was raised.
    """

    stage: Stage
    class_name: str
    exception: str
    message: str

    def __str__(self) -> str:
        return f"{self.stage.value} {self.class_name} {self.exception}: {self.message}"


_STAGED: Final = re.compile(rf"({'|'.join(stage.value for stage in Stage)}) (\S+) (\w+): (.*)", re.DOTALL)


def rejection_of(text: str) -> Rejection:
    """Reads what `str(rejection)` has written, or takes `text` for the reason why a record could not be folded."""
    found = _STAGED.fullmatch(text)
    if found is None:
        return Rejection(Stage.TASK_PUT, SINK_CLASS, "", text)
    stage, class_name, exception, message = found.groups()
    return Rejection(Stage(stage), class_name, exception, message)
