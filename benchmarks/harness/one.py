"""The process of one call, as `alone` starts it: python -m benchmarks.harness.one CALL-FILE ANSWER-FILE."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from benchmarks.harness.alone import BROKEN, Answer, deaths
from benchmarks.peers.peers import MissingError


def main(call: Path, file: Path) -> int:
    """Its exit code; the answer is in `file` where it is 0."""
    function, arguments, named = pickle.loads(call.read_bytes())
    try:
        answer = Answer(value=function(*arguments, **named))
    except MissingError as error:
        answer = Answer(error=error)
    except BrokenProcessPool:
        return BROKEN
    except Exception:  # noqa: BLE001  # whatever it is, whoever called says it
        answer = Answer(trouble=traceback.format_exc())
    answer.deaths = deaths
    file.write_bytes(pickle.dumps(answer))
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the answer is there: no client that is still about can spoil it while Python tidies up
