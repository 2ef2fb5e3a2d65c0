"""Accelerators that are not there: the driver's tool is a script, so that what it tells is known."""

import stat
import sys
from pathlib import Path

import pytest

from twofold.core import nvidia
from twofold.core.errors import ValueRefusedError
from twofold.device.measuring import default_rank_count, measure

TELL = """import sys
told = {"index": ["0", "1"], "power.draw": ["120.5", "80.0"], "power.limit": ["700.00", "500.00"]}
name = next(word for word in sys.argv if word.startswith("--query-gpu=")).partition("=")[2]
print("\\n".join(told.get(name, ["[N/A]", "[N/A]"])))
"""


@pytest.fixture
def two_accelerators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / nvidia.TOOL
    tool.write_text(f"#!{sys.executable}\n{TELL}")
    tool.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(nvidia.VISIBLE, raising=False)


@pytest.mark.usefixtures("two_accelerators")
def test_power_is_summed_and_the_least_limit_holds() -> None:
    assert nvidia.watts() == 200.5
    assert nvidia.limit_w() == 500.0
    assert nvidia.told("temperature.gpu") == []


@pytest.mark.usefixtures("two_accelerators")
def test_accelerators_are_numbered_as_the_tool_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvidia.VISIBLE, "1")  # what this process may use says nothing of what is there
    assert nvidia.numbers() == {0, 1}
    monkeypatch.setenv("PATH", "")
    assert nvidia.numbers() is None


def test_without_the_tool_there_is_nothing_and_a_failing_one_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (nvidia.watts(), nvidia.limit_w(), nvidia.accelerator_count()) == (None, None, 0)
    tool = tmp_path / nvidia.TOOL
    tool.write_text(f"#!{sys.executable}\nprint('0'); raise SystemExit(9)\n")
    tool.chmod(stat.S_IRWXU)
    assert (nvidia.watts(), nvidia.accelerator_count()) == (None, 0)


@pytest.mark.usefixtures("two_accelerators")
@pytest.mark.parametrize(
    ("named", "seen"),
    [(None, 2), ("", 0), ("-1", 0), ("0", 1), ("1,0", 2), ("0,5", 1), ("-1,0", 0), ("GPU-8a", 1), ("7", 0)],
)
def test_the_environment_hides_accelerators_as_it_does_from_cuda(
    named: str | None, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named is not None:
        monkeypatch.setenv(nvidia.VISIBLE, named)
    assert nvidia.accelerator_count() == seen


@pytest.mark.usefixtures("two_accelerators")
def test_a_machine_is_measured_with_a_rank_for_each_accelerator_or_by_shares_where_they_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert default_rank_count() == 2
    monkeypatch.setenv(nvidia.VISIBLE, "1")
    assert default_rank_count() == 1
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setenv(nvidia.VISIBLE, "")
    assert default_rank_count() == 2, "two shares of the processor"


@pytest.mark.usefixtures("two_accelerators")
def test_more_ranks_than_accelerators_are_refused_before_one_starts() -> None:
    with pytest.raises(ValueRefusedError, match="3 ranks cannot share 2 accelerators") as refused:
        measure(3, worker=("/no/such/program",))
    assert "--ranks 2" in refused.value.hint
