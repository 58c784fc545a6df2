"""What docker/compose.yaml runs, as processes of this machine: the image's folders, commands and environment."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from compose_spec import PyCompose

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.jvm.java import find_java
from tests.support.dashboards import DOCKER, read_yaml
from tests.support.image_tree import JAVA_BYTES, bytes_of, install, run_step
from tests.support.kafka import end_offsets, wait_until
from tests.watch.prometheus import TIMEOUT_S, Prometheus

pytestmark = pytest.mark.timeout(600)

FLIGHTS = 336_776
WORK_S = 240.0
"""Within so long the worker has folded the demo's records and published them, on a busy machine too."""

HTML = {"Accept": "text/html"}


class Image(NamedTuple):
    """The image's folders, in `folder`; `broker` is the service of that name, `port` the worker's."""

    folder: Path
    broker: str
    port: int

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, as `docker compose exec` does."""
        return subprocess.run(
            [self.told(word) for word in command],
            env=self.environment(**environment),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=WORK_S,
        )

    def told(self, text: str) -> str:
        """Puts this machine's places into what the files say of the containers."""
        places = {
            "broker:9092": self.broker,
            "0.0.0.0:8083": f"0.0.0.0:{self.port}",
            "/usr/local/share/keyfold": str(DOCKER),
            "/etc/keyfold": str(self.folder / "etc"),
            "/var/lib/keyfold": str(self.folder / "data"),
        }
        for said, here in places.items():
            text = text.replace(said, here)
        return text

    def environment(self, **more: str) -> dict[str, str]:
        """The image's variables, and the address of the worker, of which 8083 may be taken here."""
        programs = [self.folder / "keyfold" / "bin", self.folder / "java" / "bin"]
        own = {
            "JAVA_HOME": str(self.folder / "java"),
            "PATH": os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(self.folder / "home"),
            "KEYFOLD_REST_URL": f"http://127.0.0.1:{self.port}",
        }
        return own | {name: self.told(value) for name, value in more.items()}


def _services() -> dict[str, Any]:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    services: dict[str, Any] = PyCompose.from_yaml(text).to_dict()["services"]
    return services


