"""`up` and `down` around their stages: one at a time, enough memory, specs that cannot run here."""

from pathlib import Path

import pytest

from twofold.app import alone, need_memory
from twofold.app.loop_settings import serve_settings, train_settings
from twofold.app.sources import load
from twofold.core import BusyError, MemoryShortError, ValueRefusedError

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop" / "twofold.yaml"


def changed(tmp_path: Path, old: str, new: str) -> Path:
    """The example with one piece of text replaced, beside its model."""
    text = EXAMPLE.read_text("utf-8")
    assert old in text
    (tmp_path / "config.json").write_text((EXAMPLE.parent / "config.json").read_text("utf-8"), "utf-8")
    (tmp_path / "twofold.yaml").write_text(text.replace(old, new), "utf-8")
    return tmp_path / "twofold.yaml"


def test_one_works_on_a_state_at_a_time_and_the_next_may(tmp_path: Path) -> None:
    state = tmp_path / ".twofold"
    with alone(state), pytest.raises(BusyError, match="another `twofold` works"), alone(state):
        pass
    with alone(state):
        assert state.is_dir()


def test_memory_is_counted_per_process() -> None:
    need_memory(2, 2_000_000_000)
    with pytest.raises(
        MemoryShortError, match=r"2 processes need 2\.0 GB of memory; 1\.5 GB are free"
    ) as caught:
        need_memory(2, 1_500_000_000)
    assert caught.value.exit_code == 3


def test_the_example_becomes_one_run_that_loses_a_worker_between_two_checkpoints() -> None:
    settings = train_settings(load(EXAMPLE).spec)
    assert settings.rank_count == 2
    assert settings.config.is_file()
    assert settings.kill_after_step is not None
    assert settings.kill_after_step % settings.checkpoint_every_steps > 0
    assert settings.checkpoint_every_steps < settings.kill_after_step < settings.steps


def test_the_example_becomes_two_replicas_with_the_loads_of_its_class() -> None:
    settings = serve_settings(load(EXAMPLE).spec, load_s=5.0)
    assert (settings.replica_count, settings.closed_loads, settings.rate_per_s) == (2, (1, 4, 16), 2.0)
    assert (settings.input_tokens, settings.output_tokens) == (128, 48)
    assert (settings.planned_format, settings.weights_format) == ("fp32", "float32")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1x2xthis-machine", "1x8xH100-SXM", "not on this machine"),
        ("steps: 110", "tokens: 1 Gtok", "gives no `steps`"),
        ("global_batch: 8 seq", "global_batch: 7 seq", "does not divide by 2 ranks"),
        ("model: ./config.json", "model: llama-3.2-1b", "trains from a config.json"),
        ("  quantisation: fp32", "  quantisation: fp8", "cannot be served here"),
    ],
)
def test_a_spec_that_cannot_run_here_is_refused_before_anything_starts(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    spec = load(changed(tmp_path, old, new)).spec
    with pytest.raises(ValueRefusedError, match=said) as caught:
        train_settings(spec), serve_settings(spec, load_s=5.0)
    assert caught.value.hint
