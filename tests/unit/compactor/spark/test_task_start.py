"""What a process has imported is no longer searched for garbage after each of its tasks; what tasks make is."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
import sys

from compactor.spark.task_start import begin_task

gc.disable()
kept, froze = [], []
for number in range(1, 18):
    kept.append([number])  # what a module, imported by the task before, leaves
    before = gc.get_freeze_count()
    begin_task()
    if gc.get_freeze_count() != before:
        froze.append(number)
assert froze == [1, 2, 4, 8, 16], froze
assert "pandas" not in sys.modules

cycle = []
cycle.append(cycle)
watched = len(gc.get_objects())
del cycle
assert gc.collect() >= 1
assert watched < gc.get_freeze_count()
"""


def test_a_process_of_tasks_looks_for_garbage_among_what_they_make() -> None:
    """What is there is left out after tasks 1, 2, 4, … and not after each: garbage of a cycle may stay each time."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
