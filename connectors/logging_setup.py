"""Configures the logging of a process: structlog for our own events, and the same lines for what libraries log.

Everything goes to stderr; stdout carries results only. `style`: `console` for people (coloured only on a
terminal), `json` for one object a line, `auto` is `console`. Secrets are masked here, in every event.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from compactor.secret_forms import HIDDEN
from connectors.config.secrets import is_secret, logged_text
from connectors.progress.log_lines import LOG_LINES
from connectors.progress.terminal import is_coloured
from connectors.terminal_text import one_line

_HANDED_ON: Final = "SPARK_KEYFOLD_LOG"
"""`level,style` in the environment of Spark's processes; KEYFOLD_… would win over the worker file."""

LEVELS: Final = ("debug", "info", "warning", "error", "critical")

# py4j logs every call at INFO, httpx every request to a schema registry: theirs is noise below a warning.
_HTTP: Final = ("httpcore", "httpx", "uvicorn", "uvicorn.error", "botocore")
_QUIET: Final = ("py4j", "py4j.java_gateway", "asyncio", "watchfiles", *_HTTP)
_OF_PY4J: Final = "/py4j/"
# Logs what a micro-batch raises, which comes back as the connector's error.
_SILENT: Final = ("py4j.clientserver",)

LOWEST: Final = dict.fromkeys(("py4j", "httpcore", "botocore"), logging.INFO)
"""Loggers that write secrets below these levels, also in those below them: Py4J's its token, with which any process of
this machine may have Spark's JVM run code, httpcore's the headers of a registry's answers, which may repeat the
request's, and botocore's, of an Iceberg catalog in Glue, the keys and tokens that AWS issues for a role."""


def lowest_level(logger: str) -> int:
    """Returns the lowest level that a logger may have; NOTSET: any."""
    return LOWEST.get(logger.partition(".")[0], logging.NOTSET)


_OF_MANY_LINES: Final = ("exception", "stack")
"""What structlog makes of a traceback and of the stack, as lines of their own."""

_log = structlog.get_logger()


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at that moment: a progress display replaces it while it is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # an attribute above, looked up each time here
        return sys.stderr


def configure(level: str = "info", style: str = "auto") -> None:
    """Sends all logging of this process, ours and libraries', to stderr as `style`; may be called again.

    `level` is one of LEVELS, `style` auto, console or json (log.level and log.format of the worker file).
    """
    shared = _shared()
    handler = _Stderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=_rendering(style, coloured=is_coloured(sys.stderr))
        )
    )
    handler.addFilter(_is_shown)
    root = logging.getLogger()
    root.handlers[:] = [*(old for old in root.handlers if not isinstance(old, _Stderr)), handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.captureWarnings(capture=True)
    _take_hooks()
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _take_hooks() -> None:
    """Logs what no handler has taken, of threads and of callbacks: Python would print it with all that it quotes.

    Hooks that somebody else has set stay.
    """
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _log_end_of_thread
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _log_unraisable


def _log_end_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        name = args.thread.name if args.thread else ""
        _log.error("a thread has ended with an error", thread=name, exc_info=args.exc_value)


def _log_unraisable(args: sys.UnraisableHookArgs) -> None:
    _log.error("an error could not be raised", exc_info=args.exc_value)


def _is_shown(record: logging.LogRecord) -> bool:
    """Returns whether a record is shown: not what py4j logs as root, with a traceback, when the JVM has ended.

    What that breaks comes back as an error of the call, and the worker says itself that the JVM has ended.
    """
    return not (record.name == "root" and _OF_PY4J in record.pathname.replace("\\", "/"))


def hand_on(level: str, style: str) -> None:
    """Passes `level` and `style` to the processes that this one starts, and to theirs; see `configure_as_parent`."""
    os.environ[_HANDED_ON] = f"{level},{style}"


def configure_as_parent() -> None:
    """Configures logging of Spark's Python processes as the worker's; does nothing if it is configured already."""
    if not structlog.is_configured():
        configure(*os.environ.get(_HANDED_ON, "info,auto").split(","))


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Masks the values of secret names, at any depth, and what texts hold of secrets and of placeholders' values."""
    return {key: _masked(key, value) for key, value in event.items()}


def in_one_line(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Shows ends of lines in texts as escapes, apart from tracebacks: what others say must not look like another line.

    JSON has escapes of its own.
    """
    return {
        key: one_line(value) if isinstance(value, str) and key not in _OF_MANY_LINES else value
        for key, value in event.items()
    }


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, str | bytes) and is_secret(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {logged_text(str(key)): _masked(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(name, inner) for inner in value]
    # Any other object is text in the line: a path, an exception, a set.
    return value if value is None or isinstance(value, int | float) else logged_text(str(value))


def _shared() -> list[Processor]:
    """Returns the processors of our events and of libraries' alike, before they are rendered."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _rendering(style: str, *, coloured: bool) -> list[Processor]:
    """Returns the processors from an event to a line: tracebacks become text first, so that they are masked too."""
    plain: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if style == "json":
        kept: list[Processor] = [structlog.processors.format_exc_info, redact, LOG_LINES.keep]
        return [*plain, *kept, structlog.processors.JSONRenderer(default=str)]
    renderer = structlog.dev.ConsoleRenderer(
        colors=coloured, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    return [*plain, structlog.processors.format_exc_info, redact, in_one_line, LOG_LINES.keep, renderer]
