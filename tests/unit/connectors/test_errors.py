"""Errors of the connectors come back from Spark as what they were."""

from __future__ import annotations

import traceback

import pytest

from compactor.errors import FencedError, KeyfoldError, StorageError, StorageRefusedError
from compactor.spark.errors import KEY, tag, tagging, unwrap
from connectors.errors import EXIT_UNREACHABLE, DataLossError, UnreachableError, exit_code, is_outage
from connectors.runtime.restart_policy import is_retriable


@pytest.mark.parametrize(
    "error",
    [
        DataLossError("lost ${x} <y> \"q\" 'é'\nline", "do"),
        FencedError("newer owner", ""),
        UnreachableError("away", "start it"),
    ],
)
def test_an_error_comes_back_out_of_a_text(error: KeyfoldError) -> None:
    """From a traceback inside another exception's text, the same class, message and action come back."""
    found = unwrap(RuntimeError(f"Job aborted:\n Traceback…\n{error}\n{tag(error)}\n\nDriver stacktrace:"))
    assert type(found) is type(error)
    assert (found.message, found.action) == (error.message, error.action)


def test_a_right_that_a_store_refuses_is_no_outage() -> None:
    """Somebody has to grant it, so the connector is FAILED, as where brokers or a registry refuse one; tried again."""
    error = StorageRefusedError("Could not read it.")
    assert (is_outage(error), is_retriable(error), exit_code(error)) == (False, True, EXIT_UNREACHABLE)
    assert is_outage(StorageError("Could not read it."))


def test_an_error_is_found_along_its_causes() -> None:
    """Causes are followed, an error that is still itself is known, and any other gives None."""
    inner = DataLossError("lost", "do")
    outer = RuntimeError("outer")
    outer.__cause__ = inner
    assert unwrap(outer) is inner
    assert unwrap(RuntimeError("keyfold-error:nonsense")) is None


def test_a_tag_is_in_the_traceback_once() -> None:
    """An error is tagged as it leaves, once, also through two boundaries, and stays what it was."""
    with pytest.raises(DataLossError) as caught, tagging(KEY), tagging(KEY):
        raise DataLossError("lost", "do")
    assert "".join(traceback.format_exception(caught.value)).count("keyfold-error:") == 1
