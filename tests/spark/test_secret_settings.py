"""Secrets in spark.* of a worker file, in a Spark of the test's own: the session's JVM runs already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.cli import ROOT, environment

MARKER = "marker-of-a-secret"

# Gets the marker backwards, so that this process shows it no more than its children.
_SCRIPT = """
import json, os, sys
from pathlib import Path
from connectors.spark.session import SparkStart

marker = sys.argv[1][::-1].encode()

def processes():
    for process in Path("/proc").glob("[0-9]*"):
        try:
            shown = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            yield process.name, (process / "stat").read_text().rpartition(")")[2].split()[1], shown
        except OSError:
            continue

def below(pid, found):
    return [pid, *(one for child, parent, _ in found if parent == pid for one in below(child, found))]

def family():
    found = list(processes())
    mine = below(str(os.getpid()), found)
    return [shown for pid, _, shown in found if pid in mine]

start = SparkStart("local[1]", {"spark.keyfold.password": marker.decode(), "spark.driver.memory": "600m"})
seen = []
while (spark := start.wait(0.05)) is None:
    seen += family()
spark.sparkContext.parallelize([1], 1).count()
seen += family()
left = list(map(str, Path(os.environ["TMPDIR"]).glob("keyfold-spark-*")))
kept = spark.sparkContext.getConf().get("spark.keyfold.password")
spark.stop()
print(json.dumps([any(marker in one for one in seen), any(b"-Xmx600m" in one for one in seen), kept, left]))
"""


def test_a_setting_of_spark_is_on_no_command_line(tmp_path: Path) -> None:
    """No process below a worker shows a value of spark.* in its arguments or environment, at any time; Spark has it.

    Nor does the JVM's start write anything to stderr that nobody can act on.
    """
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, MARKER[::-1]],
        env=environment(TMPDIR=str(tmp_path)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "incubator" not in done.stderr
    shown, heap_as_set, kept, left = json.loads(done.stdout.splitlines()[-1])
    assert (shown, heap_as_set, kept, left) == (False, True, MARKER, [])
