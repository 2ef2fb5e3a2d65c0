"""URLs of servers: what is read off them, and that no key in one is ever shown."""

import os
from pathlib import Path

import pytest

from twofold.core.errors import ValueRefusedError
from twofold.live.server_urls import ServerUrl, asking, key_in, server_url, shown_url, trust

SECRET = "sk-7f3a91c2d0"


@pytest.mark.parametrize(
    ("text", "found", "base"),
    [
        ("http://elsewhere:9000/v1", ServerUrl("elsewhere", 9000), "http://elsewhere:9000"),
        ("https://api.example/v1/", ServerUrl("api.example", 443, True), "https://api.example"),
        ("https://h:8443/team/a/v1", ServerUrl("h", 8443, True, "/team/a"), "https://h:8443/team/a"),
        ("https://h/openai/", ServerUrl("h", 443, True, "/openai"), "https://h/openai"),
        ("http://[::1]:8000", ServerUrl("::1", 8000), "http://[::1]:8000"),
    ],
)
def test_a_url_is_a_host_a_port_and_what_stands_before_v1(text: str, found: ServerUrl, base: str) -> None:
    assert server_url(text) == found and found.base == base
    assert server_url(found.base) == found


@pytest.mark.parametrize(
    "text",
    [
        *("elsewhere:80", "ftp://elsewhere", "http://", "http://elsewhere:port", "http://else where"),
        *("http://h:0", "http://h:99999"),
        *(f"https://{SECRET}@h/v1", f"https://user:{SECRET}@h/v1", f"https://h/v1?key={SECRET}"),
        *(f"https://u:{SECRET}/7@h/v1", f"https://{SECRET}?u:x@h/v1", f"https://h/v1?u=@{SECRET}"),
        *(f"https://h/v1#{SECRET}", f"https://user:{SECRET}@h:port/v1", f"h?key={SECRET}", f"{SECRET}@h"),
    ],
)
def test_what_is_no_url_or_holds_a_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        server_url(text)
    assert caught.value.hint and SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "form", ["https://{}@h/v1", "https://u:{}@h/v1", "https://h/v1?api-key={}", "h#{}", "u:{}@h", "//a@{}@h"]
)
def test_no_part_of_a_url_that_may_be_a_key_is_shown(form: str) -> None:
    assert SECRET not in shown_url(form.format(SECRET)) and "h" in shown_url(form.format(SECRET))


def test_a_key_comes_from_the_environment_and_is_named_when_it_is_missing() -> None:
    assert key_in("OURS", {"OURS": f" {SECRET}\n"}) == SECRET and key_in("", {}) == ""
    for held in ({}, {"OURS": ""}, {"OURS": f"{SECRET} {SECRET}"}, {"OURS": "schlüssel"}):
        with pytest.raises(ValueRefusedError, match="`OURS` holds") as caught:
            key_in("OURS", held)
        assert SECRET not in str(caught.value) and "export OURS" in caught.value.hint


def test_requests_carry_the_key_and_are_checked_where_they_go_by_tls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(os.environ, "OURS", SECRET)
    assert asking("", "", tls=False) == {}
    told = asking("OURS", "", tls=True)
    assert told["headers"] == {"authorization": f"Bearer {SECRET}"} and told["ssl"].check_hostname
    (tmp_path / "none.pem").write_text("no certificate")
    for path in (tmp_path / "none.pem", tmp_path / "absent.pem", tmp_path):
        with pytest.raises(ValueRefusedError, match="no certificates"):
            trust(str(path))


def test_a_server_of_our_own_may_have_no_certificate() -> None:
    assert not trust("", own=True).get_ca_certs()
