"""The process that counts: it reads a question from stdin, says steps and the answer on stdout, and ends.

It is apart from the worker so that it can be ended at any moment, and takes nothing of the interpreter and the memory
of the pipeline. It runs at the lowest priority, and is what the system ends first if memory runs out. It ends with the
worker: stdin stays open as long as that lives.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
from msgspec import Raw
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from connectors.clock import SYSTEM_CLOCK
from connectors.operations.analyze import analyze_without_spark
from connectors.ui.what_if import messages
from connectors.ui.what_if.messages import CountedAnswer, CountingRefusal, CountingStep, Message, Question

_EVERY_MS: Final = 100
"""How often a step is said at most: the page looks once a second."""
_LENGTH: Final = 8
"""Bytes of the question's length, which come before it."""
_MOST_DEFECT: Final = 4_000


def main() -> None:
    """Answers one question."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    yield_to_others()
    source = sys.stdin.buffer
    question = messages.question_of(source.read(int.from_bytes(source.read(_LENGTH), "big")))
    threading.Thread(target=_end_with_worker, args=(source,), daemon=True).start()
    answers.write(messages.line(_answer(question, ToldSteps(answers))))


def sent(question: Question) -> bytes:
    """Returns what the worker writes to stdin."""
    data = messages.asked(question)
    return len(data).to_bytes(_LENGTH, "big") + data


def yield_to_others() -> None:
    """Has everything else go before this process, and has it end first if memory runs out."""
    os.nice(19)
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000")
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _end_with_worker(source: IO[bytes]) -> None:
    source.read()  # until the worker has gone
    os._exit(1)


class ToldSteps:
    """Says on `answers` what is done."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers = answers
        self._step = CountingStep()
        self._said_ms = 0

    def begin(self, name: str) -> None:
        """Begins a step."""
        self._step = CountingStep(name)
        self._say()

    def partition(self, number: int, of: int) -> None:
        """Takes which partition is read."""
        self._step = replace(self._step, partition=number, partitions=of)
        if SYSTEM_CLOCK.monotonic_ms() - self._said_ms >= _EVERY_MS:
            self._say()

    def _say(self) -> None:
        self._said_ms = SYSTEM_CLOCK.monotonic_ms()
        self._answers.write(messages.line(self._step))


def _answer(question: Question, steps: ToldSteps) -> Message:
    try:
        report = analyze_without_spark(
            question.worker, question.connector, question.changes, SYSTEM_CLOCK, steps.begin, steps.partition
        )
    except KeyfoldError as error:
        return CountingRefusal(str(error))
    except Exception:  # noqa: BLE001  # the worker logs it
        return CountingRefusal(traceback.format_exc()[-_MOST_DEFECT:], is_defect=True)
    return CountedAnswer(Raw(messages.written(report)))


if __name__ == "__main__":
    main()
