"""Begins a Python task of Spark's, in a process that runs many, one after the other.

PySpark's daemon collects garbage after each task (`gc.collect` in `pyspark/daemon.py`), and so goes through all that
was ever imported: a third of the processor time of reading tasks at 134,000 records/s (docs/decisions/speed.md).
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Final

from compactor.arrow_start import begin_without_pandas

# The number of the task that begins next in this process.
_NUMBERS: Final = count(1)


def begin_task() -> None:
    """Has Arrow begin without pandas, and garbage be looked for only among what is made from now on.

    That is so from tasks 1, 2, 4, 8, … of a process on, by when modules are imported. What is garbage in a cycle when
    one of them begins stays: at each task that would be the closure of every one that Spark has sent.
    """
    begin_without_pandas()
    number = next(_NUMBERS)
    if number.bit_count() == 1:
        gc.freeze()
