"""Whatever a user gets wrong ends in a coded message and an exit code (INV-8), kept as a transcript."""

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_spec import SMALL
from twofold.cli import main
from twofold.cli.entry import _fail
from twofold.core.errors import ValueRefusedError

MODEL_WHOSE_HEADS_DO_NOT_DIVIDE = """\
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 4,
 "num_attention_heads": 32, "num_key_value_heads": 5, "intermediate_size": 11008, "vocab_size": 32000}
"""


def changed(*changes: tuple[str, str]) -> bytes:
    """The good spec with some of its text replaced."""
    text = SMALL
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text.encode()


def alias_bomb() -> bytes:
    levels = (f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    return b"l0: &l0 [lol, lol]\n" + "".join(levels).encode()


BROKEN = {
    "alias-bomb": alias_bomb(),
    "batch-does-not-divide": changed(("global_batch: 64 seq", "global_batch: 100 ktok")),
    "binary": bytes(range(256)) * 8,
    "broken-yaml": b"name: [open\nmodel: x\n",
    "control-characters": changed(("name: small", 'name: "\\e[31msmall"')),
    "deep-nesting": b"a: " + b"[" * 500 + b"]" * 500,
    "duplicate-key": changed(("  sequence: 4096 tok", "  sequence: 4096 tok\n  tokens: 2 Gtok")),
    "empty": b"",
    "huge-value": changed(("name: small", f"name: {'x' * 5000}")),
    "infinite": changed(("tokens: 1 Gtok", "tokens: inf tok")),
    "many-errors": changed(("deadline:", "dedline:"), ("ttft_p95: 1 s", "ttft_p95: 500"), ("2x", "2")),
    "missing-key": changed(("model: llama-3.1-8b\n", "")),
    "missing-unit": changed(("ttft_p95: 1 s", "ttft_p95: 500")),
    "negative": changed(("rate: 2 /s", "rate: -2 /s")),
    "no-traffic": changed(("rate: 2 /s, ", "")),
    "not-a-mapping": b"- a list\n- of things\n",
    "not-a-number": changed(("deadline: 10 d", "deadline: nan d")),
    "nothing-to-plan": b"name: empty\nmodel: llama-3.1-8b\n",
    "only-comments": b"# nothing yet\n",
    "overflow": changed(("tokens: 1 Gtok", "tokens: 1e999 tok")),
    "unknown-accelerator": changed(("1xH100-SXM\n  classes", "1xH100-SMX\n  classes")),
    "unknown-key": changed(("deadline:", "dedline:")),
    "unknown-model": changed(("llama-3.1-8b", "llama-3.1-8bb")),
    "wrong-unit": changed(("deadline: 10 d", "deadline: 10 GB")),
    "zero-budget": SMALL.encode() + b"supply: {budget: 0 $}\n",
    "zero-rate": changed(("rate: 2 /s", "rate: 0 /s")),
}
INFEASIBLE = {
    "deadline-nothing-meets": changed(("deadline: 10 d", "deadline: 1 min")),
    "model-does-not-fit": changed(("model: llama-3.1-8b", "model: llama-3.1-405b")),
    "slo-below-physics": changed(("tpot_p95: 50 ms", "tpot_p95: 1 us")),
    "tiny-budget": SMALL.encode() + b"supply: {budget: 1 $}\n",
}


CHAT = "rate: 2 /s, peak: 2x, input: 500 tok, output: 100 tok"
GOALS = "{ttft_p95: 1 s, tpot_p95: 50 ms}"
TOO_MUCH = {  # what no world has: (what of the good spec becomes what), exit code, what is said
    "rate": ((("rate: 2 /s", "rate: 1e12 /s"),), 2, "out of range"),
    "ratio": ((("peak: 2x", "peak: 1e300x"),), 2, "out of range"),
    "season": (
        (("name: small", "name: small\nsupply: {seasons: [{months: [dec], factor: 1e300x}]}"),),
        2,
        "out of range",
    ),
    "latency": ((("ttft_p95: 1 s", "ttft_p95: 1e300 s"),), 2, "out of range"),
    "day": ((("name: small", "name: small\nsupply: {start: 9999-12-31}"),), 2, "out of range"),
    "answer": ((("output: 100 tok", "output: 10 Mtok"),), 2, "exceed the context of llama-3.1-8b, 131,072"),
    "prompt": ((("input: 500 tok", "input: 200 ktok"),), 2, "exceed the context of llama-3.1-8b, 131,072"),
    "fleet": ((("rate: 2 /s", "rate: 1e9 /s"),), 3, "no site or market has more than 1,000,000"),
    "moment": (
        (("on: 1xH100-SXM\n  classes", "classes"), (GOALS, "{finish_within: 1 us}")),
        3,
        "accelerators",
    ),
    "training": ((("tokens: 1 Gtok", "tokens: 1e6 Gtok"), ("  deadline: 10 d\n", "")), 0, ""),
}


def assert_readable(text: str) -> None:
    """No traceback, no control character, and no endless line but lists in hints."""
    assert "Traceback" not in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    assert all(len(line) <= 150 or line.startswith("hint:") for line in text.splitlines()), text


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_spec_is_refused_with_a_code_and_a_hint(name, run, golden) -> None:  # INV-8
    Path("spec.yaml").write_bytes(BROKEN[name])
    done = run("twofold check spec.yaml")
    assert (done.code, done.out) == (2, "")
    assert re.search(r"error\[E-[a-z-]+\]: \S", done.err)
    assert_readable(done.err)
    golden(f"check-{name}", done.transcript)


REFUSED = {  # lines about files that are not there, or of another kind, and what the hint says to write
    "init --from missing": "an engine's line or script, a requests.jsonl or a sacct.csv",
    "init --from missing.jsonl": "an engine's line or script, a requests.jsonl or a sacct.csv",
    "predict inference --in missing --out out.csv": "a CSV table of inference runs",
    "registry push folder chat --registry file": "the folder of a registry, or a new one",
    "measure import bytes": "`vllm bench serve --save-result`",
    "measure import missing": "`vllm bench serve --save-result`",
    "validate --lint missing": "CSV in UTF-8",
    "validate --lint bytes": "CSV in UTF-8",
    "validate --lint quote": "around the whole cell",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_refusal_says_what_to_write_instead_and_nothing_of_python(line: str, run) -> None:
    Path("folder").mkdir()
    Path("file").write_text("x")
    Path("bytes").write_bytes(b"\xff\xfe" * 99)
    Path("quote").write_text('model,gpu\n"a')
    done = run(f"twofold {line}")
    assert (done.code, done.out) == (2, "")
    assert REFUSED[line] in " ".join(done.err.partition("hint: ")[2].split())
    assert not re.search(r"Errno|codec|char \d|Traceback", done.err)


@pytest.mark.parametrize("name", INFEASIBLE)
def test_a_plan_that_nothing_meets_says_what_binds(name, run, golden) -> None:
    Path("spec.yaml").write_bytes(INFEASIBLE[name])
    done = run("twofold plan spec.yaml")
    assert done.code == 3 and (done.out == "" or done.out.startswith("\nWITHOUT `"))
    assert done.err.startswith("infeasible: ")
    assert_readable(done.err)
    golden(f"plan-{name}", done.transcript)


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_plan_for_more_than_there_is_answers_or_is_refused(name, run) -> None:  # INV-8
    changes, code, said = TOO_MUCH[name]
    Path("spec.yaml").write_bytes(changed(*changes))
    done = run("twofold plan spec.yaml")
    assert done.code == code and said in " ".join(done.err.split())
    assert "tokens exceed" not in done.err or done.err.startswith("spec.yaml:14:5: ")  # the class
    assert_readable(done.err)


@pytest.mark.parametrize(
    ("was", "written"),
    [
        ("rate: 2 /s", "rate: -2 /s"),
        ("rate: 2 /s", "rate: [1]"),
        ("rate: 2 /s", "rate: null"),
        ("peak: 2x", "peak: nan x"),
        ("peak: 2x", "peak: 200 %"),
        ("input: 500 tok", "input: -5 tok"),
        ("ttft_p95: 1 s", "ttft_p95: 0 s"),
        ("ttft_p95: 1 s", "success: 200 %"),
        ("on: 1xH100-SXM\n", "zones: 200\n"),
        ("on: 1xH100-SXM\n", "on: 1.5xH100\n"),
        ("on: 1xH100-SXM\n", "on: 512xH100-SXM\n"),
        ("on: 1xH100-SXM\n", "engine: vlm\n"),
        ("[fp8]", "[fp7]"),
        ("tokens: 1 Gtok", "tokens: 1e400 Gtok"),
        ("sequence: 4096 tok", "sequence: 4096.5 tok"),
        ("global_batch: 64 seq", "global_batch: -64 seq"),
        ("deadline: 10 d", "deadline: tomorrow"),
        ("name: small", "name: small\nconfidence: 120 %"),
        ("name: small", "name: small\nsupply: {platforms: 1.5}"),
        ("kind: finetune", "framework: megatorn"),
    ],
)
def test_every_bad_value_has_its_place_and_what_to_write_instead(run, was: str, written: str) -> None:
    Path("spec.yaml").write_bytes(changed((was, written)))
    done = run("twofold check spec.yaml")
    assert done.code == 2 and re.match(r"spec\.yaml:\d+:\d+: error\[E-", done.err)
    assert "\nhint: " in done.err and "Input should" not in done.err


def test_a_bad_value_of_an_option_is_told_with_the_option(run) -> None:
    done = run("twofold estimate train llama-3.1-70b --on 64x8xH100-SXM --batch -5")
    assert done.code == 2 and "`--batch -5` is negative\nhint: write for example `10 seq`" in done.err
    done = run("twofold catalog prices --fit 1g.5gb")
    assert done.code == 2 and "hint: " in done.err  # it would have been passed over


def test_what_a_server_said_is_quoted_as_it_said_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The first of two answers named the option, as if the server had."""
    said = '404 {"error":{"message":"There is no model `gpt-4` here"}}'
    error = ValueRefusedError(f"`/chat/completions` {said}; `/completions` {said}")
    assert _fail(error, ["measure", "serve", "URL", "--model", "gpt-4"]) == 2
    assert " ".join(capsys.readouterr().err.split()).count("There is no model `gpt-4` here") == 2


@pytest.mark.parametrize("port", ["22x", "0", "65536", "8700.5"])
def test_a_number_that_an_option_does_not_take_is_told_with_those_that_it_takes(run, port: str) -> None:
    done = run(f"twofold up spec.yaml --port {port}")
    assert (done.code, done.out) == (2, "")
    assert f"'{port}' is no whole number from 1 to 65535" in done.err


def test_a_day_that_no_calendar_has_is_refused(run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("spec.yaml").write_text(SMALL)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "99999999999999")
    done = run("twofold catalog prices")
    assert done.code == 2 and "`SOURCE_DATE_EPOCH=99999999999999` is no day" in done.err


def test_a_rate_at_its_bound_is_planned_by_a_fleet_that_there_is(run) -> None:
    """Ten million requests a second: nothing of it takes longer because there are more machines."""
    training = SMALL[SMALL.index("training:") : SMALL.index("serving:")]
    Path("spec.yaml").write_bytes(changed((training, ""), ("2 /s", "1e7 /s"), ("  on: 1xH100-SXM\n", "")))
    assert run("twofold plan spec.yaml").code == 0


@pytest.mark.parametrize(
    ("file", "content", "spec", "said"),
    [
        (
            "catalog/prices.csv",
            "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,usd_per_accelerator_h,date\n"
            "us,x,L4,8,all,on_demand,100,0.01,2026-11-01\n",
            SMALL,
            "its share of `usd_per_h` 12.5",
        ),
        (
            "quotes.csv",
            f"provider,instance\n{'n' * 200_000}\n",
            f"{SMALL}supply: {{quotes: quotes.csv}}\n",
            "a line of 200,000 characters is no quote",
        ),
        (
            "service.csv",
            "batch_size,service_s,ttft_s\n1,0.01,5\n",
            "serving: {model: {measured: service.csv}, on: 1xL40S, "
            "classes: {s: {traffic: {rate: 100 /s}, slo: {e2e_p95: 50 ms}}}}",
            "the first output after 5 s, all after 0.01 s",
        ),
        (
            "trace.csv",
            "arrival_s,ts,input_tokens,output_tokens\n0,1,2,3\n",
            SMALL.replace(CHAT, "trace: trace.csv"),
            "`arrival_s` and `ts` have one meaning",
        ),
        (
            "trace.csv",
            "arrival_s,arrival_s,input_tokens,output_tokens\n0,1,2,3\n",
            SMALL.replace(CHAT, "trace: trace.csv"),
            "column `arrival_s` stands twice",
        ),
    ],
)
def test_a_table_that_contradicts_itself_is_refused_with_its_line(file, content, spec, said, run) -> None:
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(content)
    Path("spec.yaml").write_text(spec)
    done = run("twofold plan spec.yaml")
    assert done.code == 2 and said in " ".join(done.err.split())
    assert re.match(rf"{re.escape(file)}:\d+:1: error", done.err.removeprefix(f"{Path.cwd()}/"))
    assert_readable(done.err)


def test_traffic_without_spread_is_refused(run) -> None:
    Path("spec.yaml").write_text(SMALL)
    Path("scenario.yaml").write_text("name: s\nhorizon: 8 s\ntraffic: {arrivals: gamma, burstiness: 0x}\n")
    done = run("twofold simulate spec.yaml --scenario scenario.yaml")
    assert done.code == 2 and "`burstiness: 0x` is zero" in done.err


def test_an_infeasible_plan_is_data_with_json(run) -> None:
    Path("spec.yaml").write_bytes(INFEASIBLE["model-does-not-fit"])
    done = run("twofold plan spec.yaml --json")
    error = json.loads(done.out)
    assert (done.code, error["schema"], error["exit_code"]) == (3, "twofold/error/1", 3)
    assert [each["code"] for each in error["errors"]] == ["E-infeasible"] * 2  # both halves
    assert all(each["lines"] for each in error["errors"])


def test_a_half_that_nothing_meets_leaves_a_plan_with_json_and_with_out(run) -> None:
    late = INFEASIBLE["deadline-nothing-meets"]
    Path("my spec.yaml").write_bytes(late)
    done = run("twofold plan 'my spec.yaml' --json --out plan.json")
    kept = json.loads(done.out)
    assert (done.code, kept["schema"]) == (3, "twofold/plan/1") and done.err.startswith("infeasible: ")
    assert [each["name"] for each in kept["infeasible"]] == ["finetune"] and not kept["training"]
    assert kept["serving"] and json.loads(Path("plan.json").read_text())["infeasible"] == kept["infeasible"]
    assert run("twofold explain plan.json serving.serve.cost_usd_per_year").code == 0
    screen = run("twofold plan 'my spec.yaml'")
    assert screen.code == 3 and "twofold plan 'my spec.yaml' --rehearse" in screen.out


def test_every_error_of_a_file_is_told_in_one_pass(run) -> None:
    Path("spec.yaml").write_bytes(BROKEN["many-errors"])
    done = run("twofold check spec.yaml")
    assert done.err.count("error[") == 3
    assert done.err.endswith("3 errors\n")


def test_errors_are_data_with_json(run) -> None:
    Path("spec.yaml").write_bytes(BROKEN["many-errors"])
    done = run("twofold check spec.yaml --json")
    errors = json.loads(done.out)["errors"]
    assert [error["place"]["line"] for error in errors] == [8, 15, 16]
    assert all(error["code"].startswith("E-") and error["message"] for error in errors)


def test_a_file_of_100_mb_is_refused_before_it_is_read(run, golden) -> None:
    with Path("spec.yaml").open("wb") as handle:
        handle.truncate(100_000_000)
    done = run("twofold check spec.yaml")
    assert (done.code, done.out) == (2, "")
    golden("check-100-mb", done.transcript)


def test_a_model_whose_heads_do_not_divide_is_refused(run, golden) -> None:
    Path("config.json").write_text(MODEL_WHOSE_HEADS_DO_NOT_DIVIDE)
    Path("spec.yaml").write_bytes(changed(("llama-3.1-8b", "config.json")))
    done = run("twofold plan spec.yaml")
    assert done.code == 2
    assert "32 heads do not divide by 5" in done.err
    golden("plan-heads-do-not-divide", done.transcript)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing", None),
        ("binary", bytes(range(256))),
        ("empty", b""),
        ("broken", b"arrival_s,input_tokens\n1\n"),
    ],
)
def test_a_trace_that_cannot_be_read_is_refused(name, content, run, golden) -> None:
    if content is not None:
        Path("trace.csv").write_bytes(content)
    traffic = "rate: 2 /s, peak: 2x, input: 500 tok, output: 100 tok"
    Path("spec.yaml").write_bytes(changed((traffic, "trace: trace.csv")))
    done = run("twofold plan spec.yaml")
    assert (done.code, done.out) == (2, "")
    assert_readable(done.err)
    golden(f"plan-trace-{name}", done.transcript)


@pytest.mark.parametrize(
    "line",
    [
        "twofold plan missing.yaml",
        "twofold plan folder",
        "twofold explain spec.yaml training",
        "twofold diff missing.json missing.json",
        "twofold predict training --in missing.csv --out out.csv",
        "twofold predict training --in folder --out out.csv",
        "twofold predict inference --in spec.yaml --out out.csv",
        "twofold catalog modles",
        "twofold catalog accelerators --columns nme",
        "twofold catalog accelerators --where 'memory > 80'",
        "twofold catalog partitions h100 --fit '7g.80gb + 1g.10gb'",
        "twofold catalog accelerators h100",
        "twofold init --from nowhere.xyz --out -",
        "twofold plann spec.yaml",
        "twofold plan",
        "twofold plan spec.yaml --jsn",
        "twofold plan spec.yaml --out folder",
        "twofold plan spec.yaml --out spec.yaml",
        "twofold plan spec.yaml --out nowhere/plan.json",
        "twofold init --kind poem",
    ],
)
def test_a_wrong_command_line_is_told(line, run, golden) -> None:
    Path("folder").mkdir()
    Path("spec.yaml").write_text(SMALL)
    done = run(line)
    assert done.code in {2, 3}
    assert done.out == ""
    assert_readable(done.err)
    golden(f"line-{re.sub(r'[^a-z0-9.]+', '-', line.lower().removeprefix('twofold '))}", done.transcript)


READS = ("plan", "simulate", "explain", "compare", "diff", "report", "render", "check")


def told_of(verb: str, file: str, run) -> str:
    """What stderr says, without its hint, where a verb is given a file."""
    more = {"explain": "training", "diff": file}.get(verb, "")
    done = run(f"twofold {verb} {file} {more}")
    assert (done.code, done.out) == (2, "")
    return str(done.err.split("\nhint:")[0])


@pytest.mark.parametrize("verb", READS)
def test_a_missing_file_is_told_in_the_same_words_by_every_verb(verb: str, run) -> None:
    for file in ("missing.yaml", "missing.json", "missing"):
        assert told_of(verb, file, run).strip() == f"error[E-file]: `{file}` does not exist"


@pytest.mark.parametrize("verb", READS)
def test_a_file_that_may_not_be_read_is_told_by_every_verb(verb: str, run, monkeypatch) -> None:
    """The system's refusal is faked: whoever runs the tests may be allowed everything."""
    opened, known, allowed = Path.open, os.stat, os.access

    def refuse(path: object, name: str) -> None:
        if name in os.fspath(path).split("/"):  # type: ignore[call-overload]
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def opening(self: Path, *words, **more):
        refuse(self, "closed.yaml")
        return opened(self, *words, **more)

    def stat(path, **more):
        refuse(path, "closed")
        return known(path, **more)

    Path("closed.yaml").write_text(SMALL)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", opening)
        patched.setattr(os, "access", lambda path, mode: str(path) != "closed.yaml" and allowed(path, mode))
        own = told_of(verb, "closed.yaml", run)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        inside = told_of(verb, "closed/spec.yaml", run)
    assert own == "error[E-file]: `closed.yaml` may not be read"
    assert inside == "error[E-file]: `closed/spec.yaml` may not be read"


def test_an_existing_file_is_kept_unless_forced(run) -> None:
    Path("twofold.yaml").write_text("mine")
    assert run("twofold init").code == 2
    assert Path("twofold.yaml").read_text() == "mine"
    assert run("twofold init --force").code == 0
    assert run("twofold check twofold.yaml").code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["twofold.yaml"]


def test_a_rendered_file_that_was_edited_is_kept_unless_forced(run) -> None:
    Path("spec.yaml").write_text(SMALL)
    written = run("twofold render spec.yaml --out files")
    assert written.code == 0
    edited = Path(written.out.split("\n")[0].removeprefix("wrote "))
    text = edited.read_text("utf-8")
    edited.write_text("mine", "utf-8")
    done = run("twofold render spec.yaml --out files")
    assert (done.code, done.out) == (2, "") and str(edited) in done.err and "--force" in done.err
    assert edited.read_text("utf-8") == "mine"
    assert run("twofold render spec.yaml --out files --force").code == 0
    assert edited.read_text("utf-8") == text


def test_a_folder_that_may_not_be_written_is_told(run, monkeypatch, golden) -> None:
    """The system's refusal is faked: whoever runs the tests may be allowed everything."""

    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refuse)
        done = run("twofold init")
    assert (done.code, done.out) == (2, "")
    golden("init-read-only-folder", done.transcript)


def test_a_full_disk_is_told_and_leaves_nothing_behind(run, monkeypatch, golden) -> None:
    def fill(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self), None, str(target))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fill)
        done = run("twofold init")
    assert done.code == 2
    assert list(Path().iterdir()) == []
    golden("init-full-disk", done.transcript)


