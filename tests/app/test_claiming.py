"""`claims` chooses, judges and shows claims."""

import pytest

from twofold.app.claiming import claim_value, claims
from twofold.core.errors import UnknownNameError
from twofold.report.claims import command_lines
from twofold.report.lines import WIDTH


def test_ids_come_in_any_case_and_in_the_order_asked() -> None:
    answer = claims(["s2-13", "S0-22"])
    assert [each.id for each in answer.data] == ["S2-13", "S0-22"]
    assert answer.lines[-1] == "2 claims: 1 holds · 1 conditional · 0 contradicted · 0 unverifiable"


def test_a_topic_and_a_verdict_narrow_the_list() -> None:
    power = claims(topic="precision").data
    assert {each.topic for each in power} == {"precision"}
    holding = claims(topic="precision", verdict="holds").data
    assert [each.id for each in holding] == [each.id for each in power if each.verdict == "holds"]


@pytest.mark.parametrize("wrong", [{"only": ["S0-222"]}, {"topic": "powr"}, {"verdict": "hold"}])
def test_an_unknown_name_is_refused_with_what_was_meant(wrong: dict[str, object]) -> None:
    with pytest.raises(UnknownNameError) as refused:
        claims(**wrong)  # type: ignore[arg-type]
    assert "did you mean" in refused.value.hint


def test_lines_fit_the_screen_and_commands_stay_whole() -> None:
    answer = claims(["S0-22", "S0-31", "S0-44"], cases=True)
    commands = [line for line in answer.lines if line.lstrip().startswith("$ ")]
    assert len(commands) == 3
    assert all(len(line) <= WIDTH for line in answer.lines if line not in commands)
    assert "fails  72 W" in str(answer)
    assert "<pre" in answer._repr_html_()


def test_each_topic_is_summed_up_before_all_of_them() -> None:
    answer = claims(["S0-22", "S2-13"])
    start = next(i for i, line in enumerate(answer.lines) if line.split()[:1] == ["topic"])
    rows = [line.split() for line in answer.lines[start + 1 : -2]]
    assert {row[0] for row in rows} == {each.topic.split()[0] for each in answer.data}
    assert sum(int(cell) for row in rows for cell in row[-4:] if cell != "–") == 2
    assert not any(line.split()[:1] == ["topic"] for line in claims(["S0-22"]).lines)


def test_a_long_command_is_broken_as_a_shell_continues_it() -> None:
    command = 'twofold claims --compute "' + " + ".join(["catalog('RTX 6000').tdp_w"] * 9) + '"'
    lines = command_lines(command)
    assert len(lines) > 1 and all(len(line) <= WIDTH for line in lines)
    assert all(line.endswith(" \\") for line in lines[:-1]) and not lines[-1].endswith("\\")
    joined = " ".join(line.removesuffix("\\").strip() for line in lines)
    assert joined == f"$ {command}"


def test_a_value_is_in_si_units() -> None:
    assert claim_value("catalog('L4').tdp_w") == 72.0
    assert claim_value("checkpoint('llama-3.1-8b')") > 1e11
