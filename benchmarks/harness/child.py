"""Child process of `benchmarks.harness.call`: python -m benchmarks.harness.child CALL-FILE ANSWER-FILE.

A module of its own because it runs as `__main__`, and its answer is unpickled as `call.Answer`.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from benchmarks.harness.call import PROCESS_KILLED, Answer, killed
from benchmarks.harness.row import MissingError


def main(call: Path, file: Path) -> int:
    """Runs the pickled call and writes its answer to `file`; returns the exit code, with which 0 has an answer."""
    function, arguments, named = pickle.loads(call.read_bytes())
    try:
        answer = Answer(value=function(*arguments, **named))
    except MissingError as error:
        answer = Answer(error=error)
    except BrokenProcessPool:
        return PROCESS_KILLED
    except Exception:  # noqa: BLE001  # the caller reports it, whatever it is
        answer = Answer(trace=traceback.format_exc())
    answer.killed = killed
    file.write_bytes(pickle.dumps(answer))
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the answer is written: a client that is still open cannot spoil it while Python shuts down
