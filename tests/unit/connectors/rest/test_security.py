"""Who may ask what: users, roles, hosts, origins, sizes, slow clients, certificates; and that no secret comes out."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import bcrypt
import httpx
import psutil
import pytest

from connectors.config.errors import FaultyConfigError
from connectors.config.files import load_worker
from connectors.rest.bounded_requests import HEAD_MAX
from connectors.rest.listeners import ClientLimits, bind
from connectors.rest.security import BODY_MAX
from tests.support.certificates import certificate
from tests.support.cli import worker_file
from tests.support.kafka import wait_until
from tests.support.rest import RestWorker, message, rest_worker
from tests.unit.connectors.rest.test_largest_requests import asked_for_health

SECRET = "geheim-4711"
PASSWORDS = {"ann": "one", "bob": "two"}
HASH = bcrypt.hashpw(b"one", b"$2b$04$" + b"k" * 21 + b"u").decode()
"""The same in each process, as it is in names of tests."""


def users_file(folder: Path, **roles: str) -> Path:
    """A users' file in which each user has the password of PASSWORDS."""
    path = folder / "users"
    hashes = {name: bcrypt.hashpw(PASSWORDS[name].encode(), bcrypt.gensalt(4)).decode() for name in roles}
    path.write_text("# who may ask\n\n" + "".join(f"{name}:{hashes[name]}:{role}\n" for name, role in roles.items()))
    return path


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RestWorker]:
    """Ann may do everything, bob reads."""
    path = users_file(tmp_path, ann="admin", bob="viewer")
    with rest_worker(tmp_path, **{"rest.auth": "basic", "rest.auth.users.file": str(path)}) as found:
        yield found


@pytest.mark.parametrize(
    ("auth", "codes"),
    [
        (None, (401, 401, 401)),
        (("ann", "two"), (401, 401, 401)),
        (("eve", "one"), (401, 401, 401)),
        (("bob", "two"), (200, 403, 403)),
        (("ann", "one"), (200, 201, 202)),
    ],
)
def test_roles(secured: RestWorker, auth: tuple[str, str] | None, codes: tuple[int, ...]) -> None:
    """A viewer reads; only an admin changes anything; everyone may ask how the worker is."""
    for name in ("a", "b"):  # the second time the password is known to be right
        body = {"connector.class": "CompactedTopic", "topics": name}
        found = (
            secured.ask("GET", "/connectors", auth=auth),
            secured.ask("PUT", f"/connectors/{name}/config", json=body, auth=auth),
            secured.ask("PUT", f"/connectors/{name}/pause", auth=auth),
        )
        assert tuple(one.status_code for one in found) == codes
        assert all(one.json()["error_code"] == one.status_code for one in found if one.status_code >= 400)
    assert secured.ask("GET", "/health").status_code == 200
    if codes[0] == 401:
        assert found[0].headers["www-authenticate"] == 'Basic realm="keyfold"'


@pytest.mark.parametrize("header", ["Basic", "Basic ???", "Basic YW5u", "Bearer x", "Basic /w=="])
def test_credentials_that_are_none(secured: RestWorker, header: str) -> None:
    """Whatever the header holds, it is 401 and no defect."""
    assert secured.ask("GET", "/connectors", headers={"Authorization": header}).status_code == 401


def test_a_mark_at_the_beginning_is_no_part_of_a_name(tmp_path: Path) -> None:
    """Windows' editors write one."""
    path = tmp_path / "users"
    path.write_text(f"ann:{HASH}:admin\n", encoding="utf-8-sig")
    with rest_worker(tmp_path, **{"rest.auth": "basic", "rest.auth.users.file": str(path)}) as worker:
        assert worker.ask("GET", "/connectors", auth=("ann", "one")).status_code == 200


