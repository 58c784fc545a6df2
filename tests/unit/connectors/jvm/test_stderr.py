"""What Spark's JVM writes to stderr."""

from __future__ import annotations

import subprocess
import threading

import pytest
from structlog.testing import capture_logs

from connectors.jvm.stderr import quietly, reason_in
from connectors.known_values import remember_setting

_WRITES = """
echo WARNING: Using incubator modules: jdk.incubator.vector >&2
echo WARNING: package sun.security.action not in java.base >&2
echo '{"event": "one"}' >&2
printf 'the last' >&2
"""


def test_warnings_of_every_start_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Every other line goes on to our stderr, in its order and whole."""
    with quietly() as stderr:
        subprocess.run(["sh", "-c", _WRITES], stderr=stderr.descriptor, check=True)
    for thread in threading.enumerate():
        if thread.name == "jvm-stderr":
            thread.join(10)
    assert capfd.readouterr().err == '{"event": "one"}\nthe last'
    assert stderr.reason() == "the last"


@pytest.mark.parametrize(
    ("is_over", "shown"),
    [(False, "Failed: no class\n"), (True, "Failed: no class\n\tat a.b(C.scala:1)\n\t... 3 more\n")],
    ids=["starting", "running"],
)
def test_a_jvm_that_does_not_start_shows_no_stack_trace(
    capfd: pytest.CaptureFixture[str], *, is_over: bool, shown: str
) -> None:
    """The line above it says what happened; once there is a session, stack traces are shown."""
    script = "printf 'Failed: no class\\n\\tat a.b(C.scala:1)\\n\\t... 3 more\\n' >&2"
    with quietly() as stderr:
        if is_over:
            stderr.start_is_over()
        subprocess.run(["sh", "-c", script], stderr=stderr.descriptor, check=True)
    assert stderr.reason() == "Failed: no class"
    assert capfd.readouterr().err == shown


def test_what_a_jvm_writes_while_it_is_ended_is_for_debugging_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody has to do anything about it, and it is not lost; secrets are hidden there too."""
    remember_setting("geheim-at-the-end", is_secret=True, over_rest=False)
    with capture_logs() as logs:
        with quietly() as stderr:
            stderr.end_begins()
            subprocess.run(["sh", "-c", "printf 'EOF geheim-at-the-end' >&2"], stderr=stderr.descriptor, check=True)
        assert stderr.reason() == "EOF geheim-at-the-end"
    assert [(entry["log_level"], entry["line"].rstrip()) for entry in logs] == [("debug", "EOF [hidden]")]
    assert capfd.readouterr().err == ""


def test_no_line_of_the_jvm_shows_a_secret(capfd: pytest.CaptureFixture[str]) -> None:
    """The worker knows all of them; a task's process, which logs through the JVM, may not."""
    remember_setting("geheim-of-the-jvm", is_secret=True, over_rest=False)
    with quietly() as stderr:
        subprocess.run(["sh", "-c", "printf 'it is geheim-of-the-jvm \\377' >&2"], stderr=stderr.descriptor, check=True)
    for thread in threading.enumerate():
        if thread.name == "jvm-stderr":
            thread.join(10)
    assert capfd.readouterr().err.startswith("it is [hidden] ")


_USAGE = [
    "",
    "Usage: spark-submit [options] <app jar | python file | R file> [app arguments]",
    "Options:",
    "  --master M",
]
_NO_MEMORY = "There is insufficient memory for the Java Runtime Environment to continue"
_IVY = "java.lang.IllegalArgumentException: basedir must be absolute"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ["Invalid heap size: -Xmx1x", "Error: Could not create the Java Virtual Machine."],
            "Invalid heap size: -Xmx1x",
        ),
        (
            ["Error: Could not find or load main class a.b", "Caused by: java.lang.ClassNotFoundException: a.b"],
            "Could not find or load main class a.b",
        ),
        (
            ["Error occurred during initialization of VM", "Could not reserve enough space"],
            "Could not reserve enough space",
        ),
        (["OpenJDK 64-Bit Server VM warning: INFO: os::commit failed", "#", f"# {_NO_MEMORY}."], _NO_MEMORY),
        (["Picked up JAVA_TOOL_OPTIONS: -Xno", "Unrecognized option: -Xno"], "Unrecognized option: -Xno"),
        (["Error: Unrecognized option: --nonsense", *_USAGE], "Unrecognized option: --nonsense"),
        (["Using Spark's log4j profile", f'Exception in thread "main" {_IVY}', "\tat org.apache.ivy.util"], _IVY),
        (["[0.083s][warning][os,thread] Failed to start thread: EAGAIN"], "Failed to start thread: EAGAIN"),
        (["Welcome to Spark", "version 4.2.0"], "version 4.2.0"),
        ([], None),
    ],
)
def test_one_line_says_why_a_jvm_has_ended(lines: list[str], reason: str | None) -> None:
    """It is found among what stands around it: stack traces, usages, what the JVM says of every such end."""
    assert reason_in(f"{line}\n" for line in lines) == reason
