"""Memory of a process, energy of a machine: counters that begin anew, and those that are not there."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from twofold.core.errors import ValueRefusedError
from twofold.core.nvidia import watts as watts_now
from twofold.live.loads.meters import Meters, memory_bytes, rapl_counters, rapl_j

pytest.importorskip("psutil", reason="needs the extra [live]: `make extras`")


def package(root: Path, name: str, used_uj: int) -> None:
    (root / name).mkdir(exist_ok=True)
    (root / name / "energy_uj").write_text(f"{used_uj}\n")
    (root / name / "max_energy_range_uj").write_text("1000000\n")


def test_joules_are_those_of_all_packages_also_where_a_counter_begins_anew(tmp_path: Path) -> None:
    package(tmp_path, "intel-rapl:0", 900_000)
    package(tmp_path, "intel-rapl:1", 100_000)
    package(tmp_path, "intel-rapl:0:0", 5)  # a part of the first: counted in it
    before = rapl_counters(tmp_path)
    assert len(before) == 2
    package(tmp_path, "intel-rapl:0", 100_000)
    package(tmp_path, "intel-rapl:1", 400_000)
    assert rapl_j(before, rapl_counters(tmp_path)) == pytest.approx(0.5)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert rapl_j(before, rapl_counters(tmp_path)) is None
    assert rapl_counters(tmp_path / "none") == {}


def test_accelerators_tell_their_power_by_the_drivers_tool_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert watts_now() is None
    tool = tmp_path / "nvidia-smi"
    for said, watts in (("100.5\\n200.5\\n", 301.0), ("[N/A]\\n", None), ("", None)):
        tool.write_text(f"#!{sys.executable}\nprint('{said}', end='')\n")
        tool.chmod(stat.S_IRWXU)
        assert watts_now() == watts


def test_energy_is_read_while_a_load_runs_and_is_none_where_nobody_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    package(tmp_path, "intel-rapl:0", 100_000)
    with Meters(reads_energy=True, rapl=tmp_path) as meters:
        package(tmp_path, "intel-rapl:0", 350_000)
    assert (meters.energy_j, meters.energy_source) == (pytest.approx(0.25), "RAPL")
    with Meters(reads_energy=True, rapl=tmp_path / "none") as meters:
        pass
    assert (meters.energy_j, meters.energy_source) == (None, "")


def test_memory_counts_children_and_names_what_is_no_process() -> None:
    alone = memory_bytes(os.getpid())
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as child:
        assert child.stdout and child.stdout.readline()
        assert alone and (memory_bytes(os.getpid()) or 0) > alone + 1_000_000
        with Meters(os.getpid()) as meters:
            pass
        assert meters.memory_before_bytes and meters.memory_peak_bytes
        child.communicate()
    assert memory_bytes(child.pid, must_live=False) is None
    for pid in (child.pid, -1, 2**40):
        with pytest.raises(ValueRefusedError, match="no process"):
            memory_bytes(pid)