def test_users_change_while_the_worker_runs(secured: RestWorker, tmp_path: Path) -> None:
    """The file is read again: a password that was taken away lets nobody in any more."""
    assert secured.ask("GET", "/connectors", auth=("bob", "two")).status_code == 200
    users_file(tmp_path, ann="admin")
    assert secured.ask("GET", "/connectors", auth=("bob", "two")).status_code == 401
    assert secured.ask("GET", "/connectors", auth=("ann", "one")).status_code == 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ann", "line 1: a line is NAME:HASH:ROLE"),
        ("ann:one:admin", "line 1: a line is NAME:HASH:ROLE"),
        (f"\nann:{HASH}:root", "line 2: a line is NAME:HASH:ROLE"),
        ("ann:$2b$04$x:admin", "line 1: a line is NAME:HASH:ROLE"),
        (f"ann:$2b$04${'z' * 53}:admin", "line 1: a line is NAME:HASH:ROLE"),
        (f"ann:{HASH.replace('$04$', '$32$')}:admin", "line 1: a line is NAME:HASH:ROLE"),
        (f"ann:{HASH.replace('$04$', '$31$')}:admin", "line 1: its hash has the cost 31, at most 14 is allowed"),
        (f"ann:{HASH.replace('$04$', '$15$')}:admin", "line 1: its hash has the cost 15, at most 14 is allowed"),
        (f"ann:{HASH}:viewer\n\nbob:{HASH}:admin\nann:{HASH}:admin", "line 4: it has the user of line 1"),
        (f"ann:{HASH}:viewer", "has no user with the role admin"),
        ("", "has no user with the role admin"),
    ],
)
def test_a_users_file_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """The worker does not start over it, and the message shows no hash."""
    path = tmp_path / "users"
    path.write_text(text)
    settings = {"rest.auth": "basic", "rest.auth.users.file": str(path)}
    with pytest.raises(FaultyConfigError) as raised, rest_worker(tmp_path, **settings):
        pass
    assert str(raised.value).startswith("worker: rest.auth.users.file: ")
    assert said in str(raised.value)
    assert "$2b$" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listeners": "http://0.0.0.0:1"}, "can be reached from other machines; set rest.auth=basic"),
        ({"listeners": "http://:1"}, "can be reached from other machines"),
        ({"admin.listeners": "http://10.0.0.1:1"}, "admin.listeners: "),
        ({"rest.auth": "basic"}, "rest.auth.users.file: missing"),
        ({"rest.auth.users.file": "x"}, "has no effect without rest.auth=basic"),
        ({"listeners": "https://127.0.0.1:1"}, "listeners.https.ssl.certificate.location: missing"),
        ({"ssl.client.auth": "required"}, "listeners.https.ssl.ca.location: missing"),
        ({"connectors.watch": "true"}, "has no effect without connectors.dir"),
        ({"connectors.dir": "nowhere"}, "is no folder"),
    ],
)
def test_settings_that_need_others(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    """Each names its key, and what to set."""
    with pytest.raises(FaultyConfigError) as raised:
        load_worker(worker_file(tmp_path, **settings))
    assert said in str(raised.value)


@pytest.mark.parametrize("auth", ["none", "basic"])
def test_a_listener_for_other_machines_needs_a_decision(tmp_path: Path, auth: str) -> None:
    """`none` is one, too."""
    more = {"rest.auth.users.file": "users"} if auth == "basic" else {}
    load_worker(worker_file(tmp_path, **{"listeners": "http://0.0.0.0:0", "rest.auth": auth, **more}))


def test_a_port_in_use_names_its_key(tmp_path: Path) -> None:
    """Before anything else starts."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = load_worker(worker_file(tmp_path, listeners=f"http://127.0.0.1:{port}"))
        with pytest.raises(FaultyConfigError, match=f'listeners: "http://127.0.0.1:{port}" cannot be listened on'):
            bind(config)


@pytest.mark.parametrize(("host", "code"), [("localhost", 200), ("127.0.0.1", 200), ("evil.example", 400)])
def test_a_loopback_listener_knows_its_hosts(worker: RestWorker, host: str, code: int) -> None:
    """A page of the web that lets its own name lead to 127.0.0.1 gets nothing (DNS rebinding)."""
    assert worker.ask("GET", "/connectors", headers={"Host": f"{host}:8083"}).status_code == code


OTHERS: Final = {"listeners": "http://0.0.0.0:0", "rest.auth": "none"}


@pytest.mark.parametrize(
    ("host", "settings", "code"),
    [
        ("evil.example", {}, 400),
        ("127.0.0.1.nip.example", {}, 400),
        ("evil.example.", {}, 400),
        ("10.1.2.3", {}, 200),
        ("[fd00::1]", {}, 200),
        ("worker", {}, 200),
        (socket.gethostname(), {}, 200),
        ("keyfold.data.svc", {}, 200),
        ("keyfold.data.svc.cluster.local", {}, 200),
        ("Keyfold.example", {"rest.advertised.host.name": "keyfold.example"}, 200),
        ("evil.example", {"rest.advertised.host.name": "keyfold.example"}, 400),
    ],
)
def test_a_listener_without_log_ins_knows_its_hosts(
    tmp_path: Path, host: str, settings: dict[str, str], code: int
) -> None:
    """Other machines reach it under names that no page of the web can have, and under the one that is set."""
    with rest_worker(tmp_path, **OTHERS, **settings) as worker:
        port = worker.url.rpartition(":")[2]
        page = {"Host": f"{host}:8083", "Origin": f"http://{host}:8083"}
        for method, path in (("GET", "/connectors"), ("PUT", "/connectors/a/pause")):
            answer = httpx.request(method, f"http://127.0.0.1:{port}{path}", headers=page)
            assert (answer.status_code == 400) is (code == 400)
        if code == 400:
            assert "rest.advertised.host.name" in answer.text


def test_other_origins_are_not_answered_unless_they_are_named(tmp_path: Path) -> None:
    """No CORS by itself; those of access.control.allow.origin."""
    asked = {"Origin": "https://ui.example", "Access-Control-Request-Method": "POST"}
    with rest_worker(tmp_path) as worker:
        assert "access-control-allow-origin" not in worker.ask("GET", "/connectors", headers=asked).headers
    with rest_worker(tmp_path, **{"access.control.allow.origin": "https://ui.example"}) as worker:
        found = worker.ask("OPTIONS", "/connectors", headers=asked)
        assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, "https://ui.example")
        other = worker.ask("GET", "/connectors", headers={"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("origin", "code"),
    [(None, 201), ("https://ui.example", 201), ("own", 201), ("https://other.example", 403), ("null", 403)],
)
def test_a_page_of_the_web_changes_nothing(tmp_path: Path, origin: str | None, code: int) -> None:
    """A browser sends a POST without a content type to any address unasked, and its page needs no answer."""
    with rest_worker(tmp_path, **{"access.control.allow.origin": "https://ui.example"}) as worker:
        headers = {} if origin is None else {"Origin": worker.url if origin == "own" else origin}
        body = b'{"name": "a", "config": {"connector.class": "CompactedTopic", "topics": "t"}}'
        assert worker.ask("POST", "/connectors", content=body, headers=headers).status_code == code
        assert worker.ask("GET", "/connectors", headers=headers).json() == ["a"] * (code == 201)


@pytest.mark.parametrize("name", ["ann", "eve", "eva"])
def test_how_long_a_refusal_takes_tells_no_names(
    secured: RestWorker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """For a name that there is not a hash of the file is checked, always the same one: hashes differ in their cost."""
    checked: list[bytes] = []

    def checkpw(_: bytes, hashed: bytes) -> bool:
        checked.append(hashed)
        return False

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    for _ in range(2):
        assert secured.ask("GET", "/connectors", auth=(name, "x" * 100)).status_code == 401
    assert len(set(checked)) == 1
    assert checked[0].startswith(b"$2b$04$")


def _guess(url: str) -> None:
    httpx.get(f"{url}/connectors", auth=("ann", "two"), timeout=60)


def test_who_guesses_takes_one_thread(secured: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords are checked one after another, and users who are known already do not wait for it."""
    assert secured.ask("GET", "/connectors", auth=("ann", "one")).status_code == 200
    inside: list[int] = []
    most: list[int] = []
    go_on = threading.Event()

    def checkpw(_: bytes, __: bytes) -> bool:
        inside.append(1)
        most.append(len(inside))
        go_on.wait(60)
        inside.pop()
        return False

    monkeypatch.setattr(bcrypt, "checkpw", checkpw)
    guesses = [threading.Thread(target=_guess, args=(secured.url,)) for _ in range(50)]
    for guess in guesses:
        guess.start()
    wait_until(lambda: bool(most), "a guess is checked")
    for path in ("/connectors", "/health"):
        assert secured.ask("GET", path, auth=("ann", "one")).status_code == 200
    go_on.set()
    for guess in guesses:
        guess.join()
    assert set(most) == {1}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (f"PUT /connectors/{'a' * (2 * HEAD_MAX)}/config HTTP/1.1\r\n", b"400"),
        (f"GET /connectors?expand={'a' * (2 * HEAD_MAX)} HTTP/1.1\r\n", b"400"),
        (f"GET /connectors HTTP/1.1\r\nX: {'a' * (2 * HEAD_MAX)}\r\n", b"400"),
        ("GET /connectors HTTP/1.1\r\n" + "X: a\r\n" * HEAD_MAX, b"400"),
        (f"PUT /connectors/a/config?{'a' * (HEAD_MAX - 1_000)} HTTP/1.1\r\nContent-Length: 0\r\n", b"400"),
        (f"GET /connectors?expand={'a' * (HEAD_MAX - 1_000)} HTTP/1.1\r\n", b"200"),
        ("GET /connectors HTTP/1.1\r\n" + "X: a\r\n" * 99, b"200"),
    ],
    ids=["path", "query", "header", "headers", "long query", "long list", "many headers"],
)
def test_heads_have_a_limit(worker: RestWorker, head: str, status: bytes) -> None:
    """Path, query and headers together; others are answered meanwhile."""
    host, port = worker.url.removeprefix("http://").split(":")
    with asked_for_health(worker) as took, socket.create_connection((host, int(port)), timeout=20) as client:
        with suppress(OSError):  # it may be ended before all of it is sent
            client.sendall(f"{head}Host: localhost\r\n\r\n".encode())
        answer = client.recv(1_000)
    assert answer.split(b" ")[1] == status
    assert max(took) < 2


