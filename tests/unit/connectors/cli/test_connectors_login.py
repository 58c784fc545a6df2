"""`keyfold connectors` with a worker that asks who it is, and over a connection that is encrypted."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import bcrypt
import pytest
from typer.testing import CliRunner, Result

from connectors.cli.commands.connectors import PASSWORD_VARIABLE, URL_VARIABLE
from connectors.cli.main import app
from tests.support.cli import connector_file, own_logging
from tests.support.echo_server import echo_server
from tests.support.rest import RestWorker, rest_worker
from tests.support.secured_broker import Authority

PASSWORDS: Final = {"ann": "geheim-4711", "bob": "geheim-4712"}
LOGIN: Final = "next: Give --user NAME; its password is asked for, or taken from KEYFOLD_REST_PASSWORD."


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (URL_VARIABLE, PASSWORD_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RestWorker]:
    """Ann may do everything, bob reads."""
    users = tmp_path / "users"
    roles = {"ann": "admin", "bob": "viewer"}
    hashes = {name: bcrypt.hashpw(PASSWORDS[name].encode(), bcrypt.gensalt(4)).decode() for name in roles}
    users.write_text("".join(f"{name}:{hashes[name]}:{role}\n" for name, role in roles.items()))
    with rest_worker(tmp_path, **{"rest.auth": "basic", "rest.auth.users.file": str(users)}) as found:
        yield found


def asked(*arguments: object, typed: str | None = None) -> Result:
    """Runs `keyfold connectors ARGUMENTS…`, and types what it asks for; no password is ever shown."""
    with own_logging():
        done = CliRunner().invoke(app, ["connectors", *map(str, arguments)], input=typed)
    assert [password for password in PASSWORDS.values() if password in done.output] == []
    return done


def failed(done: Result, code: int) -> str:
    assert (done.exit_code, done.stdout) == (code, ""), done.output
    return done.stderr


@pytest.mark.parametrize("code", [200, 400, 401, 500])
@pytest.mark.parametrize("in_url", [False, True])
def test_what_answers_as_a_worker_cannot_have_the_login_shown(
    code: int, in_url: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an error, a trace or a config, as it was sent or decoded; `asked` looks for the password."""
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORDS["ann"])

    def answer(path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        sent = headers["Authorization"].partition(" ")[2]
        said = f"{sent} {base64.b64decode(sent).decode()} is the login {'x' * 20_000}"
        connector = {"state": "FAILED", "worker_id": "w", "trace": said}
        status = {"message": said, "connector": connector, "tasks": [connector]}
        return code, json.dumps({"topics": said} if path.endswith("config") and code == 200 else status).encode()

    with echo_server(answer) as url:
        if in_url:
            done = asked("show", "c1", "--url", url.replace("://", f"://ann:{PASSWORDS['ann']}@"))
        else:
            done = asked("show", "c1", "--url", url, "--user", "ann")
    assert "[hidden] [hidden] is the login" in " ".join(done.output.split())
    assert base64.b64encode(f"ann:{PASSWORDS['ann']}".encode()).decode()[:12] not in done.output


def test_without_a_user_the_worker_says_nothing(secured: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and how to name one; a password alone is none."""
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORDS["ann"])
    found = failed(asked("list", "--url", secured.url), 2)
    assert found == f"error: User cannot access the resource.\n{LOGIN}\n"


@pytest.mark.parametrize(("user", "password"), [("ann", PASSWORDS["bob"]), ("eve", PASSWORDS["ann"]), ("ann", "")])
def test_a_password_that_is_wrong(
    secured: RestWorker, monkeypatch: pytest.MonkeyPatch, user: str, password: str
) -> None:
    """Exit code 2, and nothing tells whether there is such a user."""
    monkeypatch.setenv(PASSWORD_VARIABLE, password)
    found = failed(asked("list", "--url", secured.url, "--user", user), 2)
    assert found == f"error: User cannot access the resource.\n{LOGIN}\n"


def test_a_password_from_the_environment(secured: RestWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An admin changes what a viewer sees; a viewer that changes something ends with 2 and is told whom to ask as."""
    worker = ("--url", secured.url)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORDS["ann"])
    assert asked("create", connector_file(tmp_path), *worker, "--user", "ann").exit_code == 0
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORDS["bob"])
    done = asked("list", *worker, "--user", "bob")
    assert (done.exit_code, "orders-keeper" in done.stdout) == (0, True)
    found = failed(asked("delete", "orders-keeper", *worker, "--user", "bob"), 2)
    assert "error: The role viewer may only read" in found
    assert "next: Ask as a user with the role admin." in found
    assert secured.herder.names() == ["orders-keeper"]


def test_a_password_is_asked_for(secured: RestWorker) -> None:
    """Where the environment has none: on stderr, so that stdout holds the result alone; without one nothing is sent."""
    done = asked("list", "--json", "--url", secured.url, "--user", "bob", typed=f"{PASSWORDS['bob']}\n")
    assert (done.exit_code, done.stdout.strip()) == (0, "{}")
    assert "Password of bob" in done.stderr
    assert asked("list", "--url", secured.url, "--user", "bob", typed="").exit_code == 1