def test_ctrl_c_ends_with_130_and_no_traceback(run, monkeypatch, golden) -> None:
    monkeypatch.setattr("twofold.cli.entry.twofold.invoke", interrupt)
    Path("spec.yaml").write_text(SMALL)
    done = run("twofold plan spec.yaml")
    assert done.code == 130
    golden("plan-ctrl-c", done.transcript)


def interrupt(_: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_while_the_program_still_loads_ends_the_same(monkeypatch, capsys) -> None:
    class Loading:
        run = property(interrupt)

    monkeypatch.setitem(sys.modules, "twofold.cli.entry", Loading())
    assert main(["plan", "spec.yaml"]) == 130
    assert capsys.readouterr().err == "\nstopped by Ctrl-C\n"


def test_our_own_bug_is_called_one_and_tells_how_to_see_more(run, monkeypatch) -> None:
    def break_down(_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("twofold.cli.entry.twofold.invoke", break_down)
    done = run("twofold check spec.yaml")
    assert done.code == 1
    assert "our bug" in done.err and "Traceback" not in done.err
    monkeypatch.setenv("TWOFOLD_DEBUG", "1")
    assert "Traceback" in run("twofold check spec.yaml").err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = f"{sys.executable} -m twofold catalog models --columns all | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.strip().startswith("name")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("check spec.yaml --json > /dev/full", 2, "no space left"),
        ("check spec.yaml > /dev/full", 2, "no space left"),
        ("check spec.yaml --json >&-", 2, "standard output is closed"),
        ("check missing.yaml --json > /dev/full", 2, "does not exist"),
        ("check missing.yaml --json <&- >&- 2>&-", 2, ""),
        ("check missing.yaml 2> /dev/full", 2, ""),
        ("plan far.yaml --json > /dev/full", 3, "infeasible"),
        ("catalog prices --json > cut", 2, "too large"),  # half of it fits
    ],
)
def test_output_that_is_lost_keeps_the_exit_contract(
    tmp_path: Path, line: str, code: int, said: str, unbuffered: str
) -> None:
    (tmp_path / "spec.yaml").write_text(SMALL)
    (tmp_path / "far.yaml").write_text(SMALL.replace("10 d", "1 us"))
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 2; {sys.executable} -m twofold {line}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr and "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "plan spec.yaml",
        "compare spec.yaml",
        "explain plan.json serving.serve.cost_usd_per_year",
        "diff plan.json plan.json",
        "estimate collective all_reduce --size '1 GB' --on 8xH100-SXM",
        "catalog models",
        "claims --only S0-22",
        "init --kind chat --out -",
        "check missing.yaml",
        "plan far.yaml",
    ],
)
@pytest.mark.parametrize("how", ["", " --json"])
def test_no_verb_breaks_the_exit_contract_where_its_output_is_lost(
    line: str, how: str, run, monkeypatch
) -> None:
    Path("spec.yaml").write_text(SMALL)
    Path("far.yaml").write_text(SMALL.replace("10 d", "1 us").partition("serving:")[0])
    assert run("twofold plan spec.yaml --out plan.json").code == 0
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        code = main(shlex.split(line + how))
        assert code == (3 if "far" in line else 2)
        monkeypatch.undo()


