"""YAML that we write says what we meant, to readers of version 1.1 and 1.2, with comments behind values."""

from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from twofold.rendering.yaml_text import Node, Said, yaml_text

SCALARS = st.one_of(st.none(), st.text(), st.integers(), st.booleans(), st.floats(1e-4, 1e15))
KEYS = st.text(min_size=1)
NODES = st.recursive(
    st.one_of(SCALARS, st.builds(Said, SCALARS, st.text())),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(KEYS, below, max_size=4)),
    max_leaves=12,
)
TAKEN_FOR_ELSE = [
    "on",
    "No",
    "y",
    "null",
    "~",
    "1e3",
    "0x1f",
    "1_000",
    "12:30:00",
    "2026-01-01",
    ".5",
    "=",
    "<<",
]


def plain(node: Node) -> Any:
    if isinstance(node, Said):
        return node.value
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    return [plain(each) for each in node] if isinstance(node, list) else node


def read(text: str, version: str) -> list[Any]:
    reader = YAML(typ="safe", pure=True)
    reader.version = version
    return list(reader.load_all(f"%YAML {version}\n---\n{text}"))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@given(document=st.dictionaries(KEYS, NODES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(version: str, document: dict[str, Node]) -> None:
    assert read(yaml_text([document], ["# head"]), version) == [plain(document)]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("word", TAKEN_FOR_ELSE)
def test_text_stays_text_as_value_and_key(version: str, word: str) -> None:
    assert read(yaml_text([{word: word, "list": [word]}]), version) == [{word: word, "list": [word]}]


def test_a_comment_stands_behind_its_value() -> None:
    text = yaml_text(
        [{"replicas": Said(3, "serving.a"), "args": ["x", Said("8", "why\n not: # 2")]}, {"b": 1}]
    )
    assert text == 'replicas: 3 # serving.a\nargs:\n- x\n- "8" # why  not: # 2\n---\nb: 1\n'


def test_a_script_is_a_block() -> None:
    assert yaml_text([{"run": "set -e\nexec x\n"}]) == "run: |\n  set -e\n  exec x\n"


@given(st.text(alphabet="ab #:-\t\n×", min_size=2))
def test_lines_survive_as_block_or_quoted(text: str) -> None:
    assert YAML(typ="safe", pure=True).load(StringIO(yaml_text([{"run": text}])))["run"] == text
