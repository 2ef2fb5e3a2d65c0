"""Specs that once got contradictory answers, each with the one that it gets now."""

import shutil
from pathlib import Path

import pytest

SPECS = Path(__file__).parent / "specs"


@pytest.mark.parametrize("name", sorted(path.stem for path in SPECS.glob("*.yaml")))
def test_a_spec_has_one_answer_on_one_screen(name: str, run, golden, tmp_path: Path) -> None:
    shutil.copy(SPECS / f"{name}.yaml", tmp_path)
    done = run(f"twofold plan {name}.yaml")
    assert done.code == 0
    assert len(done.out.splitlines()) <= 25 and max(map(len, done.out.splitlines())) <= 100
    golden(f"decision-{name}", done.transcript)
