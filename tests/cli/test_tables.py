"""`--csv` and `--table` wherever a verb prints a table, and tables as wide as they are where nobody looks."""

import csv
import io
import json
import re

import click
import pytest

from tests.small_spec import SMALL
from twofold.cli.running import ENDLESS, columns, command_of
from twofold.cli.verbs import VERBS

PRINTS_NONE = {  # text, files, or one word
    *("init", "check", "explain", "report", "render", "down", "predict", "completion"),
    *("keys add", "keys list", "keys revoke", "top", "logs"),
    *(f"registry {each}" for each in VERBS["registry"].questions if each != "list"),
    *("jobs submit", "jobs cancel", "jobs logs"),
}
LINES = [
    "plan small.yaml",
    "compare small.yaml",
    "compare small.yaml --ladder context",
    "estimate train llama-3.1-8b --on 1x8xH100-SXM --batch '64 seq'",
    "estimate serve llama-3.1-8b --on 1xH100-SXM --input 500 --output 100 --concurrency 8",
    "estimate collective all_reduce --size '1 GB' --on 8x8xH100-SXM",
    "estimate compute --on 8x8xH100-SXM --for '9 d'",
    "estimate roofline llama-3.1-8b --on 1xH100-SXM",
    "catalog",
    "catalog accelerators --where 'name ~ H200'",
    "catalog partitions H100",
    "catalog kernels H100-SXM",
    "claims --only S0-22",
]


@pytest.fixture(autouse=True)
def _small(tmp_path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)


def read(text: str) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(text), strict=True))
    assert all(None not in row and None not in row.values() for row in rows)  # as wide as their heads
    return rows


def leaves() -> dict[str, click.Command]:
    found = {}
    for name, verb in VERBS.items():
        command = command_of(name, verb)
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        found |= {f"{name} {each}".strip(): held for each, held in inner.items()}
    return found


def test_every_verb_that_prints_a_table_prints_it_as_csv() -> None:
    for name, command in leaves().items():
        names = {parameter.name for parameter in command.params}
        assert ({"as_csv", "csv_table"} <= names) == (name not in PRINTS_NONE), name


@pytest.mark.parametrize("line", LINES)
def test_a_table_has_the_figures_of_the_data(line, run) -> None:
    table, data = run(f"twofold {line} --csv"), run(f"twofold {line} --json")
    assert (table.code, table.err) == (data.code, data.err) == (0, "")
    known = {float(each) for each in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", data.out)}
    known |= {float(len(value)) for value in json.loads(data.out).values() if isinstance(value, list)}
    rows = read(table.out)
    assert rows
    figures = [cell for row in rows for cell in row.values() if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", cell)]
    assert figures or line == "catalog partitions H100" or line == "catalog"
    assert {float(cell) for cell in figures} <= known


def test_another_table_is_asked_for_by_its_name(run) -> None:
    goals = read(run("twofold plan small.yaml --table goals").out)
    assert [row["metric"] for row in goals] == ["ttft_p95", "tpot_p95"]
    assert (
        run("twofold plan small.yaml --csv --table goals").out
        == run("twofold plan small.yaml --table goals").out
    )


def test_a_table_that_there_is_none_of_is_told_which_there_are(run) -> None:
    done = run("twofold plan small.yaml --table gaols")
    assert (done.code, done.out) == (2, "")
    assert "error[E-name]" in done.err and "did you mean `goals`?" in done.err


def test_a_table_and_all_data_do_not_go_together(run) -> None:
    done = run("twofold plan small.yaml --json --csv")
    assert done.code == 2 and "leave out `--csv` or `--json`" in done.err


def test_data_are_kept_beside_a_table(run, tmp_path) -> None:
    done = run("twofold plan small.yaml --csv --out plan.json")
    kept = json.loads((tmp_path / "plan.json").read_text())
    assert [row["what"] for row in read(done.out)] == [line["what"] for line in kept["money"]["lines"]]


def test_what_is_left_of_a_plan_is_a_table_too(run, tmp_path) -> None:
    (tmp_path / "late.yaml").write_text(SMALL.replace("deadline: 10 d", "deadline: 1 min"))
    done = run("twofold plan late.yaml --csv")
    assert done.code == 3 and "infeasible" in done.err
    assert all(row["what"].startswith("serve") for row in read(done.out))


def test_two_equal_plans_differ_in_no_row(run) -> None:
    run("twofold plan small.yaml --out plan.json")
    done = run("twofold diff plan.json plan.json --csv")
    assert (done.code, done.out) == (0, "")


def test_tables_are_as_wide_as_they_are_where_nobody_looks(run, monkeypatch) -> None:
    narrow = run("twofold catalog models --where 'name ~ llama'").out
    monkeypatch.delenv("TWOFOLD_COLUMNS")
    wide = run("twofold catalog models --where 'name ~ llama'").out
    assert max(map(len, narrow.splitlines())) <= 100 < max(map(len, wide.splitlines()))
    assert "more with --columns" in narrow and "tied_embeddings" not in narrow.splitlines()[0]
    assert "tied_embeddings" in wide.splitlines()[0]
    monkeypatch.setenv("TWOFOLD_COLUMNS", "160")
    assert (
        100 < max(map(len, run("twofold catalog models --where 'name ~ llama'").out.splitlines()[:-4])) <= 160
    )


@pytest.mark.parametrize(("stated", "wide"), [("", ENDLESS), ("x", ENDLESS), ("40", 100), ("250", 250)])
def test_the_width_is_stated_or_endless_in_a_pipe(stated, wide, monkeypatch) -> None:
    monkeypatch.setenv("TWOFOLD_COLUMNS", stated)
    assert columns() == wide


def test_a_terminal_has_100_columns(monkeypatch) -> None:
    monkeypatch.setenv("TWOFOLD_COLUMNS", "")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert columns() == 100