def test_a_link_whose_folder_is_missing_is_refused_before_the_work(run, tmp_path: Path) -> None:
    (tmp_path / "out.json").symlink_to(tmp_path / "gone" / "out.json")
    done = run("twofold plan nowhere.yaml --out out.json")
    assert done.code == 2 and "gone` does not exist" in " ".join(done.err.split())


@pytest.mark.parametrize(
    "line",
    [
        "twofold plan nowhere.yaml --out closed/plan.json",
        "twofold report nowhere.yaml -o closed/page.html",
        "twofold render nowhere.yaml --out closed",
        "twofold render nowhere.yaml --out closed/new/files",
    ],
)
def test_a_closed_folder_is_refused_before_the_work(run, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """The system's answer is faked: whoever runs the tests may be allowed everything."""
    Path("closed").mkdir()
    closed, allowed = Path("closed").absolute(), os.access

    def access(path: str | Path, mode: int) -> bool:
        return not (mode & os.W_OK and Path(path).absolute() == closed) and allowed(path, mode)

    monkeypatch.setattr(os, "access", access)
    done = run(line)
    assert (done.code, done.out) == (2, "") and "nowhere" not in done.err
    assert "closed` may not be written to" in " ".join(done.err.split())
    assert list(Path("closed").iterdir()) == []


def test_a_folder_below_a_file_is_refused_before_the_work(run) -> None:
    Path("file").write_text("")
    done = run("twofold render nowhere.yaml --out file/files")
    assert done.code == 2 and "file` is no folder" in " ".join(done.err.split())


def test_ctrl_c_of_a_real_process_ends_with_130() -> None:
    program = """if True:
        import os, signal, sys, threading
        import twofold.cli as cli, twofold.cli.entry as entry

        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs this behind

        def press_ctrl_c(context):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()  # for ever, were it not for the signal

        entry.twofold.invoke = press_ctrl_c
        sys.exit(cli.main(["check", "x"]))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["check", "report", "calibrate", "validate --lint", "measure import"])
def test_a_named_pipe_is_refused_before_anybody_waits_for_it(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main([*words.split(), str(pipe)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "is a pipe, a socket or a device" in said and "write what it gives to a file" in said


@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_what_a_shell_hands_over_is_read(name: str) -> None:
    """`cat table.csv | twofold validate --lint /dev/stdin`."""
    command = [sys.executable, "-m", "twofold", "validate", "--lint", name]
    done = subprocess.run(command, input="nothing of a table\n", capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "holds no rows" in done.stderr
