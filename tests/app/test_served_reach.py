"""`up --host --certificate --private-key`: who reaches the gateway, by TLS and with a key.

Real controller and gateway, before a stand-in for a server.
"""

import json
import shutil
import ssl
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("psutil", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("uvicorn", reason="needs the extras [train] and [live]: `make extras`")
pytest.importorskip("tokenizers", reason="needs the extras [train] and [live]: `make extras`")

from tests.app.test_service_by_url import spec_in, trained
from tests.openai_service import Certificate, Service, made_certificate, served, server_tls
from twofold.app.looping import up
from twofold.app.operating import status
from twofold.core.errors import ValueRefusedError
from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings, gateway_digest
from twofold.live.control.supervisor import bring_down
from twofold.live.gateway.keys import keys_beside, make_key
from twofold.live.gateway.reach import Reach
from twofold.live.processes import free_port
from twofold.live.server_urls import trust

assert trained  # the fixture: `up` without minutes of measuring and training
ASKED = {"prompt": "once", "max_tokens": 3, "stream": True}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    return made_certificate(tmp_path_factory.mktemp("tls"))


def ask(url: str, key: str = "", authority: Path | None = None) -> tuple[int, bytes]:
    """Status and body of one streamed request, of whom only the authority is trusted."""
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    asked = urllib.request.Request(f"{url}/v1/completions", json.dumps(ASKED).encode(), headers)
    trusted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), trusted)
    try:
        with opener.open(asked, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.usefixtures("trained")
def test_strangers_reach_it_by_tls_and_with_a_key_and_its_own_load_needs_neither_name_nor_key(
    tmp_path: Path, certificate: Certificate
) -> None:
    state, port = tmp_path / ".twofold", free_port()
    with served(Service(gap_s=0.002)) as there:
        spec = spec_in(tmp_path, f'{{url: "{there.url}/v1", model: second}}')
        key = make_key(keys_beside(state), "blue")
        try:
            page = up(
                spec,
                port=port,
                host="0.0.0.0",
                certificate=certificate.chain,
                private_key=certificate.key,
                load_for="0.5 s",
                tell=lambda _: None,
            )
            url = f"https://127.0.0.1:{port}"
            assert status(spec).status.url == trials.own_door(state)[0] == url
            assert json.loads((state / "gateway" / "config.json").read_text())["host"] == "0.0.0.0"
            code, body = ask(url, key, certificate.authority)
            assert code == 200 and body.count(b"data: ") >= ASKED["max_tokens"]
            assert ask(url, "", certificate.authority)[0] == 401
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                ask(url, key)
            with pytest.raises(OSError):
                ask(url.replace("https", "http"), key)
        finally:
            bring_down(state)
    assert all(each.finished and not each.failed for each in page.serving[0].loads)
    scraped = (state / "watch" / "prometheus.yaml").read_text("utf-8")
    assert "scheme: https" in scraped and f"127.0.0.1:{port}" in scraped


def test_it_is_not_reached_from_elsewhere_without_a_key_and_nothing_was_begun(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, '{url: "http://127.0.0.1:9/v1", model: second}')
    for host in ("0.0.0.0", "::", "192.0.2.7", "serving.example"):
        with pytest.raises(ValueRefusedError, match="reached from elsewhere") as caught:
            up(spec, host=host, tell=lambda _: None)
        assert "twofold keys add" in caught.value.hint
    assert not (tmp_path / ".twofold").exists()


def test_what_no_tls_can_be_spoken_with_is_refused_by_its_name(
    tmp_path: Path, certificate: Certificate
) -> None:
    other = made_certificate(tmp_path)
    for chain, key, why in (
        (certificate.chain, None, "without its key"),
        (None, certificate.key, "without its certificate"),
        (certificate.chain, other.key, "key values mismatch"),
        (certificate.chain, certificate.chain, "no TLS is spoken"),
        (tmp_path / "none.pem", certificate.key, "cannot be read: no such file"),
    ):
        with pytest.raises(ValueRefusedError, match=why):
            Reach.checked("localhost", chain, key, tmp_path / "none")
    assert Reach.checked("::1", certificate.chain, certificate.key, tmp_path / "none").certificate


def test_a_renewed_certificate_wants_another_gateway(tmp_path: Path, certificate: Certificate) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    settings = ServiceSettings(
        EngineSettings("v1", "float32", 1, 256, 64),
        1,
        4,
        8700,
        0.001,
        0.01,
    )
    (tmp_path / "renewed").mkdir()
    digests = set()
    for made in (certificate, made_certificate(tmp_path / "renewed")):
        shutil.copyfile(made.chain, chain)
        shutil.copyfile(made.key, key)
        reach = Reach.checked("localhost", chain, key, tmp_path / "none")
        digests.add(gateway_digest(replace(settings, reach=reach), tmp_path))
    assert len(digests) == 2


def test_of_a_file_of_certificates_only_the_servers_own_is_trusted(
    tmp_path: Path, certificate: Certificate
) -> None:
    """Not what the authority behind it has signed for somebody else."""
    other = made_certificate(tmp_path)
    chain = tmp_path / "chain.pem"
    for last, is_trusted in ((certificate, True), (other, False)):
        chain.write_text(last.chain.read_text() + certificate.authority.read_text())
        with served(Service(), server_tls(certificate)) as service:
            asked = urllib.request.HTTPSHandler(context=trust.__wrapped__(str(chain), own=True))
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), asked)
            if is_trusted:
                assert opener.open(f"{service.url}/v1/models", timeout=20).status == 200
            else:
                with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                    opener.open(f"{service.url}/v1/models", timeout=20)
