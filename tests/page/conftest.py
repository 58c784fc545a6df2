"""Chromium, and two workers that it looks at: one that anyone may use, and one that asks for a password."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bcrypt
import pytest
from playwright.sync_api import Browser, sync_playwright

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.page.chromium import executable, visiting
from tests.page.hands import HANDS
from tests.page.people import EACH_WAY, Person, Way
from tests.page.shop import Shop, fill, traffic
from tests.support.kafka import wait_until
from tests.support.rest_process import RestProcess

PASSWORD = "open-sesame"
_READY_S = 150.0


@pytest.fixture(scope="package")  # it keeps an event loop, which later tests of the same process would meet
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(playwright))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def shop(browser: Browser, broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A worker of a shop: `payments` has failed, `clicks` has dead letters, `orders` has traffic."""
    folder = tmp_path_factory.mktemp("shop")
    called: dict[str, Any] = {"rest.advertised.host.name": "keyfold-1", "rest.advertised.port": 8083}
    with RestProcess(folder, broker.bootstrap, **called) as worker:
        shop = Shop(worker, broker.bootstrap, folder)
        fill(shop)
        for name, state in (("payments", "FAILED"), ("customers", "RUNNING"), ("orders", "RUNNING")):
            wait_until(lambda name=name, state=state: worker.state(name) == state, f"{name} is {state}", _READY_S)  # type: ignore[misc]
        with traffic(shop):
            yield shop


@pytest.fixture(scope="package")
def guarded(browser: Browser, broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A worker that asks for a password, which `admin` and `viewer` have."""
    folder = tmp_path_factory.mktemp("guarded")
    users = folder / "users"
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    users.write_text(f"admin:{hashed}:admin\nviewer:{hashed}:viewer\n")
    login: dict[str, Any] = {"rest.auth": "basic", "rest.auth.users.file": str(users)}
    with RestProcess(folder, broker.bootstrap, **login) as worker:
        worker.client.auth = ("admin", PASSWORD)
        yield Shop(worker, broker.bootstrap, folder, "guarded-")


@pytest.fixture(params=EACH_WAY)
def person(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Person]:
    """Someone before the page, in each way."""
    way: Way = request.param
    shop: Shop = request.getfixturevalue("guarded" if way.user else "shop")
    with visiting(browser, shop.url, way.look, way.user, PASSWORD) as visit:
        yield Person(visit, shop, way.look, HANDS[way.hand])
