"""Whatever stands behind an option or in a file, the answer is a refusal and never a bug of ours (INV-8)."""

import csv
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.cli.running import twofold

GOOD = """name: x
model: llama-3.1-8b
serving:
  classes:
    chat:
      traffic: {rate: 2 /s, input: {mean: 600 tok}, output: {mean: 150 tok}}
      slo: {ttft_p95: 1 s}
  on: 1xL4
"""
HEADER = "model,gpu,gpus_total,framework,tp,isl_mean,osl_mean,concurrency"
ROWS = f"{HEADER}\nllama-3.1-8b,h100,1,vllm,1,1000,200,16\n"
LINES = (  # a good line of each verb that neither starts processes nor takes seconds
    "check good.yaml",
    "catalog accelerators",
    "predict inference --in rows.csv --out out.csv --force",
    "estimate train llama-3.1-8b --on 8xH100-SXM --batch '64 seq'",
    "estimate serve llama-3.1-8b --on 1xH100-SXM --input 1000 --output 100 --concurrency 4",
    "estimate collective all_reduce --size '1 GB' --on 8xH100-SXM",
    "estimate compute --on 8xH100-SXM --for '1 d' --mfu '40 %'",
    "estimate roofline llama-3.1-8b --on H100-SXM",
)
WORDS = (
    *("nan", "inf", "-inf", "-1", "0", "1e308", "1e-308", "", "x", "\0", "\ud800", "é" * 300, "[", "=", ",,"),
    *(
        "nan tok",
        "1e308 tok",
        "-1 s",
        "0 /s",
        "1e308 /s",
        "nan %",
        "0x",
        "nan..3",
        "5..1",
        "-1 $",
        "1e308 GB",
    ),
    *("0xH100", "-1xH100", "nanxH100", "99999999999999999999xH100", "1e308xH100"),
    *("bytes", "latin.yaml", "empty", "deep.yaml", "deeper.yaml", "deep.json", "twice.yaml", "big.yaml"),
    *("null.yaml", "list.yaml", "folder", "loop", "missing", "/dev/null", "bad.csv"),
)


def hostile_files() -> None:
    Path("good.yaml").write_text(GOOD)
    Path("rows.csv").write_text(ROWS)
    Path("bytes").write_bytes(bytes(range(256)))
    Path("latin.yaml").write_bytes("name: café\n".encode("latin-1"))
    Path("empty").write_text("")
    Path("deep.yaml").write_text("a: " + "[" * 5000 + "]" * 5000)
    Path("deeper.yaml").write_text("".join(f"{' ' * depth}a:\n" for depth in range(300)))
    Path("deep.json").write_text("[" * 100_000)
    Path("twice.yaml").write_text("name: x\nname: y\n")
    Path("big.yaml").write_text("name: x\n" + "".join(f"k{each}: 1\n" for each in range(20_000)))
    Path("null.yaml").write_text("null\n")
    Path("list.yaml").write_text("- a\n")
    Path("folder").mkdir(exist_ok=True)
    if not os.path.lexists("loop"):
        Path("loop").symlink_to("loop")
    head, numbers = HEADER, ("nan", "inf", "-1", "0", "1e308", "1e-300", "x")
    rows = (",".join(["llama-3.1-8b", "h100", *[number] * 6]) for number in numbers)
    Path("bad.csv").write_text("\n".join([head, *rows]))


def options_of(line: str) -> Iterator[str]:
    """The options of a line's verb that take a word."""
    verb, *rest = line.split()
    command = twofold.get_command(click.Context(twofold), verb)
    command = command.commands[rest[0]] if isinstance(command, click.Group) else command
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_flag:
            yield max(parameter.opts, key=len)


CASES = [(line, name) for line in LINES for name in ("", *options_of(line))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=st.sampled_from(CASES), word=st.sampled_from(WORDS))
def test_no_word_behind_an_option_is_our_bug(run_words, case: tuple[str, str], word: str) -> None:

    hostile_files()
    line, option = case
    words = shlex.split(line)
    if not option:  # the last argument before the options
        first = next((at for at, each in enumerate(words) if each.startswith("-")), len(words))
        words[first - 1] = word
    elif option in words:
        words[words.index(option) + 1] = word
    else:
        words += [option, word]
    done = run_words(words)
    assert done.code in {0, 2, 3, 4}, done
    assert "Traceback" not in done.err and "RuntimeWarning" not in done.err


@pytest.mark.parametrize("line", LINES[3:5])
@pytest.mark.parametrize("ratio", ["nan", "inf", "0.5", "-1", "1e308"])
def test_an_oversubscription_that_no_fabric_has_is_refused(run, line: str, ratio: str) -> None:
    done = run(f"twofold {line} --oversubscription {ratio}")
    assert done.code == 2 and "error[E-value]: an oversubscription of" in done.err


@pytest.mark.parametrize(
    ("half", "column"), [("inference", "isl_mean"), ("inference", "tp"), ("training", "layers")]
)
def test_a_cell_that_no_run_can_have_is_no_number(run, half: str, column: str) -> None:
    needs = "model,gpu" if half == "inference" else "model,gpu,gpus,seq_len"
    cells = "llama-3.1-8b,h100" if half == "inference" else "llama-3.1-8b,h100,8,4096"
    numbers = ("nan", "inf", "-1", "1e308", "1e-300", "1e30")
    Path("rows.csv").write_text("\n".join([f"{needs},{column}", *(f"{cells},{one}" for one in numbers)]))
    for verb in (f"predict {half} --in rows.csv --out out.csv", "calibrate rows.csv --out out.json"):
        assert run(f"twofold {verb} --force").code in (0, 2)


HOSTILE = Path(__file__).resolve().parents[3] / "shared" / "design" / "hostile"
MOST_CPU_S = 5.0


def test_every_kept_reproduction_ends_as_expected_within_seconds(run_words) -> None:  # INV-8
    table = HOSTILE / "expected.csv"
    if not table.exists():
        pytest.skip(f"needs ../shared/design/hostile/{table.name}")
    with table.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert rows
    examples = Path(__file__).parents[2] / "examples"
    for row in rows:
        words = row["command"].replace("examples", str(examples)).split()
        begun_s = time.process_time()
        done = run_words([*words, str(HOSTILE / row["file"])])
        assert str(done.code) in row["codes"].split(";"), done
        assert time.process_time() - begun_s < MOST_CPU_S, done.line
        assert "Traceback" not in done.err
