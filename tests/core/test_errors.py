"""The tree of errors: codes are unique, documented and keep their exit codes."""

import re
from pathlib import Path

from twofold.core.errors import InfeasibleError, InputError, InputErrors, Place, TwofoldError, UnitError

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"\bcode(?:: ClassVar\[str\])? = \"(E-[a-z-]+)\"")


def codes_in_source() -> list[str]:
    texts = (path.read_text("utf-8") for path in sorted((ROOT / "src" / "twofold").rglob("*.py")))
    return [code for text in texts for code in CODE.findall(text)]


def codes_in_docs() -> list[str]:
    return re.findall(r"^## (E-[a-z-]+)$", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)


def test_every_code_has_one_class_and_one_section() -> None:
    source, docs = codes_in_source(), codes_in_docs()
    assert len(source) == len(set(source)), "two classes share a code"
    missing, stale = sorted(set(source) - set(docs)), sorted(set(docs) - set(source))
    assert not missing, f"add to docs/errors.md a section `## CODE` with a running example for: {missing}"
    assert not stale, f"docs/errors.md has sections whose code no class has: {stale}"
    assert docs == sorted(docs), "keep the sections of docs/errors.md sorted by code"


def test_an_error_says_where_what_and_what_to_write() -> None:
    error = UnitError("`500` needs a unit", place=Place("a.yaml", 14, 9), hint="write `500 ms`")
    assert str(error) == "a.yaml:14:9: error[E-unit]: `500` needs a unit\nhint: write `500 ms`"


def test_exit_codes_follow_the_tree() -> None:
    assert (TwofoldError("x").exit_code, InputError("x").exit_code, InfeasibleError("x").exit_code) == (
        1,
        2,
        3,
    )
    assert InputErrors([InputError("x"), UnitError("y")]).message == "2 errors"
    assert InputErrors([InputError("x")]).message == "1 error"
