"""The page of a proof: every figure with its verdict, findings first, no script, also by `report`."""

from pathlib import Path

import pytest

from tests.pages.test_plan_page import LARGEST_BYTES, Tags
from tests.report.test_proof import PROOF
from twofold.app.proof_stages import ProofShown
from twofold.app.reporting import write_page
from twofold.pages.proof_page import proof_page


def test_findings_stand_before_the_tables_and_the_frozen_digest_above_all() -> None:
    for made in (proof_page(PROOF).html, proof_page(PROOF).markdown):
        before = made.partition("Steady")[0]
        assert all(each.cause in before.replace("\\", "") for each in PROOF.findings)
        assert "3 of 6 figures came true" in before and PROOF.frozen_sha256 in made
        assert made.count("✓ came true") == 3


def test_the_page_is_one_small_file_without_script() -> None:
    made, seen = proof_page(PROOF).html, Tags()
    seen.feed(made)
    assert not seen.open and "script" not in seen.tags and len(made.encode()) <= LARGEST_BYTES


@pytest.mark.parametrize("as_markdown", [False, True])
def test_report_makes_it_of_the_file_that_a_proof_keeps(tmp_path: Path, as_markdown: bool) -> None:
    file, out = tmp_path / "proof.json", tmp_path / "page"
    file.write_text(ProofShown(PROOF).json, "utf-8")
    write_page(file, out, as_markdown)
    assert out.read_text("utf-8") == (proof_page(PROOF).markdown if as_markdown else proof_page(PROOF).html)
