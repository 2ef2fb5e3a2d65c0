"""What others can check without our key: signatures, bills of materials, and manifests that refer."""

import json
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from tests.live.test_registry import FOUND, model
from twofold.cli import main
from twofold.core.errors import AlteredError, FileError
from twofold.live.registry import attachments, blobs
from twofold.live.registry.bill import installed
from twofold.live.registry.referrers import BILL, SIGNATURE, read_referrer
from twofold.live.registry.registry import Registry
from twofold.live.registry.signatures import SignatureRefusedError
from twofold.policy.release.rules import Limits

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")  # where Debian has it
LABEL, PIN = "releases", "4321"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry", make=True)


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """A private key of P-256 and its public one, as PEM files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries beneath
        for module in ("model_signing", "OpenSSL", "PyKCS11"):
            pytest.importorskip(module, reason="needs the extra [sign]: `make extras`")
        pytest.importorskip("model_signing.signing", reason="needs the extra [sign]: `make extras`")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    plain = serialization.NoEncryption()
    as_pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(*as_pem))
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, kind))
    return private, public


def test_what_is_signed_here_is_checked_elsewhere_without_our_key(registry: Registry, tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "ann")
    source = model(tmp_path / "source")
    (source / ".gitattributes").write_text("* text")  # which no signature is of
    registry.push(source, "chat", "ann")
    signed = registry.sign("chat", str(private), "ann")
    assert [kind for kind, _ in signed.attached] == [BILL, SIGNATURE]
    registry.verify(public_key=public)
    registry.pull("chat", tmp_path / "out", public)
    from model_signing import verifying

    others = verifying.Config().use_elliptic_key_verifier(public_key=public)
    others.verify(tmp_path / "out", tmp_path / "out.sig")
    (tmp_path / "out" / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="mismatch"):
        others.verify(tmp_path / "out", tmp_path / "out.sig")


def test_another_key_and_no_signature_are_refused_and_leave_nothing(
    registry: Registry, tmp_path: Path
) -> None:
    private, _ = key_pair(tmp_path, "ann")
    _, other = key_pair(tmp_path, "eve")
    registry.push(model(tmp_path / "one"), "chat", "ann")
    with pytest.raises(SignatureRefusedError, match="chat:1 is not signed"):
        registry.pull("chat", tmp_path / "out", other)
    registry.sign("chat", str(private), "ann")
    for refused in (
        lambda: registry.pull("chat", tmp_path / "out", other),
        lambda: registry.verify("chat", other),
    ):
        with pytest.raises(SignatureRefusedError, match="does not hold"):
            refused()
    assert sorted(path.name for path in tmp_path.glob("*out*")) == []
    with pytest.raises(SignatureRefusedError, match="does not sign"):
        registry.sign("chat", str(other), "ann")
    with pytest.raises(FileError, match=r"nobody\.pub` does not exist"):
        registry.verify("chat", tmp_path / "nobody.pub")
    with pytest.raises(FileError, match=r"nobody\.pem` does not exist"):
        registry.sign("chat", str(tmp_path / "nobody.pem"), "ann")
    with pytest.raises(FileError, match=r"ann\.pem` holds no public key"):
        registry.verify("chat", private)


def test_a_foreign_folder_enters_by_its_signature_or_not_at_all(registry: Registry, tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "ann")
    source = model(tmp_path / "theirs")
    from model_signing import hashing, signing

    def signature(*left_out: str) -> str:
        told = hashing.Config().set_ignored_paths(paths=[source / name for name in left_out])
        signer = signing.Config().set_hashing_config(told).use_elliptic_key_signer(private_key=private)
        signer.sign(source, tmp_path / "theirs.sig")
        return (tmp_path / "theirs.sig").read_text("utf-8")

    whole, part = signature(), signature("tokenizer.json")
    with pytest.raises(SignatureRefusedError, match=r"`tokenizer\.json` is not signed"):
        registry.push(source, "chat", "ann", signature=part, public_key=public)
    registry.push(source, "chat", "ann", signature=whole, public_key=public)
    registry.verify("chat", public)
    (source / "config.json").write_text("{}")
    with pytest.raises(SignatureRefusedError, match="does not hold"):
        registry.push(source, "chat", "ann", signature=whole, public_key=public)
    with pytest.raises(SignatureRefusedError, match="does not hold"):
        registry.push(source, "chat", "ann", signature="{}", public_key=public)
    assert len(registry.tables.versions()) == 1


def test_a_byte_changed_in_what_is_attached_is_found(registry: Registry, tmp_path: Path) -> None:
    pushed = registry.push(model(tmp_path / "one"), "chat", "ann")
    [(_, digest)] = pushed.attached
    manifest = json.loads(blobs.checked_text(registry.folder, digest))
    for hexadecimal in (digest[7:], manifest["layers"][0]["digest"][7:]):
        path = blobs.blob(registry.folder, hexadecimal)
        whole = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(whole.replace(b"sha", b"shb", 1) if b"sha" in whole else whole[:-1])
        with pytest.raises(AlteredError):
            registry.verify()
        path.write_bytes(whole)
    registry.verify()


def test_a_bill_of_materials_lists_files_by_digest_and_packages_by_version(
    registry: Registry, tmp_path: Path
) -> None:
    pushed = registry.push(model(tmp_path / "one"), "chat", "ann")
    [(kind, digest)] = pushed.attached
    about, text = read_referrer(registry.folder, digest)
    bill = json.loads(text)
    assert (kind, about) == (BILL, pushed.stored.digest)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": about[7:]}]
    files = {each["name"]: each["hashes"][0]["content"] for each in bill["components"] if "hashes" in each}
    assert files == {each.path: each.sha256 for each in pushed.stored.files}
    packages = {(each["name"], each["version"]) for each in bill["components"] if "purl" in each}
    assert packages == set(installed()) and "twofold" in {name for name, _ in packages}
    assert len({each["bom-ref"] for each in bill["components"]}) == len(bill["components"])
    again = registry.push(tmp_path / "one", "chat", "bob")
    assert again.attached == pushed.attached


def test_the_index_lists_what_refers_by_its_type_and_skopeo_still_reads_the_model(
    registry: Registry, tmp_path: Path
) -> None:
    pushed = registry.push(model(tmp_path / "one"), "chat", "ann")
    index = json.loads((registry.folder / "index.json").read_text("utf-8"))
    [listed] = [each for each in index["manifests"] if each["artifactType"] == BILL]
    raw = json.loads(blobs.checked_text(registry.folder, listed["digest"]))
    assert raw["subject"]["digest"] == pushed.stored.digest
    assert raw["subject"]["size"] == blobs.blob(registry.folder, pushed.stored.digest[7:]).stat().st_size
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo: `make system`")
    where = f"oci:{registry.folder}:chat:1"
    subprocess.run(["skopeo", "inspect", "--raw", where], capture_output=True, check=True)


def test_a_key_that_never_leaves_its_module_signs(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SoftHSM, as a security module answers by PKCS#11; the token lies in a folder of this test."""
    if shutil.which("softhsm2-util") is None or not MODULE.exists():
        pytest.skip("softhsm2: `make system`")
    private, public = key_pair(tmp_path, "ann")
    (tmp_path / "tokens").mkdir()
    (tmp_path / "softhsm.conf").write_text(f"directories.tokendir = {tmp_path}/tokens\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(tmp_path / "softhsm.conf"))
    asked = [
        ["softhsm2-util", "--init-token", "--free", "--label", LABEL, "--pin", PIN, "--so-pin", PIN],
        [
            "softhsm2-util",
            "--import",
            str(private),
            "--token",
            LABEL,
            "--label",
            LABEL,
            "--id",
            "A1",
            "--pin",
            PIN,
        ],
    ]
    for words in asked:
        subprocess.run(words, check=True, capture_output=True, env=dict(os.environ))
    private.unlink()
    registry.push(model(tmp_path / "one"), "chat", "ann")
    address = f"pkcs11:token={LABEL};object={LABEL}?module-path={MODULE}&pin-value={PIN}"
    registry.sign("chat", address, "ann")
    registry.verify("chat", public)
    with pytest.raises(SignatureRefusedError, match="does not sign"):
        registry.sign("chat", address.replace(LABEL, "nobody"), "ann")


def test_an_unsigned_promotion_is_refused_by_its_rule_and_logged(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unsigned, and signed by another key: refused; signed by the key that is asked for: let."""
    private, public = key_pair(tmp_path, "ann")
    theirs, _ = key_pair(tmp_path, "eve")
    registry.push(model(tmp_path / "one"), "chat", "ann")
    registry.evaluated("chat", FOUND, "ann")
    registry.approve("chat", "bob", "")
    asked = ["registry", "promote", "chat", "--registry", str(registry.folder), "--by", "ann"]
    for signer in ("", str(theirs)):
        if signer:
            registry.sign("chat", signer, "eve")
        assert main([*asked, "--public-key", str(public)]) == 3
        said = capsys.readouterr().err
        wanted = f"signature not signed by {public}; passes: `registry sign` by who has that key"
        assert "".join(wanted.split()) in "".join(said.split())  # a long path is broken where it may be
        line = json.loads(registry.tables.log()[-1])
        assert (line["what"], list(line["rules"])) == ("refused promotion to serving", ["signature"])
        assert registry.tables.aliases("chat") == {}
    registry.sign("chat", str(private), "ann")
    assert main([*asked, "--public-key", str(public)]) == 0
    assert registry.tables.aliases("chat") == {"serving": 1}


def test_a_signature_is_checked_once_however_often_the_rules_are_asked(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = key_pair(tmp_path, "ann")
    registry.push(model(tmp_path / "one"), "chat", "ann")
    registry.sign("chat", str(private), "ann")
    checked: list[Path] = []
    check = attachments.check_signature
    monkeypatch.setattr(
        attachments, "check_signature", lambda *words: (checked.append(words[0]), check(*words))
    )
    limits = Limits(signed_by=str(public))
    for _ in range(3):
        assert "signature" not in {each.rule for each in registry.judge("chat", "serving", limits)}
    assert len(checked) == 1
