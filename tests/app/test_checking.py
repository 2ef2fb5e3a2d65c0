"""`check` reads what a spec names: its quotes and the mandates that its papers cite."""

from pathlib import Path

import pytest

from tests.public_key import PUBLIC_KEY
from tests.small_spec import SMALL
from twofold.app.checking import check
from twofold.core.errors import FileError, InputErrors

SPEC = """name: q
model: llama-3.1-8b
training: {tokens: 1 Gtok, deadline: 30 d}
supply: {quotes: quotes.csv}
"""
HEADER = "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,quoted"
ASKED = {"signed_by": PUBLIC_KEY, "evaluated_on": '{"slice": "a", "text": "b"}'}
ROW = "acme,box,H100-SXM,8,us-east-1,on_demand,20,2026-11-10"


def spec(folder: Path, text: str, *rows: str) -> Path:
    (folder / "quotes.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    file = folder / "twofold.yaml"
    file.write_text(text)
    return file


def test_broken_quotes_are_told_before_a_plan_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputErrors) as caught:
        check(spec(tmp_path, SPEC, ROW.replace("H100-SXM,8", "H900,-8")))
    places = [each.place for each in caught.value.errors]
    assert [(Path(place.file).name, place.line, place.column) for place in places if place] == [
        ("quotes.csv", 2, 10),
        ("quotes.csv", 2, 15),
    ]
    assert "1 quote can be read" in check(spec(tmp_path, SPEC, ROW)).lines


def test_cited_mandates_are_known_and_in_force(tmp_path: Path) -> None:
    rules = "compliance: {regime: fedramp-high, cites: [EO-14110, NAME]}\n"
    with pytest.raises(InputErrors) as caught:
        check(spec(tmp_path, SPEC + rules.replace("NAME", "M-25-2I"), ROW))
    (error,) = caught.value.errors
    assert "not a known mandate" in error.message and "`M-25-21`" in error.hint and error.place
    lines = check(spec(tmp_path, SPEC + rules.replace("NAME", "M-25-21"), ROW)).lines
    assert [line for line in lines if "EO 14110, revoked" in line] and not any("M-25-21" in x for x in lines)


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("signed_by", "-----BEGIN PRIVATE KEY-----", "holds no public key"),
        ("signed_by", PUBLIC_KEY[:60], "holds no public key"),
        ("signed_by", PUBLIC_KEY.replace("MFkwEwYHKoZIzj0C", "MFkwEwYJKoZIhvcN"), "holds no public key"),
        ("evaluated_on", "{", "is no evaluation set"),
        ("evaluated_on", "", "is no evaluation set"),
    ],
)
def test_what_up_reads_before_a_release_is_read_by_check(
    key: str, text: str, told: str, tmp_path: Path
) -> None:
    file, named = tmp_path / "twofold.yaml", tmp_path / "held-out.jsonl"
    file.write_text(SMALL.replace("serving:\n", f"serving:\n  {key}: held-out.jsonl\n"))
    named.write_text(text)
    with pytest.raises(FileError, match=told):
        check(file)
    named.write_text(ASKED[key])
    check(file)


def test_what_is_wrong_with_a_key_and_a_set_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "twofold.yaml"
    lines = "".join(f"  {key}: {key}.jsonl\n" for key in ASKED)
    file.write_text(SMALL.replace("serving:\n", f"serving:\n{lines}"))
    for key in ASKED:
        (tmp_path / f"{key}.jsonl").write_text("neither")
    with pytest.raises(InputErrors) as caught:
        check(file)
    assert len(caught.value.errors) == 2


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ("cooling: liquid_800", "did you mean `liquid_800_v`?"),
        ("cooling: [air]", "one of: air"),
        ("tier: 3", "did you mean `III`"),
        ("power_cap: 5", "write `5 MW`"),
    ],
)
def test_what_a_building_is_asked_wrongly_is_told_with_what_to_write(
    keys: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(InputErrors) as caught:
        check(spec(tmp_path, f"{SPEC}facility: {{{keys}}}\n", ROW))
    (error,) = caught.value.errors
    assert hint in error.hint


@pytest.mark.parametrize(
    ("on", "instead"),
    [
        ("512xH100-SXM", "`64x8xH100-SXM`"),
        ("12xH100 SXM", "`2x8xH100 SXM`"),  # by an alias
        ("3x16xH200", "`6x8xH200`"),
        ("144xGB200", "`2x72xGB200`"),
        ("32xL4", "`2x16xL4`"),
        ("60xH100-SXM:1g.10gb", "`2x56xH100-SXM:1g.10gb`"),
        ("{accelerator: H100-SXM, accelerators_per_node: 512}", "`64x8xH100-SXM`"),
    ],
)
def test_a_server_that_nobody_builds_is_refused_with_the_nodes_that_it_takes(on: str, instead: str) -> None:
    with pytest.raises(InputErrors) as refused:
        check(f"training: {{model: llama-3.1-8b, tokens: 1 Gtok, on: {on}}}\n")
    (error,) = refused.value.errors
    assert error.code == "E-value" and "no server holds" in error.message and instead in error.hint


@pytest.mark.parametrize(
    "on",
    [
        *("8xH100-SXM", "64x8xH100-SXM", "72xGB200", "256xTPU-v5e", "8xA100-PCIe", "16xA100-40GB-SXM"),
        *("56xH100-SXM:1g.10gb", "1x96xthis-machine"),
    ],
)
def test_the_largest_servers_there_are_may_be_named(on: str) -> None:
    assert check(f"training: {{model: llama-3.1-8b, tokens: 1 Gtok, on: {on}}}\n").spec.training[0].on