@pytest.fixture(scope="module")
def image(broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image's folders by its own steps, and the files of /etc/keyfold."""
    folder = tmp_path_factory.mktemp("image")
    for name in ("etc", "home", "data", "src"):
        (folder / name).mkdir()
    run_step("slim", install(folder / "src", folder / "keyfold"))
    run_step("java", folder / "java", STEPS_JAVA=str(Path(find_java()).resolve().parents[1]))
    made = Image(folder, broker.bootstrap, free_port())
    for name in ("worker.json", "flights.json"):
        (folder / "etc" / name).write_text(made.told((DOCKER / name).read_text(encoding="utf-8")))
    return made


@pytest.fixture(scope="module")
def loaded(image: Image) -> Image:
    """Service `load` has ended well."""
    done = image.run(*_services()["load"]["entrypoint"])
    assert done.returncode == 0, done.stderr
    assert f"{FLIGHTS:,} records sent" in done.stdout
    return image


@pytest.fixture(scope="module")
def url(loaded: Image) -> Iterator[str]:
    """Where service `worker` listens, once it has published what the topic holds."""
    instruction = re.search(r"^CMD \[(.*)\]$", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert instruction is not None
    command = ["keyfold", *(loaded.told(word) for word in re.findall(r'"([^"]*)"', instruction[1]))]
    environment = loaded.environment(**_services()["worker"]["environment"])
    log = loaded.folder / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=loaded.folder, stdout=output, stderr=output)
        try:
            address = f"http://127.0.0.1:{loaded.port}"
            wait_until(lambda: process.poll() is not None or _published(address), "all is published", WORK_S)
            assert process.poll() is None, log.read_text()
            yield address
        finally:
            process.terminate()
            code = process.wait(TIMEOUT_S)
        assert code == 0, log.read_text()


def _published(address: str) -> bool:
    try:
        text = httpx.get(f"{address}/metrics", timeout=TIMEOUT_S).text
    except httpx.TransportError:
        return False
    counts = dict(re.findall(r'^keyfold_(\w+)\{connector="flights"\} (\S+)$', text, re.MULTILINE))
    return float(counts.get("records_read_total", 0)) == FLIGHTS and float(counts["publish_lag_records"]) == 0


def test_java_of_the_image_is_as_small_as_it_is_counted(image: Image) -> None:
    """The bound of the image's size counts at least what step `java` makes."""
    assert bytes_of(image.folder / "java") < JAVA_BYTES


def test_a_topic_that_is_loaded_is_left_as_it_is(loaded: Image) -> None:
    """`up` a second time sends nothing."""
    done = loaded.run(*_services()["load"]["entrypoint"])
    assert (done.returncode, done.stdout.strip()) == (0, "topic flights is there already")
    assert sum(end_offsets(loaded.broker, "flights").values()) == FLIGHTS


def test_the_worker_is_healthy(url: str, loaded: Image) -> None:
    """The image's health check says so."""
    done = loaded.run("python", "/usr/local/share/keyfold/health.py")
    assert done.returncode == 0, done.stdout


def test_page_and_metrics_are_reached_by_their_names(url: str) -> None:
    """A browser of the host asks by 127.0.0.1:8083 and gets the page, Prometheus by worker:8083 and gets metrics."""
    shown = httpx.get(f"{url}/", headers={**HTML, "Host": "127.0.0.1:8083"}, follow_redirects=False)
    assert shown.status_code in (200, 303, 307, 302)
    page = httpx.get(f"{url}/ui/connectors/flights", headers={**HTML, "Host": "127.0.0.1:8083"})
    assert (page.status_code, "RUNNING" in page.text) == (200, True)
    assert httpx.get(f"{url}/metrics", headers={"Host": "worker:8083"}).status_code == 200


def test_commands_of_the_files_head_run(url: str, loaded: Image) -> None:
    """Each command that the compose file names ends with 0, and says something."""
    head = (DOCKER / "compose.yaml").read_text(encoding="utf-8").partition("\nname:")[0]
    commands = re.findall(r"^#   (keyfold .*)$", head, re.MULTILINE)
    assert len(commands) >= 5
    environment = _services()["worker"]["environment"]
    for command in commands:
        done = loaded.run(*command.split(), **environment)
        assert (done.returncode, bool(done.stdout)) == (0, True), f"{command}: {done.stdout}{done.stderr}"


def test_a_fold_needs_nothing_that_was_left_out(url: str, loaded: Image) -> None:
    """A full fold ends well, and no class was missed meanwhile."""
    files = ("/etc/keyfold/flights.json", "--worker", "/etc/keyfold/worker.json")
    done = loaded.run("keyfold", "clean", *files, **_services()["worker"]["environment"])
    assert done.returncode == 0, done.stdout + done.stderr
    log = (loaded.folder / "worker.log").read_text(encoding="utf-8")
    assert not re.search("ClassNotFound|NoClassDefFound|UnsatisfiedLink|ModuleNotFoundError", log)


def test_prometheus_watches_the_worker(url: str, loaded: Image) -> None:
    """With the compose file's settings it finds the worker, under the job that alerts ask for; no alert fires on."""
    (job,) = read_yaml("prometheus", "prometheus.yml")["scrape_configs"]
    with Prometheus(loaded.folder / "prometheus", f"127.0.0.1:{loaded.port}") as prometheus:
        up = f'up{{job="{job["job_name"]}"}} == 1'
        wait_until(lambda: prometheus.now(up), "the worker is up", TIMEOUT_S)
        read = "keyfold_records_read_total"
        wait_until(lambda: prometheus.now(read), "its metrics are there", TIMEOUT_S)
        assert prometheus.now(read)[0].points[0][1] == FLIGHTS
        # before the first scrape there is no `up`, which is what a worker is that is not found
        wait_until(lambda: not prometheus.firing(), "no alert fires", TIMEOUT_S)
