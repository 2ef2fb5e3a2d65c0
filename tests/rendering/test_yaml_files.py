"""Comments behind values change nothing of what is read back."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from twofold.rendering.yaml_files import Valued, yaml_text

SAID = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Cf", "Co", "Cn")), min_size=1)
LEAVES = st.one_of(SAID, st.integers(), st.booleans())
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
TREES: Any = st.recursive(
    st.one_of(LEAVES, st.builds(Valued, LEAVES, SAID)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4), st.dictionaries(NAMES, inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
)


def bare(value: Any) -> Any:
    if isinstance(value, Valued):
        return bare(value.value)
    if isinstance(value, dict):
        return {key: bare(each) for key, each in value.items()}
    return [bare(each) for each in value] if isinstance(value, list) else value


@given(values=st.dictionaries(NAMES, TREES, min_size=1, max_size=4))
def test_what_is_written_is_read_back(values: dict[str, Any]) -> None:
    assert YAML(typ="safe").load(yaml_text(values)) == bare(values)
