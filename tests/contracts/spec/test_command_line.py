"""Lines of engines as people run them, read to vLLM's names of the options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.names import Names
from twofold.contracts.spec.command_line import PROGRAMS, read_command
from twofold.contracts.spec.inferring import infer_spec
from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InferenceSourceError, TwofoldError

LINES = {
    "vllm": "vllm serve org/m -tp 4 --max-num-seqs 64 --max-model-len 8k",
    "sglang": "python3 -m sglang.launch_server --model-path org/m --tp 4 --max-running-requests 64 "
    "--context-length 8k",
    "tensorrt-llm": "trtllm-serve serve org/m --tp_size 4 --max_batch_size 64 --max_seq_len 8k",
}


@pytest.mark.parametrize("engine", LINES)
def test_engines_call_the_same_options_otherwise(engine: str) -> None:
    line = read_command(LINES[engine], None)
    assert line.engine == engine
    assert dict(line.options) == {
        "model": "org/m",
        "tensor-parallel-size": "4",
        "max-num-seqs": "64",
        "max-model-len": "8k",
    }


def test_slots_of_llama_cpp_share_the_context(names: Names) -> None:
    text = infer_spec("llama-server -m org/llama-3.1-8b -np 4 -c 8192 --cache-type-k q8_0", names)
    assert "within --max-model-len 2048" in text
    assert "kv_quantisation: [int8]" in text
    assert parse_spec(text, "twofold.yaml", names).services[0].engine == "llama.cpp"


@pytest.mark.parametrize(
    "script",
    [
        'MODEL=org/m\nvllm serve "$MODEL" --port 1',
        'MODEL="${MODEL:-org/m}"  # ours\nvllm serve ${MODEL} --port 1',
        'export MODEL=org/m\noptions=(--port 1)  # all\nexec vllm serve "$MODEL" "${options[@]}" "$@"',
        '# vllm serve other\noptions=(\n  org/m  # (which) it is\n  --port 1\n)\nvllm serve "${options[@]}"',
        'vllm serve "${MODEL:-org/m}" \\\n  --port 1',
    ],
)
def test_a_script_is_read_as_a_shell_reads_it(script: str) -> None:
    assert dict(read_command(script, None).options) == {"model": "org/m", "port": "1"}


def test_variables_of_variables_end() -> None:
    line = read_command('A="$B"\nB="$A$A"\nvllm serve "$A"', None)
    assert len(line.options["model"]) < 1_000_000


def test_a_comment_starts_nothing() -> None:
    with pytest.raises(InferenceSourceError, match="no line starts an engine"):
        read_command("# vllm serve org/m\n", None)


@given(
    engine=st.sampled_from([*PROGRAMS]),
    word=st.text(max_size=40),
    value=st.text(max_size=20),
    body=st.text(max_size=30),
)
def test_no_script_breaks_the_reader(engine: str, word: str, value: str, body: str) -> None:
    program = {"vllm": "vllm serve", "sglang": "sglang serve", "tensorrt-llm": "trtllm-serve"}
    begins = program.get(engine, "llama-server" if engine == "llama.cpp" else "transformers serve")
    for script in (f"{begins} {word}", f"M={value}\no=(\n{body}\n)\n{begins} $M ${{o[@]}} {word}"):
        try:
            text = infer_spec(script, Names())
        except TwofoldError as error:
            assert error.exit_code == 2
        else:
            assert len(parse_spec(text, "twofold.yaml", Names()).services) == 1
