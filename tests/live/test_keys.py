"""Keys: only digests are kept, and what is revoked opens nothing."""

import errno
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.gateway import keys
from twofold.live.gateway.gateway_config import GatewayKey
from twofold.live.gateway.openai_requests import NO_KEY, Caller, caller_of


def asks(ring: keys.KeyRing, secret: str) -> object:
    return caller_of([(b"authorization", b"Bearer " + secret.encode())], ring.tenants())


def looked(path: Path, *configured: GatewayKey) -> keys.KeyRing:
    return keys.KeyRing(configured, str(path))


def test_a_key_opens_for_its_tenant_and_its_text_is_kept_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "state" / "keys.json"
    secret = keys.make_key(path, "blue")
    assert secret not in path.read_text() and path.stat().st_mode & 0o777 == 0o600
    assert asks(looked(path), secret) == Caller("blue", 0)
    assert asks(looked(path), secret + "x") is NO_KEY
    assert sorted(each.name for each in path.parent.iterdir()) == ["keys.json", "keys.json.lock"]


def test_without_any_file_nobody_needs_a_key(tmp_path: Path) -> None:
    assert looked(tmp_path / "none").tenants() is None
    assert keys.KeyRing((), "").tenants() is None


def test_whoever_runs_it_needs_no_tenants_key_and_asks_nobody_for_one(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert keys.KeyRing((), str(path), "ours").tenants() is None
    secret = keys.make_key(path, "blue")
    ring = keys.KeyRing((), str(path), "ours")
    assert asks(ring, "ours") == Caller(keys.OWN_TENANT, 0) and asks(ring, secret) == Caller("blue", 0)
    assert asks(ring, "") is NO_KEY


def test_a_revoked_key_opens_nothing_and_the_others_still_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now_s = tmp_path / "keys.json", [100.0]
    monkeypatch.setattr(keys.time, "monotonic", lambda: now_s[0])
    blue, red = keys.make_key(path, "blue"), keys.make_key(path, "red")
    ring = looked(path)
    assert asks(ring, blue) == Caller("blue", 0)
    assert [each.tenant for each in keys.remove_keys(path, "blue")] == ["blue"]
    os.utime(path, ns=(1, 1))
    now_s[0] += keys.LOOK_EVERY_S
    assert asks(ring, blue) is NO_KEY and asks(ring, red) == Caller("red", 0)
    keys.remove_keys(path, "red")
    os.utime(path, ns=(2, 2))
    now_s[0] += keys.LOOK_EVERY_S
    assert asks(ring, red) is NO_KEY, "the last key that goes does not open the door"


def test_a_file_that_is_lost_or_broken_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now_s = tmp_path / "keys.json", [100.0]
    monkeypatch.setattr(keys.time, "monotonic", lambda: now_s[0])
    secret, ring = keys.make_key(path, "blue"), looked(path)
    assert asks(ring, secret) == Caller("blue", 0)
    path.write_text("{")
    os.utime(path, ns=(1, 1))
    now_s[0] += keys.LOOK_EVERY_S
    assert asks(ring, secret) is NO_KEY
    path.unlink()
    now_s[0] += keys.LOOK_EVERY_S
    assert asks(ring, secret) is NO_KEY


def test_lost_keys_open_nothing_for_a_gateway_that_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    secret = keys.make_key(path, "blue")
    path.unlink()
    with pytest.raises(FileError, match="json` is lost"):
        keys.read_keys(path)
    assert asks(looked(path), secret) is NO_KEY and asks(looked(path), "") is NO_KEY
    anew = keys.make_key(path, "blue")
    assert asks(looked(path), anew) == Caller("blue", 0)
    assert [each.tenant for each in keys.read_keys(path).keys] == ["blue"]


def test_keys_lost_before_the_first_request_are_known_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, now_s = tmp_path / "keys.json", [100.0]
    monkeypatch.setattr(keys.time, "monotonic", lambda: now_s[0])
    keys.make_key(path, "blue")
    ring = looked(path)
    for each in tmp_path.iterdir():
        each.unlink()  # its lock too
    now_s[0] += keys.LOOK_EVERY_S
    assert asks(ring, "") is NO_KEY


def test_a_first_key_that_could_not_be_written_shuts_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(FileError, match="No space left"):
        patched.setattr(keys.os, "fsync", full)
        keys.make_key(path, "blue")
    with pytest.raises(ValueRefusedError):
        keys.remove_keys(path, "blue")
    assert looked(path).tenants() is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("tenant", ["", "  ", "x" * 65, "a\nb", "\0", "a b/../c", "a/b"])
def test_a_name_that_is_none_is_refused_with_what_one_is_made_of(tmp_path: Path, tenant: str) -> None:
    with pytest.raises(ValueRefusedError) as caught:
        keys.make_key(tmp_path / "keys.json", tenant)
    assert "1 to 64 letters, digits" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_a_name_that_a_file_has_already_goes_on_opening(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for tenant in ("ann@site", "team-1_b.c", "münchen"):
        keys.make_key(path, tenant)
    path.write_text(path.read_text().replace("ann@site", "ann of the site"))
    assert keys.read_keys(path).keys[0].tenant == "ann of the site"
    assert keys.remove_keys(path, "ann of the site")


def test_what_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    with pytest.raises(ValueRefusedError):
        keys.remove_keys(tmp_path / "keys.json", "blue")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"keys": [{"tenant": "a"}]}',
        '{"keys": [{"tenant":"a","sha256":"x","made":""}]}',
        "\0",
        "[" * 10_000,
    ],
)
def test_a_file_of_something_else_is_no_keys(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(FileError, match="holds no keys") as raised:
        keys.read_keys(tmp_path / "keys.json")
    assert "remove it, and add keys anew" in raised.value.hint  # `keys add` alone reads the same file
    assert ("no JSON from line 1, column 2" in raised.value.message) == (text == "{")
    assert not re.search(r"char \d|codec|Error", raised.value.message)


def test_keys_that_are_added_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with ThreadPoolExecutor(8) as pool:
        secrets = list(pool.map(lambda number: keys.make_key(path, f"t{number}"), range(16)))
    ring = looked(path)
    assert {asks(ring, secret) for secret in secrets} == {Caller(f"t{number}", 0) for number in range(16)}


def test_a_file_that_comes_back_opens_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now_s = tmp_path / "keys.json", [100.0]
    monkeypatch.setattr(keys.time, "monotonic", lambda: now_s[0])
    secret, ring = keys.make_key(path, "blue"), looked(path)
    assert asks(ring, secret) == Caller("blue", 0)
    aside = path.rename(tmp_path / "aside")
    now_s[0] += keys.LOOK_EVERY_S
    assert asks(ring, secret) is NO_KEY
    aside.rename(path)
    now_s[0] += keys.LOOK_EVERY_S
    assert asks(ring, secret) == Caller("blue", 0)
