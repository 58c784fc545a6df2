"""A Spark that does not start says why, in Sparks of the tests' own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.cli import ROOT, environment

_SCRIPT = """
import json, sys
from compactor.errors import KeyfoldError
from connectors.spark.session import get_session

try:
    get_session("local[1]", json.loads(sys.argv[1]))
except KeyfoldError as error:
    print(json.dumps([type(error).__name__, error.message]))
"""


@pytest.mark.parametrize(
    ("settings", "variables", "said"),
    [
        pytest.param({"spark.driver.memory": "1x"}, {}, "Invalid maximum heap size", id="heap"),
        pytest.param({"spark.driver.memory": "128m"}, {}, "System memory", id="small heap", marks=pytest.mark.long),
        pytest.param(
            {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=x"},
            {},
            "VM option 'TieredStopAtLevel=x'",
            id="option",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {},
            {"PYSPARK_SUBMIT_ARGS": "--nonsense pyspark-shell"},
            "Unrecognized option: --nonsense",
            id="argument",
            marks=pytest.mark.long,
        ),
        pytest.param({}, {"PYSPARK_SUBMIT_ARGS": "--version"}, "Spark's JVM has not started", id="no session"),
    ],
)
def test_a_jvm_that_does_not_start_says_why(settings: dict[str, str], variables: dict[str, str], said: str) -> None:
    """One line of all that it wrote is the error, without a stack trace; a JVM that ends without is not waited for."""
    # Without what a Spark of this process has left there for its own JVM.
    own = {name: text for name, text in environment().items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(settings)],
        env={**own, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    kind, message = json.loads(done.stdout.splitlines()[-1])
    assert (kind, said in message) == ("ConfigError", True), message
    assert "\tat " not in done.stderr
