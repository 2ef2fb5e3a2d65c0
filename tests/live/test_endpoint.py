"""A URL becomes an endpoint, or an error that says what to write."""

import pytest

from tests.openai_service import Certificate, Service, served, server_tls
from twofold.core.errors import ValueRefusedError
from twofold.live.loads.endpoint import Reached, reach
from twofold.live.loads.loader import Prompt

pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")
pytest.importorskip("uvloop", reason="needs the extra [live]: `make extras`")

PROMPT = Prompt("0123456789", 5)


def test_a_bare_url_finds_the_first_model_the_completions_and_the_servers_count() -> None:
    with served(Service()) as service:
        found = reach(service.url, PROMPT)
        assert found == reach(f"{service.url}/v1/", PROMPT) == reach(f"{service.url}/v1/completions", PROMPT)
    assert found.endpoint.url == f"{service.url}/v1/completions"
    assert (found.endpoint.model, found.endpoint.is_chat, found.prompt_tokens) == ("first", False, 5)


def test_a_chat_is_asked_where_there_are_no_completions_or_where_it_is_named() -> None:
    with served(Service(apis=("chat/completions",))) as service:
        found = reach(service.url, PROMPT, model="second")
    assert found.endpoint.is_chat and found.endpoint.model == "second"
    assert service.asked[0]["messages"] == [{"role": "user", "content": PROMPT.text}]
    with served(Service()) as service:
        assert reach(f"{service.url}/v1/chat/completions", PROMPT).endpoint.is_chat
        assert reach(service.url, PROMPT, api="chat").endpoint.is_chat
    assert set(service.paths) == {"/v1/chat/completions"}


def test_usage_is_left_out_where_a_server_does_not_know_it() -> None:
    with served(Service(unknown_fields=("stream_options",))) as service:
        found = reach(service.url, PROMPT)
    assert found.prompt_tokens is None and found.endpoint.also == ()


def refused(service: Service, **asked: object) -> ValueRefusedError:
    with pytest.raises(ValueRefusedError) as caught:
        reach(service.url, PROMPT, **asked)  # type: ignore[arg-type]
    return caught.value


def test_a_key_that_is_missing_or_wrong_names_the_variable() -> None:
    with served(Service(key="right")) as service:
        missing = refused(service)
        assert "asks for a key (401)" in missing.message and "--key-env" in missing.hint
        wrong = refused(service, key="wrong", key_variable="OUR_KEY")
        assert "`OUR_KEY`" in wrong.message and "OUR_KEY" in wrong.hint and "wrong" not in str(wrong)
        assert reach(service.url, PROMPT, key="right").endpoint.model == "first"


def test_what_answers_no_prompt_is_told_with_its_answer() -> None:
    with served(Service(apis=())) as service:
        assert "404" in refused(service).message
    with served(Service(statuses=(500,))) as service:
        assert "500" in (said := refused(service).message) and "not now" in said
    with served(Service(models=())) as service:
        assert "lists no model" in refused(service).message
    with served(Service(streams=False)) as service:
        assert "without a stream" in refused(service).message
    with served(Service(unknown_fields=("ignore_eos",))) as service:
        assert "ignore_eos" in refused(service, ignores_end=True).message


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:9", "Connection refused"),
        ("http://nowhere.invalid", "cannot be reached"),
        ("ftp://127.0.0.1", "no URL"),
        ("127.0.0.1:8000", "no URL"),
        ("http://127.0.0.1:99999", "no URL"),
        ("http://user:secret@127.0.0.1", "a key does not belong"),
    ],
)
def test_urls_that_lead_nowhere_say_why(url: str, says: str) -> None:
    error = refused(Service(url=url))
    assert says in error.message and error.hint and "secret" not in str(error)


def test_a_certificate_that_is_not_trusted_asks_for_its_issuer_and_takes_it(certificate: Certificate) -> None:
    with served(Service(), server_tls(certificate)) as service:
        error = refused(service)
        assert "certificate" in error.message and "--ca" in error.hint
        found: Reached = reach(service.url, PROMPT, trusted=certificate.authority)
        assert found.endpoint.trusted == certificate.authority
    with served(Service()) as plain:
        error = refused(Service(url=plain.url.replace("http:", "https:")))
        assert "TLS" in error.message
    with pytest.raises(ValueRefusedError, match="no certificates"):
        reach("https://127.0.0.1:9", PROMPT, trusted=certificate.authority.parent)
