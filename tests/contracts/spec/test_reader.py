"""Every mistake of a file in one pass, each at its place; no bytes whatever end in a traceback."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.contracts.names import Names
from twofold.contracts.spec.reader import parse_spec, read_spec
from twofold.contracts.spec.spec import Spec
from twofold.core.errors import InputErrors, TwofoldError

HOSTILE = st.text(
    alphabet=st.sampled_from("a:-{}[],&*!|>'\"%@`#? \n\t\\0~\x00\x85\ufeff\u2028é"), max_size=60
)
KEYS = ("name", "model", "training", "serving", "supply", "tokens", "classes", "traffic", "slo", "rate", "on")
NESTED = st.recursive(
    st.sampled_from([*KEYS, "5", "5 s", "", "~"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


def errors_of(text: str, names: Names | None = None) -> list[TwofoldError]:
    with pytest.raises(TwofoldError) as caught:
        parse_spec(text, "twofold.yaml", names)
    return [*caught.value.errors] if isinstance(caught.value, InputErrors) else [caught.value]


def outcome(path: Path) -> Spec | TwofoldError:
    try:
        return read_spec(path)
    except TwofoldError as error:
        return error


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | HOSTILE.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_spec_or_a_coded_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "twofold.yaml"
    path.write_bytes(content)
    found = outcome(path)
    assert isinstance(found, TwofoldError)  # no random bytes are a spec
    assert found.exit_code == 2


@given(tree=st.dictionaries(st.sampled_from(KEYS), NESTED, max_size=4))
def test_any_tree_is_a_spec_or_errors_with_places(tree: dict[str, object]) -> None:
    try:
        parse_spec(json.dumps(tree), "twofold.yaml")
    except InputErrors as error:
        assert error.errors
        assert all(one.place and one.place.line == 1 and one.place.column >= 1 for one in error.errors)


@given(indent=st.integers(1, 8), blank_lines=st.integers(0, 5), bad=st.sampled_from(["500", "-1 s", "5 GB"]))
def test_a_place_points_at_the_offending_value(indent: int, blank_lines: int, bad: str) -> None:
    text = "\n" * blank_lines + f"training:\n{' ' * indent}tokens: 1 Gtok\n{' ' * indent}deadline: {bad}\n"
    place = next(error.place for error in errors_of(text) if "deadline" in error.message)
    assert place is not None
    line = text.splitlines()[place.line - 1]
    assert line[place.column - 1 :] == bad


def test_all_mistakes_are_found_in_one_pass_in_the_order_of_the_file(names: Names) -> None:
    text = (
        "model: llama-3.1-70x\n"
        "training: {kind: pretrin, tokens: 700, deadline: -3 d, on: 8x8xH1000}\n"
        "serving:\n"
        "  regions: [us-east, mars]\n"
        "  zone: 3\n"
        "  classes: {chat: {traffic: {rate: 1 /s, scale_factor: 2x}, slo: {ttft_p95: 500}}}\n"
        "supply: {shop: {exclude: [community, lamda, H200]}}\n"
    )
    errors = errors_of(text, names)
    assert [(error.place.line, error.place.column, error.code) for error in errors if error.place] == [
        (1, 8, "E-name"),
        (2, 18, "E-value"),
        (2, 35, "E-unit"),
        (2, 50, "E-quantity"),
        (2, 60, "E-name"),
        (4, 22, "E-name"),
        (5, 3, "E-key"),
        (6, 42, "E-key"),
        (6, 77, "E-unit"),
        (7, 38, "E-name"),
    ]
    hints = "\n".join(error.hint for error in errors)
    for guess in (
        "`llama-3.1-70b`",
        "`pretrain`",
        "`700 Gtok`",
        "`H100-SXM`",
        "`zones`",
        "`scale`",
        "`lambda`",
    ):
        assert guess in hints
    assert "`ttft_p95: 500` needs a unit" in errors[8].message
    assert errors[8].hint == "write `500 ms`"


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "E-empty", 1),
        ("# nothing\n", "E-empty", 1),
        ("--- \n...\n", "E-empty", 1),
        ("just text", "E-shape", 1),
        ("- a\n- b\n", "E-shape", 1),
        ("name: a\nname: b\n", "E-duplicate", 2),
        ("training: {tokens: 1 Gtok, tokens: 2 Gtok}", "E-duplicate", 1),
        ("a: &x 1\nb: *x\n", "E-alias", 1),
        ("a: *x\n", "E-alias", 1),
        ("a: !!python/object:os.system x\n", "E-syntax", 1),
        ("a: {b: [}\n", "E-syntax", 1),
        ("a: 1\n\tb: 2\n", "E-syntax", 2),
        ("a: 1\n---\nb: 2\n", "E-syntax", 2),
        ("[" * 10_000, "E-nesting", 1),
        ("? {a: b}\n: c\n", "E-shape", 1),
        ("training:\nname: a\n", "E-shape", 1),
        ("name:\ntraining: {model: m, tokens: 1 Gtok}\n", "E-shape", 1),
        ("".join(f"k{n}: 1\n" for n in range(20_000)), "E-file-size", 10_000),
        ("training: 7\n", "E-shape", 1),
        ("serving: {classes: [a]}\nmodel: m\n", "E-shape", 1),
        ("serving: {model: m}\n", "E-missing", 1),
        ("training:\n  - tokens: 1 Gtok\n", "E-missing", 2),
    ],
)
def test_what_is_no_spec_has_its_own_code(text: str, code: str, line: int) -> None:
    errors = errors_of(text)
    assert errors[0].code == code
    assert errors[0].place is not None
    assert errors[0].place.line == line


def test_a_file_of_mistakes_is_cut_short() -> None:
    errors = errors_of("".join(f"k{n}: 1\n" for n in range(200)))
    assert len(errors) == 51
    assert errors[-1].message == "150 more mistakes"


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in pairwise("abcdefg")
    )
    assert [error.code for error in errors_of(bomb)] == ["E-alias"]


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary.yaml", tmp_path / "large.yaml"
    binary.write_bytes(b"name: a\n\xff\xfe\x00")
    with large.open("wb") as file:
        file.truncate(100_000_000)  # sparse: takes no room, and would take long to read
    found = [outcome(path) for path in (tmp_path / "absent.yaml", tmp_path, binary, large)]
    assert [error.code for error in found if isinstance(error, TwofoldError)] == [
        "E-file",
        "E-file",
        "E-encoding",
        "E-file-size",
    ]
    assert "does not exist" in str(found[0])
    assert ":2:1" in str(found[2])
    assert "100.0 MB" in str(found[3])


def test_paths_are_relative_to_the_file_and_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "twofold.yaml"
    path.write_text("model: ./config.json\nserving: {classes: {a: {traffic: {trace: t.csv}}}}\n", "utf-8")
    error = outcome(path)
    assert isinstance(error, InputErrors)
    assert [one.code for one in error.errors] == ["E-file", "E-file"]
    for name in ("config.json", "t.csv"):
        (tmp_path / name).write_text("", "utf-8")
    spec = read_spec(path)
    assert spec.services[0].classes["a"].traffic.trace == tmp_path / "t.csv"
    assert spec.services[0].model.config == tmp_path / "config.json"


def test_names_are_compared_without_case_and_dashes(names: Names) -> None:
    text = "model: Llama_3.1 70B\ntraining: {tokens: 1 Gtok, on: 8x8xh100 sxm, framework: Megatron Core}\n"
    assert parse_spec(text, "x", names).training[0].on is not None


def test_scalars_stay_text_until_a_unit_parser_sees_them() -> None:
    spec = parse_spec("name: 1e3\nmodel: 0x10\ntraining: {tokens: 1 Gtok, team: no}\n", "x")
    assert (spec.name, spec.training[0].model.name, spec.training[0].team) == ("1e3", "0x10", "no")
