"""The verb `claims`: data for programs, lines for people, errors for both."""

import json

import pytest
from click.testing import CliRunner, Result

from twofold.cli import main
from twofold.cli.running import twofold


def run(*words: str) -> Result:
    return CliRunner().invoke(twofold, ["claims", *words], catch_exceptions=False)


def test_json_is_an_object_of_rows_with_the_promised_keys() -> None:
    data = json.loads(run("--only", "S0-22,S0-44", "--json").stdout)
    assert data["schema"] == "twofold/claims/1"
    rows = data["claims"]
    assert [row["id"] for row in rows] == ["S0-22", "S0-44"]
    for row in rows:
        assert {"id", "verdict", "value", "unit", "reason", "command"} <= row.keys()
    assert rows[0]["verdict"] == "conditional"
    assert rows[1]["verdict"] == "unverifiable"


def test_a_quantity_prints_alone_as_a_row_or_as_data() -> None:
    assert run("--compute", "catalog('L4').tdp_w").stdout == "72 W\n"
    assert "tdp_w 72 W" in run("--compute", "catalog('L4')").stdout
    assert json.loads(run("--compute", "catalog('L4').tdp_w in 300..450", "--json").stdout)["value"] is False
    in_gb = run("--compute", "checkpoint('llama-3.1-8b') / GB", "--json").stdout
    assert json.loads(in_gb)["unit"] == "GB"
    assert run("--compute", "train('llama-3.1-405b', '1x8xL4').mfu").stdout == "none\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--only", "S9-99"], "E-name"),
        (["--compute", "catlog('L4')"], "E-name"),
        (["--compute", "1 +"], "E-value"),
        (["--compute", "1/0"], "E-value"),
        (["--compute", "__import__('os')"], "E-name"),
        (["--compute", "1", "--only", "S0-22"], "E-usage"),
    ],
)
def test_bad_input_exits_2_with_a_code(
    words: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", *words]) == 2
    assert f"error[{code}]" in capsys.readouterr().err
