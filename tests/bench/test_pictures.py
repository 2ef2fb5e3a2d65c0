"""The pictures that README.md and docs/ show: those of the plans of today, each shown, each whole."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.pictures import SHOWN, file_name, pictures, write
from twofold.contracts.results.plan import Plan

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "pictures"
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def made(examples: dict[str, Plan]) -> dict[str, str]:
    return pictures(examples)


def test_what_is_kept_is_what_the_plans_of_today_draw(
    made: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--golden", default=False):
        write(KEPT, made)
    kept = {path.name: path.read_text("utf-8") for path in KEPT.glob("*.svg")}
    assert sorted(kept) == sorted(made)
    assert [name for name in made if made[name] != kept[name]] == [], "`make docs` draws them anew"


def test_pictures_of_another_time_are_removed_and_others_are_left(tmp_path: Path) -> None:
    for name in ("old.svg", "kept.txt"):
        (tmp_path / name).write_text("", "utf-8")
    write(tmp_path, {"new.svg": "<svg/>"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.txt", "new.svg"]


def test_every_picture_is_shown_with_words_for_it_and_every_one_shown_is_there() -> None:
    shown = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for words, path in IMAGE.findall(page.read_text("utf-8")):
            assert len(words) > 20, f"{page.name}: {path}"
            assert (page.parent / path).is_file(), f"{page.name}: {path}"
            shown.add(Path(path).name)
    assert shown == {file_name(*each) for each in SHOWN}
    assert "docs/pictures/" in (ROOT / "README.md").read_text("utf-8")


def test_a_picture_stands_alone_with_its_size_and_its_own_background(made: dict[str, str]) -> None:
    for name, text in made.items():
        root = ElementTree.fromstring(text.encode())
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.attrib["aria-label"]
        width, height = (float(root.attrib[each]) for each in ("width", "height"))
        assert root.attrib["viewBox"] == f"0 0 {width:.0f} {height:.0f}", name
        first = root.find("{http://www.w3.org/2000/svg}rect")
        assert first is not None and first.attrib["width"] == first.attrib["height"] == "100%"
        assert "prefers-color-scheme:dark" in text and not re.search(r"href|url\((?!#)|<script|@import", text)