@pytest.mark.parametrize(
    "request_head", ["no request", "GET / HTTP/1.1\r\nHost: a\r\nHost: b", "GET / HTTP/1.1\r\nUpgrade: websocket"]
)
def test_what_a_client_does_wrong_is_not_logged(
    worker: RestWorker, request_head: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told; strangers could else fill the disk with lines, without a password."""
    host, port = worker.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(f"{request_head}\r\nConnection: close, Upgrade\r\nHost: localhost\r\n\r\n".encode())
        assert client.recv(1_000).startswith(b"HTTP/1.1 ")
    assert [record.message for record in caplog.records if record.levelname != "DEBUG"] == []


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_have_a_limit(worker: RestWorker, chunked: bool) -> None:
    """Its length is believed, or counted while it comes."""
    text = b"x" * (BODY_MAX + 1)
    headers = {"Content-Type": "application/json"}
    content = (part for part in (text, b"y")) if chunked else text
    found = worker.ask("POST", "/connectors", content=content, headers=headers)
    assert (found.status_code, found.json()["error_code"]) == (413, 413)
    assert worker.ask("GET", "/connectors").json() == []


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET /connectors HTTP/1.1\r\nHost: localhost\r\n",
        "POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    ],
)
@pytest.mark.parametrize("limits", [ClientLimits(head_s=0.3)])
def test_slow_clients_are_ended(worker: RestWorker, sent: str) -> None:
    """One that sends nothing, half a head, or half a body keeps its connection for a while only."""
    host, port = worker.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as slow:
        slow.sendall(sent.encode())
        began = time.monotonic()
        while slow.recv(1000):
            pass
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("limits", [ClientLimits(take_s=1.0)])
def test_a_client_that_reads_no_answer_is_ended(worker: RestWorker) -> None:
    """It would keep its connection for ever, and a few hundred of its kind all that there are; others go on."""
    host, port = worker.url.removeprefix("http://").split(":")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        deaf.connect((host, int(port)))
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
        wait_until(lambda: _served(int(port)) == 1, "it is served")
        wait_until(lambda: _served(int(port)) == 0, "it is ended")
        assert worker.ask("GET", "/openapi.json").json()["openapi"]


def _served(port: int) -> int:
    """Counts the connections that the worker, which is this process, has open."""
    return sum(one.laddr.port == port and bool(one.raddr) for one in psutil.Process().net_connections("tcp"))


@pytest.mark.parametrize("limits", [ClientLimits(head_s=0.3)])
def test_a_client_that_keeps_its_connection_is_not_slow(worker: RestWorker) -> None:
    """What counts is a request that does not get done."""
    with httpx.Client(base_url=worker.url) as client:
        first = client.get("/connectors")
        time.sleep(0.6)  # longer than a request may take: this is what is tried
        streams = [one.extensions["network_stream"] for one in (first, client.get("/connectors"))]
        assert streams[0].get_extra_info("client_addr") == streams[1].get_extra_info("client_addr")


def test_admin_has_a_listener_of_its_own(tmp_path: Path) -> None:
    """/admin is there only, and nothing else is; an empty setting switches it off."""
    with rest_worker(tmp_path, **{"admin.listeners": "http://127.0.0.1:0"}) as worker:
        assert worker.ask("GET", "/admin/loggers").status_code == 404
        assert httpx.get(f"{worker.admin_url}/admin/loggers").status_code == 200
        assert httpx.get(f"{worker.admin_url}/connectors").status_code == 404
    with rest_worker(tmp_path, **{"admin.listeners": ""}) as worker:
        assert worker.ask("GET", "/admin/loggers").status_code == 404


@pytest.mark.parametrize("clients", ["none", "required"])
def test_https(tmp_path: Path, clients: str) -> None:
    """With a certificate of its own, and of the client where that is asked for."""
    (key, own), (client_key, client) = certificate(tmp_path, "worker"), certificate(tmp_path, "client")
    settings = {
        "listeners": "https://127.0.0.1:0",
        "listeners.https.ssl.certificate.location": str(own),
        "listeners.https.ssl.key.location": str(key),
        "listeners.https.ssl.ca.location": str(client),
        "ssl.client.auth": clients,
    }
    with rest_worker(tmp_path, **settings) as worker:
        trust = ssl.create_default_context(cafile=str(own))
        if clients == "required":
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.ConnectError)):
                httpx.get(f"{worker.url}/connectors", verify=trust)
            trust.load_cert_chain(client, client_key)
        assert httpx.get(f"{worker.url}/connectors", verify=trust).json() == []


@pytest.fixture
def with_variables(tmp_path: Path) -> Iterator[RestWorker]:
    """A worker whose connectors made over REST may use variables of tests."""
    with rest_worker(tmp_path, **{"config.providers.env.param.allowlist.pattern": "TEST_.*"}) as found:
        yield found


def test_no_secret_comes_out(with_variables: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out, behind a placeholder, in JAAS, in an error: whatever is asked, it is not in the answer."""
    worker = with_variables
    monkeypatch.setenv("TEST_SECRET", SECRET)
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
    settings = {
        "consumer.override.sasl.password": SECRET,
        "producer.override.sasl.password": "${env:TEST_SECRET}",
        "admin.override.sasl.jaas.config": jaas,
    }
    made = worker.create("a", **settings)
    assert made.status_code == 201, made.text
    worker.supervisor("a").fail(f"Login failed: sasl.password={SECRET}")
    answers = [made]
    for path in (
        "/connectors/a",
        "/connectors/a/config",
        "/connectors/a/status",
        "/connectors/a/tasks",
        "/connectors/a/tasks/0/status",
        "/connectors?expand=info&expand=status",
        "/health?strict=true",
        "/metrics",
        "/openapi.json",
    ):
        answers.append(worker.ask("GET", path))
        assert answers[-1].status_code in (200, 500)
    bad = {"connector.class": "CompactedTopic", "topics": "t", "tasks.max": "q", **settings}
    answers.append(worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json=bad))
    answers.append(worker.ask("PUT", "/connectors/b/config", json=bad))
    answers.append(worker.create("c", **{"consumer.override.sasl.pasword": SECRET}))
    assert [one.request.url for one in answers if SECRET in one.text] == []
    config = worker.ask("GET", "/connectors/a/config").json()
    assert config["producer.override.sasl.password"] == "${env:TEST_SECRET}"
    assert config["consumer.override.sasl.password"] == "[hidden]"


