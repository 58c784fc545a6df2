"""Begins the command `keyfold`: Ctrl-C ends it in one line at any moment, also while its modules are imported.

This module imports nothing that takes time, `typing` included: the handler has to be there first.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

_INTERRUPTED = 130
"""The exit code of a command that SIGINT has ended, as shells have it."""
_SAID = b"interrupted\n"
_AGAIN_S = 0.05
"""After so long (s) a Ctrl-C that was swallowed is raised again: the hook that has met it is over by then."""


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    _open_standard_files()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # nohup: its starter wants no Ctrl-C
        return _run()
    signal.signal(signal.SIGINT, _leave)
    try:
        return _run(is_interruptible=True)
    except KeyboardInterrupt:
        os.write(sys.stderr.fileno(), _SAID)
        return _INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done; the interpreter would end with a traceback


def _open_standard_files() -> None:
    """Opens /dev/null for each of stdin, stdout and stderr that is closed, as a service manager may leave them.

    A file or a socket that is opened later would have their numbers, and be written into by whatever logs there.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _run(*, is_interruptible: bool = False) -> int:
    gc.disable()  # the collector of garbage would go through all modules several times, for some 0.03 s
    from connectors.cli.main import main as run

    gc.freeze()
    gc.enable()
    if is_interruptible:
        sys.unraisablehook = _unraisable
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


def _leave(*_: object) -> None:
    """Ends the process at once: nothing has begun while modules are imported."""
    os.write(2, _SAID)
    os._exit(_INTERRUPTED)


def _unraisable(what: sys.UnraisableHookArgs) -> None:
    """Raises again a Ctrl-C that came as Python could raise nothing: in a callback of an import, in a destructor.

    A moment later, as the hook itself can raise nothing either. It goes to the main thread, so that its wait ends.
    """
    if isinstance(what.exc_value, KeyboardInterrupt):
        again = threading.main_thread().ident, signal.SIGINT
        threading.Timer(_AGAIN_S, signal.pthread_kill, again).start()
    else:
        sys.__unraisablehook__(what)


if __name__ == "__main__":
    sys.exit(main())
