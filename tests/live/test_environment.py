"""What programs of others see of our environment: what they need, and no key."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.live.environment import NEEDED, SECRET, is_needed, needed

SECRETS = (
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY"),
    *("AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY", "NVIDIA_API_KEY", "OURS"),
    *("VLLM_API_KEY", "HF_HUB_TOKEN", "PGPASSWORD", "TWOFOLD_TEST_KEY", "SSH_AUTH_SOCK", "CUDA_Passwd"),
    *("TF_VAR_db_pass", "TF_CLI_ARGS", "TF_VAR_dsn", "VLLM_DB_PASS", "NVIDIA_NGC_PAT", "SGLANG_REDIS_PWD"),
    *("HTTPS_PROXY", "OTEL_EXPORTER_OTLP_HEADERS"),  # may hold a name and a password
)
NEEDS = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH"),
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "HF_HOME", "HF_HUB_OFFLINE"),
    *("TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH", "NCCL_PATTERN_FILE"),
    *("NCCL_SOCKET_IFNAME", "TORCHDYNAMO_DISABLE", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM"),
)


@pytest.mark.parametrize("name", SECRETS)
def test_no_program_is_given_a_key_that_nobody_named(name: str) -> None:
    assert needed({name: "secret", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize("name", NEEDS)
def test_a_program_is_given_what_it_needs(name: str) -> None:
    assert needed({name: "here"}) == {name: "here"}


@given(
    st.sampled_from([each for each in NEEDED if "*" in each]), st.sampled_from(SECRET), st.text(max_size=8)
)
def test_no_wildcard_lets_a_name_through_that_says_what_it_is(pattern: str, word: str, more: str) -> None:
    assert not is_needed(pattern.replace("*", f"{more}{word}"))
    assert not is_needed(pattern.replace("*", f"{word.lower()}{more}"))


def test_an_engine_sees_no_key_and_the_gateway_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    psutil = pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")
    from twofold.live.processes import start, stop_all

    for name in SECRETS:
        monkeypatch.setenv(name, "of-the-operator")
    waits = [sys.executable, "-c", "import sys, threading; threading.Event().wait()"]
    try:
        engine = start(waits, "replica-0", tmp_path, environment={"OMP_NUM_THREADS": "1"})
        gateway = start(waits, "gateway", tmp_path, is_ours=True)
        seen = {each.role: _environment(psutil, each.process_id) for each in (engine, gateway)}
    finally:
        stop_all(tmp_path, at_once=True)
    assert "of-the-operator" not in seen["replica-0"].values()
    assert seen["replica-0"]["OMP_NUM_THREADS"] == "1" and seen["replica-0"]["PATH"] == os.environ["PATH"]
    assert seen["gateway"]["OURS"] == "of-the-operator"


def _environment(psutil, process_id: int) -> dict[str, str]:
    """A program that is just being started has none for an instant."""
    while not (found := psutil.Process(process_id).environ()):
        pass
    return found
