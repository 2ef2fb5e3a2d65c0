"""A pool in the words of each engine."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rendered import after, texts, with_replica, words_of
from twofold.app.loop_settings import serve_settings
from twofold.app.loop_stages import engine_settings
from twofold.app.sources import names_of
from twofold.catalog.catalog import Catalog
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.inferring import infer_spec
from twofold.contracts.spec.reader import parse_spec, read_spec
from twofold.core.errors import ValueRefusedError
from twofold.live.control.engines import PROCESSOR_ENVIRONMENT, engine_command
from twofold.perf.software import engine_called
from twofold.rendering.engines import ENGINES

ROOT = Path(__file__).parents[2]
LAID_OUT = {
    "accelerator_count": 8,
    "tp": 4,
    "pp": 2,
    "weights_format": "fp8",
    "kv_format": "fp8",
    "max_batch": 77,
}


def script(plan: Plan) -> str:
    return next(text for path, text in texts(plan, "shell").items() if "serve" in path)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_cannot_say_is_said_to_be_lost(
    engine: str, examples: dict[str, Plan], tmp_path: Path
) -> None:
    """Every decision about a replica is on the line, or in the head of the file."""
    text = script(with_replica(examples["finetune"], engine=engine, **LAID_OUT))
    words, lost = words_of(text, tmp_path), [line for line in text.splitlines() if line.startswith("# lost")]
    said, missing = " ".join(words), " ".join(lost)
    assert "weights" in words
    assert ("fp8" in said) or ("fp8" in missing) or engine in ("trtllm", "tensorrt-llm")
    assert ("4" in words) or ("device" in missing)
    assert ("77" in words) or engine == "transformers"


def test_vllm_gets_sizes_formats_and_limits(examples: dict[str, Plan], tmp_path: Path) -> None:
    words = words_of(script(with_replica(examples["finetune"], engine="vllm 0.15.0", **LAID_OUT)), tmp_path)
    assert words[:3] == ["vllm", "serve", "weights"]
    said = {
        "--tensor-parallel-size": "4",
        "--pipeline-parallel-size": "2",
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8",
        "--max-num-seqs": "77",
        "--max-num-batched-tokens": "2048",
    }
    assert {flag: after(words, flag) for flag in said} == said


def test_formats_that_a_checkpoint_must_bring_are_said(examples: dict[str, Plan]) -> None:
    assert "weights in nvfp4 are made beforehand" in script(
        with_replica(examples["finetune"], weights_format="nvfp4")
    )


def test_an_engine_that_nobody_knows_is_refused_with_those_that_are(examples: dict[str, Plan]) -> None:
    with pytest.raises(ValueRefusedError, match="lmdeploy") as caught:
        script(with_replica(examples["finetune"], engine="lmdeploy"))
    assert "sglang" in caught.value.hint


def test_up_starts_a_replica_by_the_very_line_that_is_rendered(
    examples: dict[str, Plan], tmp_path: Path
) -> None:
    """All of it but the address: `up` keeps to loopback and gives each replica a port that is free."""
    rendered = words_of(script(examples["laptop"]), tmp_path)
    spec = read_spec(ROOT / "examples" / "laptop" / "twofold.yaml")
    stand_in = tmp_path / "transformers"  # the extras may not be there
    stand_in.touch(0o755)
    told = engine_settings(serve_settings(spec, 12.0, str(stand_in)), Path("weights"))
    program, *started = [*engine_command(told), "--port", "9000"]
    assert [Path(program).name, *without_address(started)] == without_address(rendered)
    assert (after(started, "--host"), after(rendered, "--host")) == ("127.0.0.1", "0.0.0.0")


def without_address(words: list[str]) -> list[str]:
    """Without `--host` and `--port` and what stands behind them."""
    at = [place + more for more in (0, 1) for place, word in enumerate(words) if word in ("--host", "--port")]
    return [word for place, word in enumerate(words) if place not in at]


def test_a_rendered_replica_on_processors_has_the_environment_of_up(examples: dict[str, Plan]) -> None:
    for name, value in PROCESSOR_ENVIRONMENT.items():
        assert f"export {name}={value}" in script(examples["laptop"])
        manifest = next(
            text for path, text in texts(examples["laptop"], "kubernetes").items() if "serve" in path
        )
        assert f"- name: {name}\n" in manifest
        (compose,) = texts(examples["laptop"], "compose").values()
        assert f"{name}: " in compose
        assert name not in script(with_replica(examples["finetune"], engine="transformers"))


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=25)
@given(
    model=st.sampled_from(["llama-3.1-8b", "qwen3-32b", "deepseek-v3"]),
    weights=st.sampled_from(["bf16", "fp8", "int4", "nvfp4", "mxfp4"]),
    cache=st.sampled_from(["bf16", "fp8"]),
    sizes=st.sampled_from([(1, 1, 1), (2, 1, 1), (8, 1, 1), (4, 2, 1), (2, 1, 4)]),
    batch=st.integers(1, 2000),
)
def test_what_is_rendered_is_read_back(
    engine: str,
    model: str,
    weights: str,
    cache: str,
    sizes: tuple[int, int, int],
    batch: int,
    catalog: Catalog,
    examples: dict[str, Plan],
) -> None:
    """`init --from` of a script: the same model, engine, formats and accelerators of a replica."""
    tp, pp, dp = sizes
    laid_out = {"tp": tp, "pp": pp, "dp": dp, "accelerator_count": tp * pp * dp, "max_batch": batch}
    plan = with_replica(
        examples["finetune"], engine=engine, weights_format=weights, kv_format=cache, **laid_out
    )
    service = plan.serving[0]
    pool = replace(service.pools[0], model=model)
    text = script(replace(plan, serving=(replace(service, model=model, pools=(pool,)),)))
    names = names_of(catalog)
    for source in (text, re.sub(r"^# .*, on .*$", "#", text, flags=re.M)):
        spec = infer_spec(source, names)
        read = parse_spec(spec, "twofold.yaml", names).services[0]
        assert catalog.model(read.model.name).name == model
        assert engine_called(read.engine, catalog) == engine_called(engine, catalog)
        if engine in ("vllm", "sglang"):
            native = catalog.model(model).native_format
            assert read.quantisation == ((weights,) if weights == "bf16" or weights != native else ())
            assert read.kv_quantisation == (("fp8",) if cache == "fp8" else ())
        if source == text:
            assert read.on is not None
            assert read.on.accelerators_per_node == tp * pp * dp
            assert read.on.accelerator == service.machine.accelerator
        elif engine not in ("llama.cpp", "transformers"):
            assert f"# on: {tp * pp * dp}x" in spec  # by the ranks on the line


@pytest.mark.skipif(
    not os.environ.get("TWOFOLD_PARSERS"), reason="engines' own parsers: set TWOFOLD_PARSERS=1"
)
def test_vllm_reads_its_line(examples: dict[str, Plan], tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    words = words_of(script(examples["finetune"]), tmp_path)
    program = (
        "import json, sys; from vllm.utils.argparse_utils import FlexibleArgumentParser; "
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser; "
        "make_arg_parser(FlexibleArgumentParser()).parse_args(json.loads(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", program, json.dumps(words[2:])], check=True)
