"""A connector made on the page: checked as it is typed, and made only if it may be."""

from __future__ import annotations

import json

import pytest

from connectors.runtime.status import ConnectorState
from tests.support.browser import browse, send, words
from tests.support.rest import RestWorker

FLAT = json.dumps({"name": "a", "topics": "t"})
WRAPPED = json.dumps({"name": "a", "config": {"connector.class": "keyfold.CompactedTopic", "topics": "t"}})


@pytest.mark.parametrize("text", [FLAT, WRAPPED])
def test_a_connector_is_made_of_its_file_or_of_what_rest_takes(worker: RestWorker, text: str) -> None:
    """The browser is led to its page."""
    answer = send(worker, "/ui/new", fields={"json": text, "state": "STOPPED"})
    assert (answer.status_code, answer.url.path) == (200, "/ui/connectors/a")
    assert "Create: done It was made, and is STOPPED." in words(answer.text)
    assert worker.herder.connector("a").status.state is ConnectorState.STOPPED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1 to mend"),
        ("{", "line 1"),
        ("[]", "1 to mend"),
        ("{}", "The connector has no name."),
        ('{"name": "a", "config": 7}', "config is no JSON object."),
        ('{"name": "a"}', "topics"),
        ('{"name": "a", "topics": "t", "min.cleanable.dirty.ratio": "7"}', "min.cleanable.dirty.ratio"),
        ('{"name": "a", "topics": "t", "min.cleanabel.dirty.ratio": "0.7"}', "min.cleanable.dirty.ratio"),
        ('{"name": "there", "topics": "t"}', "There is a connector there already."),
        ('{"name": "<b>", "topics": "t"}', "1 to mend"),
    ],
)
def test_what_is_wrong_is_said_before_and_when_it_is_made(worker: RestWorker, text: str, said: str) -> None:
    """As it is typed a part of the page says so; the form comes back with what was typed."""
    worker.create("there")
    verdict = send(worker, "/ui/new/check", fields={"json": text})
    assert said in words(verdict.text)
    assert "<html" not in verdict.text
    answer = send(worker, "/ui/new", fields={"json": text})
    assert (answer.status_code, said in words(answer.text)) == (400, True)
    assert worker.herder.names() == ["there"]
    assert "<b>" not in answer.text


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            {"min.cleanable.dirty.ratio": "5"},
            "<li>min.cleanable.dirty.ratio: &#34;5&#34; is not allowed: allowed is a number from 0 to 1.</li>",
        ),
        ({"snapshot.interval.ms": "-7"}, "only at the end of <code>--once</code> and by command"),
        ({"snapshot.interval.ms": "`<b>`"}, "<code>&lt;b&gt;</code>"),
    ],
)
def test_a_fault_is_said_once_beside_its_setting(worker: RestWorker, setting: dict[str, str], said: str) -> None:
    """The value stands in it once, as a command says it, and names of options are shown as code."""
    verdict = send(worker, "/ui/new/check", fields={"json": json.dumps({"name": "a", "topics": "t", **setting})})
    assert said in verdict.text
    assert "Invalid value" not in verdict.text


def test_a_check_makes_nothing(worker: RestWorker) -> None:
    """Without JavaScript the button checks, and the form stays as it is; no broker is asked, and it says so."""
    answer = send(worker, "/ui/new", fields={"json": FLAT, "only": "check"})
    assert (answer.status_code, worker.herder.names()) == (200, [])
    assert "a can be created. Its topics were not looked for: keyfold validate --broker does" in words(answer.text)
    assert "&#34;topics&#34;: &#34;t&#34;" in answer.text


def test_the_example_of_the_form_is_valid(worker: RestWorker) -> None:
    """What a person finds there can be sent as it is."""
    page = browse(worker, "/ui/new").text
    text = page.partition('hx-include="closest form">')[2].partition("</textarea>")[0].replace("&#34;", '"')
    assert "customers can be created." in words(send(worker, "/ui/new/check", fields={"json": text}).text)


def test_a_secret_that_was_typed_is_in_no_message(worker: RestWorker) -> None:
    """What is wrong with it is said without it."""
    text = json.dumps({"name": "a", "topics": "t", "consumer.override.sasl.passwort": "geheim-4711", "x.password": "y"})
    verdict = send(worker, "/ui/new/check", fields={"json": text}).text
    assert "to mend" in verdict
    assert "geheim-4711" not in verdict
