"""A worker with the connectors of a shop, each of them in another state, and the records that they fold."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tests.support.dead_letters import KEY_OF_VALUE
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.rest_process import RestProcess

LONG_NAME: Final = "a-name-as-long-as-names-get-" + "x" * 172
HOSTILE: Final = '\u202e"><img src=x onerror=alert(1)>\u05e9\u05dc\u05d5\u05dd' + "y" * 300
"""A text that turns the order of what is read, has no place to break, and would be a script if it were not escaped."""

_NO_RESTART: Final = {"restart.backoff.initial.ms": "300000"}
PEOPLE: Final = ("Ada", "Grace", "Katherine", "Edsger", "Barbara", "Tony", "Frances", "Donald")


PUBLISHED_S: Final = 120.0  # with all connectors of the shop on two cores

NAMES: Final = ("orders", "customers", "clicks", "payments", "audit-trail", "stock-2024")
"""The connectors of the shop, without the one of a hostile name."""


def path_of(name: str, page: str = "") -> str:
    """Returns the path of a connector's page."""
    return f"/ui/connectors/{quote(name, safe='')}{page and f'/{page}'}"


class Shop:
    """The running worker, and how its connectors are made."""

    def __init__(self, worker: RestProcess, bootstrap: str, folder: Path, stem: str = "") -> None:
        self.worker = worker
        self.bootstrap = bootstrap
        self.folder = folder
        # What names begin with that another worker on the same brokers has as well.
        self.stem = stem

    @property
    def url(self) -> str:
        """The worker's address."""
        return self.worker.url

    def make(self, name: str, topic: str, state: str = "RUNNING", **settings: Any) -> None:
        """Makes a connector over REST; its settings have underscores for dots."""
        config = {
            "connector.class": "keyfold.CompactedTopic",
            "topics": topic,
            "output.topic.replication.factor": "1",
            "errors.deadletterqueue.topic.replication.factor": "1",
            "tasks.max": "1",
            **{key.replace("_", "."): str(value) for key, value in settings.items()},
        }
        answer = self.worker.ask("POST", "/connectors", json={"name": name, "config": config, "initial_state": state})
        assert answer.status_code == 201, answer.text

    def snapshots(self) -> dict[str, str]:
        """Returns the settings of a connector that takes snapshots if it is asked to."""
        return {"snapshot.location": str(self.folder / "snapshots"), "snapshot.key.format": "bytes",
                "snapshot.value.format": "bytes"}  # fmt: skip

    def aim(self, name: str, state: str) -> None:
        """Has a connector be in a state, and waits until it is."""
        path = {"RUNNING": "resume", "PAUSED": "pause", "STOPPED": "stop"}[state]
        self.worker.ask("PUT", f"/connectors/{quote(name, safe='')}/{path}")
        self.worker.until_state(quote(name, safe=""), state)


def records(first: int, last: int, partitions: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields records of JSON, each key some four times."""
    for number in range(first, last):
        key = number * 7919 % max(1, last // 4)
        value = {"id": key, "customer": PEOPLE[key % len(PEOPLE)], "cents": 100 + number * 37 % 20_000}
        yield key % partitions, f"order-{key}".encode(), json.dumps(value).encode()


def failing(shop: Shop, name: str, record: bytes = b"no JSON at all", *, wait: bool = True) -> str:
    """Returns the name of a connector that has failed by a record; it is made if it is not there."""
    name = f"{shop.stem}{name}"
    if not shop.worker.state(name):
        create_topic(shop.bootstrap, f"{name[:100]}.in", 1, cleanup_policy="delete")
        produce(shop.bootstrap, f"{name[:100]}.in", [(0, b"key", record)])
        shop.make(name, f"{name[:100]}.in", **KEY_OF_VALUE, **_NO_RESTART)
    if wait:
        shop.worker.until_state(name, "FAILED")
    return name


def rejecting(shop: Shop, name: str) -> str:
    """Returns the name of a running connector that keeps records that are no JSON as dead letters, made if need be."""
    name = f"{shop.stem}{name}"
    if not shop.worker.state(name):
        for topic in (f"{name}.in", f"{name}.dead"):
            create_topic(shop.bootstrap, topic, 1, cleanup_policy="delete")
        shop.make(
            name,
            f"{name}.in",
            **KEY_OF_VALUE,
            errors_tolerance="all",
            errors_deadletterqueue_topic_name=f"{name}.dead",
            errors_deadletterqueue_context_headers_enable="true",
        )
    shop.aim(name, "RUNNING")
    return name


def fill(shop: Shop) -> None:
    """Makes the topics and connectors."""
    for topic, partitions, number in (
        ("shop.orders", 4, 4_000),
        ("shop.customers", 2, 600),
        ("shop.clicks", 2, 300),
        ("shop.payments", 1, 20),
        ("shop.audit", 1, 50),
        ("shop.stock", 1, 10),
    ):
        create_topic(shop.bootstrap, topic, partitions, cleanup_policy="delete")
        produce(shop.bootstrap, topic, records(0, number, partitions))
    produce(shop.bootstrap, "shop.payments", [(0, b"payment-1", b"no JSON at all")])
    produce(shop.bootstrap, "shop.clicks", [(0, b"click-%d" % number, b"{broken") for number in range(7)])
    shop.make("orders", "shop.orders", **shop.snapshots(), state_index="always", tasks_max=2)
    shop.make("customers", "shop.customers", **shop.snapshots(), state_index="always")
    shop.make(
        "clicks",
        "shop.clicks",
        **KEY_OF_VALUE,
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="shop.clicks.dead",
        errors_deadletterqueue_context_headers_enable="true",
    )
    shop.make("payments", "shop.payments", **KEY_OF_VALUE, **_NO_RESTART)
    shop.make("audit-trail", "shop.audit", "PAUSED")
    shop.make("stock-2024", "shop.stock", "STOPPED")
    failing(shop, LONG_NAME, HOSTILE.encode(), wait=False)


def tried(shop: Shop, name: str) -> str:
    """Returns the name of a running connector of the worker, made if it is not there, for deeds to be tried on."""
    name = f"{shop.stem}{name}"
    if not shop.worker.state(name):
        create_topic(shop.bootstrap, f"{name[:100]}.in", 2, cleanup_policy="delete")
        produce(
            shop.bootstrap, f"{name[:100]}.in", [(at % 2, b"key-%d" % (at % 9), b"value-%d" % at) for at in range(90)]
        )
        shop.make(name, f"{name[:100]}.in", **shop.snapshots(), state_index="always")
        # what there is to fold, to look up and to take a snapshot of, is what has been published
        path = f"/connectors/{quote(name, safe='')}/offsets"
        wait_until(lambda: len(shop.worker.ask("GET", path).json()["offsets"]) == 2, "it has published", PUBLISHED_S)
    shop.aim(name, "RUNNING")
    return name


@contextmanager
def traffic(shop: Shop) -> Iterator[None]:
    """Sends orders during the block, some each second, as customers do."""
    over = threading.Event()

    def send() -> None:
        number = 4_000
        while not over.wait(1.0):
            produce(shop.bootstrap, "shop.orders", records(number, number + 40 + number % 60, 4))
            number += 100

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