@pytest.mark.parametrize("how", ["PUT", "PATCH"])
@pytest.mark.parametrize(
    "elsewhere", [{"schema.registry.url": "http://elsewhere:1"}, {"proxy.host": "elsewhere", "proxy.port": "1"}]
)
def test_what_is_hidden_is_not_sent_elsewhere(worker: RestWorker, how: str, elsewhere: dict[str, str]) -> None:
    """Who is not shown a password of a registry cannot have it sent to a registry or a proxy of his own."""
    prefix = "value.converter"
    own = {
        prefix: "keyfold.Avro",
        f"{prefix}.schema.registry.url": "http://registry:8081",
        f"{prefix}.basic.auth.credentials.source": "USER_INFO",
        f"{prefix}.basic.auth.user.info": f"user:{SECRET}",
    }
    assert worker.create("a", **own).status_code == 201
    before = worker.herder.connector("a").spec.config.given
    shown = worker.ask("GET", "/connectors/a/config").json()
    moved = {f"{prefix}.{name}": text for name, text in elsewhere.items()}
    sent = {**(shown if how == "PUT" else {}), **moved}
    answer = worker.ask(how, "/connectors/a/config", json=sent)
    assert answer.status_code == 400
    assert f"{prefix}.basic.auth.user.info: [hidden] stays what it was only as long" in message(answer)
    assert worker.herder.connector("a").spec.config.given == before
    known = {**sent, f"{prefix}.basic.auth.user.info": f"user:{SECRET}"}
    assert worker.ask(how, "/connectors/a/config", json=known).status_code == 200
    assert worker.ask(how, "/connectors/a/config", json={**known, "tasks.max": "2"}).status_code == 200


