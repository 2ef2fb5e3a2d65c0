"""`measure serve` and `measure import` from words to page, rows and exit code."""

import csv
import json
import os
import stat
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.fake_nvidia import nvidia_smi
from tests.gateway_log import gateways_log
from tests.openai_service import Service, served
from twofold.app.measure_serving import What, Where, _device_beside, measure_import, measure_serve
from twofold.app.measured_rows import calibrate, predict
from twofold.app.sources import DEVICE_FOLDER
from twofold.catalog.catalog import load_catalog
from twofold.cli import main
from twofold.core.errors import InputError, UsageError, ValueRefusedError
from twofold.measure.inference_rows import read_case
from twofold.measure.served_rows import RunOn
from twofold.perf.constants import load_constants

RAN_ON = RunOn("llama-3.1-8b", "H100-SXM", 1, 1, "vllm", "0.11.0", "bf16")
QUICK = What(clients="2", rate="30", load_for="0.5 s", input="20 tok", output="3 tok")


@pytest.fixture
def extras() -> None:
    for name in ("aiohttp", "httptools", "psutil", "uvicorn", "uvloop"):
        pytest.importorskip(name, reason="needs the extra [live]: `make extras`")


@pytest.mark.usefixtures("extras")
def test_rows_of_a_model_of_ones_own_name_its_config_and_are_taken_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are what the row says: fp32 is not narrowed, as what is merely published in fp32 is."""
    out, config = tmp_path / "rows.csv", Path("examples/laptop/config.json").resolve()
    monkeypatch.chdir(config.parent)
    with served(Service(gap_s=0.01)) as service:
        measure_serve(
            service.url, Where(), QUICK, RunOn("config.json", "H100-SXM", 2, 1, weights_format="fp32"), out
        )
    monkeypatch.chdir(tmp_path)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {row["model"] for row in rows} == {str(config)} and "json" not in rows[0]["id"]
    predicted = predict("inference", out, tmp_path / "predicted.csv")
    assert (predicted.row_count, predicted.refused) == (2, {})
    assert calibrate(out, tmp_path / "calibration.json").data.rows == 2
    case = read_case(rows[0], load_catalog(), load_constants())
    assert (case.weights_format, case.kv_format, case.model.parameters) == ("fp32", "fp32", 5_770_496)
    unsaid = read_case(rows[0] | {"precision_weights": ""}, load_catalog(), load_constants())
    assert (unsaid.weights_format, unsaid.kv_format) == ("bf16", "bf16")


@pytest.mark.parametrize(
    ("quantised", "held"), [({}, "fp8"), ({"weight_block_size": [128, 128]}, "fp8_block")]
)
def test_fp8_of_a_model_of_ones_own_is_in_blocks_where_its_configuration_says_so(
    tmp_path: Path, quantised: dict[str, object], held: str
) -> None:
    config = json.loads(Path("examples/laptop/config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", **quantised}
    (tmp_path / "config.json").write_text(json.dumps(config))
    row = {"model": f"{tmp_path}/config.json", "gpu": "H100-SXM", "precision_weights": ""}
    assert read_case(row, load_catalog(), load_constants()).weights_format == held


@pytest.mark.usefixtures("extras")
def test_loads_on_a_url_become_a_page_and_rows_that_predict_and_calibrate_take(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    with served(Service(gap_s=0.01)) as service:
        shown = measure_serve(service.url, Where(model="second"), QUICK, RAN_ON, out)
        url = service.url
    text = "\n".join(shown.lines)
    told = [line for line in shown.lines if str(out) not in line]  # which may be as long as it likes
    assert all(len(line) <= 100 for line in told) and shown.exit_code == 0
    for said in (f"{url}/v1/completions", "closed-2", "open-30", "TTFT", "p99 [90 %]", "LOADER", "KNEE"):
        assert said in text
    assert "latencies count from when a request was due" in text and f"wrote {out}" in text
    assert "assumed" not in text  # the service counts its tokens
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["id"] for row in rows] == ["llama-3.1-8b-closed-2", "llama-3.1-8b-open-30"]
    # 64 tokens are asked at four characters, counted as 128: of 20 tokens later prompts have 40 characters.
    assert [row["isl_mean"] for row in rows] == ["20", "20"]
    predicted = predict("inference", out, tmp_path / "predicted.csv")
    assert (predicted.row_count, predicted.stated_count, predicted.refused) == (2, 2, {})
    assert calibrate(out, tmp_path / "calibration.json").data.rows == 2
    data = json.loads(shown.json)
    assert (
        data["schema"] == "twofold/measure-serve/1"
        and data["loads"][0]["sent"] == data["loads"][0]["finished"]
    )


@pytest.mark.usefixtures("extras")
def test_r_140_decode_under_sampled_power_tells_tokens_a_joule_of_each_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's tool is a script that tells 100 W: more clients make more tokens of the same power."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!{sys.executable}\nprint('100.0')\n")
    tool.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with served(Service(gap_s=0.02)) as service:
        shown = measure_serve(service.url, None, replace(QUICK, clients="1,4", rate="", load_for="2 s"))
    one, four = (each for each in json.loads(shown.json)["loads"] if each["name"].startswith("closed"))
    for load in (one, four):
        assert 1 / load["joules_per_token"] == pytest.approx(load["output_tokens_per_s"] / 100.0, rel=0.3)
    assert four["joules_per_token"] < one["joules_per_token"] / 2
    assert "tokens a joule" in "\n".join(shown.lines)


@pytest.mark.usefixtures("extras")
def test_a_key_comes_from_the_environment_and_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "a-secret-key")
    what = What(clients="1", load_for="0.1 s", output="2 tok")
    with served(Service(key="a-secret-key")) as service:
        shown = measure_serve(service.url, Where(key_env="OUR_KEY"), what)
        assert "a-secret-key" not in "\n".join(shown.lines) + shown.json
        with pytest.raises(ValueRefusedError, match="`NO_KEY`"):
            measure_serve(service.url, Where(key_env="NO_KEY"), what)


@pytest.mark.usefixtures("extras")
def test_what_nobody_counts_or_tells_is_said(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,10,2\n0.1,12,3\n0.2,14,2\n")
    what = What(trace=trace, load_for="1 s")
    with served(Service(characters_per_token=None)) as service:
        text = "\n".join(measure_serve(service.url, None, what).lines)
    assert "replay-1x" in text and "4 characters each, assumed" in text
    assert "fewer than 20 requests finished" in text and "rows do not say" in text
    log = gateways_log(tmp_path / "requests.jsonl")
    with served(Service()) as service:
        shown = measure_serve(service.url, None, What(trace=log, load_for="2 s", scale=5.0))
    assert shown.data.loads[0].sent == 2
    assert any(note.startswith("requests.jsonl: 4 of 6 requests left out") for note in shown.data.notes)


@pytest.mark.usefixtures("extras")
def test_r_172_tokens_per_second_and_watt_are_on_the_page_or_why_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = What(clients="2", load_for="2.2 s", input="20 tok", output="3 tok")
    with served(Service(gap_s=0.01)) as service:
        text = "\n".join(measure_serve(service.url, None, what).lines)
        assert ("a joule (per second and watt)" in text) != ("unknown: this machine tells no power" in text)
        nvidia_smi(tmp_path, monkeypatch, count=2, watts=150.0)
        shown = measure_serve(service.url, None, what)
    (measured,) = shown.data.loads
    assert measured.joules_per_token is not None and measured.energy_source == "NVML"
    assert measured.finished and measured.output_tokens
    energy_j = measured.joules_per_token * measured.finished * measured.output_tokens
    assert (
        300.0 * 0.9 < energy_j < 300.0 * 4.0
    )  # two of 150 W, for the time between the first and the last look
    assert "a joule (per second and watt)" in "\n".join(shown.lines) and "NVML" in "\n".join(shown.lines)


@pytest.mark.parametrize(
    ("word", "name", "near"),
    [
        ("--as", "llama-3.1-8c", "`llama-3.1-8b`"),
        ("--gpu", "H100-SMX", "`H100-SXM5-80GB`"),
        ("--engine", "vlm", "`vllm`"),
        ("--weights", "bf61", "`bf16`"),
        ("--weights", "nonsense", "formats: bf16"),
    ],
)
def test_a_name_that_no_row_could_be_predicted_by_is_refused_with_the_nearest(
    word: str, name: str, near: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.csv"
    for line in (["import", "tests/measure/vllm-result.json"], ["serve", "http://127.0.0.1:9"]):
        if line[0] == "serve" and find_spec("aiohttp") is None:
            continue
        assert main(["measure", *line, word, name, "--out", str(out)]) == 2
        said = capsys.readouterr().err
        assert f"`{word} {name}`" in said and near in said and not out.exists()


@pytest.mark.usefixtures("extras")
def test_a_service_that_refuses_all_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["measure", "serve", "http://127.0.0.1:9", "--json"]
    assert main(line) == 2
    failure = json.loads(capsys.readouterr().out)
    assert failure["errors"][0]["code"] == "E-value" and "127.0.0.1:9" in failure["errors"][0]["message"]
    with served(Service(key="k")) as service:
        assert main(["measure", "serve", service.url, "--model", "first"]) == 2
    assert "--key-env" in capsys.readouterr().err


@pytest.mark.usefixtures("extras")
def test_the_command_line_takes_every_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    with served(Service()) as service:
        words = (
            f"measure serve {service.url} --model second --api chat --clients 1,2 --rate 20 --burst 2"
            " --for 300ms --input 30 --output 2 --seed 5 --ttft-p95 1s --ignore-eos"
            " --as llama-3.1-8b --gpu H100-SXM --gpus 2 --tp 2 --engine vllm --engine-version 0.11.0"
            f" --weights fp8 --pid {os.getpid()} --out {rows}"
        )
        assert main(words.split()) == 0
    assert {"ignore_eos", "messages"} <= set(service.asked[-1])
    out = capsys.readouterr().out
    assert "bursts-20x2" in out and "MEMORY" in out and "kept 1000 ms" in out
    read = list(csv.DictReader(rows.read_text().splitlines()))
    assert [row["concurrency"] for row in read] == ["1", "2", ""] and read[2]["request_rate_rps"] == "20"
    assert {(row["gpus_total"], row["tp"], row["precision_weights"]) for row in read} == {("2", "2", "fp8")}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"clients": "20000"}, "no list"),
        ({"clients": "few"}, "few"),
        ({"rate": "0"}, "no rate"),
        ({"rate": "many"}, "many"),
        ({"burst": 4}, "at a rate"),
        ({"burst": 4, "rate": "2", "knee": True}, "at a rate"),
        ({"load_for": "0 s"}, "no time"),
        ({"input": "0 tok"}, "no length"),
        ({"scale": 0.0}, "replayed"),
        ({"ttft_p95": "1 s", "e2e_p95": "2 s"}, "one limit"),
    ],
)
@pytest.mark.usefixtures("extras")
def test_loads_that_cannot_be_are_refused_before_anything_is_sent(words: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        measure_serve("http://127.0.0.1:9", None, What(**words))
    assert says in caught.value.message or says in caught.value.hint


def test_a_file_of_another_tool_becomes_rows_and_is_told_how_it_was_loaded(tmp_path: Path) -> None:
    file, out = tmp_path / "result.json", tmp_path / "rows.csv"
    told = {"model_id": "ours", "num_prompts": 10, "request_rate": "inf", "completed": 10, "duration": 5.0}
    told |= {"total_input_tokens": 5000, "total_output_tokens": 1000, "output_throughput": 200.0}
    told |= {"mean_ttft_ms": 40.0, "median_ttft_ms": 35.0, "mean_tpot_ms": 9.0, "median_tpot_ms": 9.0}
    file.write_text(json.dumps(told))
    shown = measure_import(file, RAN_ON, clients=2.0, out=out)
    assert "measured by vllm bench serve" in "\n".join(shown.lines)
    [row] = csv.DictReader(out.read_text().splitlines())
    assert (row["concurrency"], row["ttft_mean_ms"], row["isl_mean"], row["mode"]) == (
        "2",
        "40",
        "500",
        "online",
    )
    assert predict("inference", out, tmp_path / "predicted.csv").stated_count == 1
    assert measure_import(file, rate=3.0).data.loads[0].rate_per_s == 3.0
    file.write_text(json.dumps(told | {"num_prompts": 15}))
    text = " ".join("\n".join(measure_import(file, RAN_ON, clients=2.0, out=out).lines).split())
    assert "closed-2: 5 of 15 requests were refused or failed: that measures a limit or a fault" in text
    with pytest.raises(InputError, match="tier C: context, no measurement of a machine: 10 of 15 finished"):
        calibrate(out, tmp_path / "calibration.json")
    with pytest.raises(UsageError, match="exclude"):
        measure_import(file, clients=1.0, rate=1.0)


def test_rows_in_a_specs_state_are_of_the_device_that_was_measured_for_it_and_others_of_this_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("spec", "here", ""):
        folder = tmp_path / name / DEVICE_FOLDER
        folder.mkdir(parents=True)
        (folder / "device.json").touch()
    monkeypatch.chdir(tmp_path / "here")
    here = tmp_path / "here" / DEVICE_FOLDER
    assert _device_beside(tmp_path / "spec" / ".twofold" / "rows.csv") == tmp_path / "spec" / DEVICE_FOLDER
    assert _device_beside(None) == _device_beside(Path("rows.csv")) == here  # and not of the folder above
    assert _device_beside(tmp_path / "other" / ".twofold" / "rows.csv") == here


def test_what_a_models_own_path_lacks_is_said_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("examples/laptop").resolve()
    (tmp_path / "our").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    named = "model,gpu,gpus_total,precision_weights,tp,isl_mean,osl_mean,concurrency"
    os.mkfifo("pipe.json")
    Path("half.json").write_text("{\n")
    none = ("a" * 300, "./" + "a" * 300, "~nobody-is-called-so/our", "./a\0b.json", "pipe.json", "half.json")
    models = ("our", "./our", "./our/none.json", *none, f"{folder}/config.json")
    lines = [named, *(f"{model},H100-SXM,1,bf16,1,100,10,2" for model in models)]
    Path("rows.csv").write_text("\n".join(lines) + "\n")
    predict("inference", Path("rows.csv"), Path("out.csv"))
    said = [row["pred_error"] for row in csv.DictReader(Path("out.csv").read_text().splitlines())]
    assert said[0].startswith("E-name: unknown model `our`; write `./our`")
    assert said[1] == said[-1] == ""
    assert said[2].startswith("E-model: our/none.json:1:1: cannot read the file: No such file")
    assert said[3].startswith("E-name: unknown model `aaa") and said[6].startswith("E-name: unknown model")
    assert "File name too long" in said[4] and "cannot read the file: No such file" in said[5]
    assert said[7].startswith("E-model: pipe.json:1:1: this is no file")
    assert said[8].startswith("E-model: half.json:2:1: not JSON")