def test_a_password_behind_the_user_is_refused_unseen() -> None:
    """As curl takes it: it would be in the prompt, and in the list of processes."""
    refused = failed(asked("list", "--user", "bob:S3cretPw99"), 2)
    assert "--user has a colon" in refused
    assert "S3cretPw99" not in refused


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ca")


@contextmanager
def encrypted(folder: Path, authority: Authority, **more: str) -> Iterator[RestWorker]:
    """A worker that listens with HTTPS only, by a certificate of `authority`."""
    pem = str(authority.issue("worker"))
    settings = {
        "listeners": "https://127.0.0.1:0",
        "listeners.https.ssl.certificate.location": pem,
        "listeners.https.ssl.key.location": pem,
        **more,
    }
    with rest_worker(folder, **settings) as found:
        yield found


def test_https(tmp_path: Path, authority: Authority) -> None:
    """--cacert names who has signed the worker's certificate; signed by anyone else it is no worker: exit code 4."""
    other = Authority(tmp_path / "other")
    with encrypted(tmp_path, authority) as worker:
        done = asked("list", "--json", "--url", worker.url, "--cacert", authority.certificate)
        assert (done.exit_code, done.stdout.strip()) == (0, "{}")
        for url in (worker.url, worker.url.replace("https", "HTTPS")):
            for arguments in ((), ("--cacert", other.certificate)):
                found = failed(asked("list", "--url", url, *arguments), 4)
                assert f"No worker answers at {url}: [SSL: CERTIFICATE_VERIFY_FAILED]" in found


def test_https_with_a_certificate_of_ones_own(tmp_path: Path, authority: Authority) -> None:
    """--cert and --key show it, or --cert alone where the key is in the same file; without it nothing is answered."""
    mine = authority.issue("client")
    key, cert = tmp_path / "client.key", tmp_path / "client.crt"
    for path, kind in ((key, "PRIVATE KEY"), (cert, "CERTIFICATE")):
        path.write_text("".join(part for part in _parts(mine.read_text()) if kind in part))
    more = {"ssl.client.auth": "required", "listeners.https.ssl.ca.location": str(authority.certificate)}
    with encrypted(tmp_path, authority, **more) as worker:
        trusting = ("list", "--json", "--url", worker.url, "--cacert", authority.certificate)
        for options in (("--cert", mine), ("--cert", cert, "--key", key)):
            done = asked(*trusting, *options)
            assert (done.exit_code, done.stdout.strip()) == (0, "{}"), done.output
        assert f"No worker answers at {worker.url}" in failed(asked(*trusting), 4)
        assert f"--cert {cert} cannot be used: it does not hold" in failed(asked(*trusting, "--cert", cert), 2)
        other = authority.issue("other")
        wrong = failed(asked(*trusting, "--cert", cert, "--key", other), 2)
        assert f"--key {other} cannot be used: it is not the key of --cert" in wrong
        assert f"--key {key} belongs to no certificate" in failed(asked(*trusting, "--key", key), 2)


def _parts(pem: str) -> list[str]:
    """Returns the keys and certificates of a file, each with its lines."""
    return [f"-----BEGIN{part}" for part in pem.split("-----BEGIN")[1:]]


def test_https_of_another_host(tmp_path: Path, authority: Authority) -> None:
    """A certificate is good for the address that stands in it only."""
    with encrypted(tmp_path, authority) as worker:
        url = worker.url.replace("127.0.0.1", "localhost")
        assert "CERTIFICATE_VERIFY_FAILED" in failed(asked("list", "--url", url, "--cacert", authority.certificate), 4)


def test_http_where_the_worker_has_https(tmp_path: Path, authority: Authority) -> None:
    """Nothing is sent in the clear to such a worker that it would answer: exit code 4."""
    with encrypted(tmp_path, authority) as worker:
        url = worker.url.replace("https", "http")
        assert f"No worker answers at {url}" in failed(asked("list", "--url", url), 4)


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory"), ("", "it holds no certificates"), ("x\n", "it holds no")]
)
def test_certificates_that_cannot_be_used(tmp_path: Path, content: str | None, why: str) -> None:
    """Exit code 2, the file, and what is wrong with it; nobody is asked."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    found = failed(asked("list", "--url", "https://127.0.0.1:1", "--cacert", file), 2)
    assert f"error: --cacert {file} cannot be used: {why}" in found
    assert "next: Name a file in PEM." in found


def test_a_password_in_the_address_is_not_shown() -> None:
    """It may stand there, and is hidden in what is said of the address."""
    found = failed(asked("list", "--url", f"http://ann:{PASSWORDS['ann']}@127.0.0.1:1"), 4)
    assert "No worker answers at http://[hidden]@127.0.0.1:1: " in found