@pytest.mark.parametrize("how", ["PUT", "PATCH"])
@pytest.mark.parametrize(
    "weaker",
    [
        {"security.protocol": "SASL_PLAINTEXT"},
        {"security.protocol": None},
        {"sasl.mechanisms": "PLAIN", "sasl.mechanism": None},
        {"enable.ssl.certificate.verification": "false"},
        {"ssl.endpoint.identification.algorithm": "none"},
    ],
)
def test_what_is_hidden_is_not_sent_less_protected(worker: RestWorker, how: str, weaker: dict[str, str | None]) -> None:
    """Who is not shown the password of a connector's client cannot have it sent in clear, or to anyone who answers."""
    prefix = "producer.override"
    own = {
        f"{prefix}.security.protocol": "SASL_SSL",
        f"{prefix}.sasl.mechanism": "SCRAM-SHA-512",
        f"{prefix}.sasl.username": "kf",
        f"{prefix}.sasl.password": SECRET,
    }
    assert worker.create("a", **own).status_code == 201
    before = worker.herder.connector("a").spec.config.given
    changes = {f"{prefix}.{name}": text for name, text in weaker.items()}
    shown = {**worker.ask("GET", "/connectors/a/config").json(), **changes}
    sent = changes if how == "PATCH" else {name: text for name, text in shown.items() if text is not None}
    answer = worker.ask(how, "/connectors/a/config", json=sent)
    assert answer.status_code == 400
    assert f"{prefix}.sasl.password: [hidden] stays what it was only as long" in message(answer)
    assert worker.herder.connector("a").spec.config.given == before
    known = {**sent, f"{prefix}.sasl.password": SECRET}
    assert worker.ask(how, "/connectors/a/config", json=known).status_code == 200


def test_what_is_hidden_stays_when_it_is_sent_back(worker: RestWorker) -> None:
    """A client reads a config, changes a key, and sends all of it: the password is what it was."""
    url, place = f"http://user:{SECRET}@host/registry", "value.converter.schema.registry.url"
    own = {"consumer.override.sasl.password": SECRET, "value.converter": "keyfold.Avro", place: url}
    assert worker.create("a", **own).status_code == 201
    shown = worker.ask("GET", "/connectors/a/config").json()
    assert worker.ask("PUT", "/connectors/a/config", json={**shown, "tasks.max": "1"}).status_code == 200
    given = worker.herder.connector("a").spec.config.given
    assert (given["consumer.override.sasl.password"], given["tasks.max"]) == (SECRET, "1")
    assert given[place] == url
    patched = worker.ask("PATCH", "/connectors/a/config", json={"consumer.override.sasl.password": "[hidden]"})
    assert patched.status_code == 200
    assert worker.herder.connector("a").spec.config.given["consumer.override.sasl.password"] == SECRET


@pytest.mark.parametrize(
    "settings",
    [
        {"consumer.override.sasl.password": "[hidden]"},
        {"consumer.override.sasl.oauthbearer.token.endpoint.url": "https://[hidden]@other/"},
    ],
)
def test_what_is_hidden_is_never_taken_for_a_secret(worker: RestWorker, settings: dict[str, str]) -> None:
    """A config of another connector was copied: the secret itself is missing."""
    found = worker.create("a", **settings)
    assert (found.status_code, next(iter(settings)) in found.text) == (400, True)
    assert "stands for a secret that is not known here" in found.text
