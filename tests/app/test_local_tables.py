"""A device measured beside a spec is what its plan is made from, and the plan says so."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from twofold.app.checking import check
from twofold.app.planning import compare, plan
from twofold.app.sources import load
from twofold.core.errors import AlteredError
from twofold.device.files import DeviceRecord, Identity, digest_of, this_identity, write_device

SPEC = """\
name: small
model: llama-3.2-1b
training: {kind: finetune, tokens: 10 Mtok, framework: pytorch-fsdp, precision: fp32, on: 1x2xthis-machine}
serving:
  quantisation: fp32
  kv_quantisation: fp32
  engine: transformers
  on: 1xthis-machine
  classes:
    chat:
      traffic: {rate: 1 /h, input: 50 tok, output: 10 tok}
      slo: {ttft_p95: 100 s, tpot_p95: 10 s}
"""
ACCELERATOR = (
    "name,vendor,family,year,form_factor,mem_gb,mem_type,mem_bw_gb_s,fp32_tflops,sm_count,link_name,tdp_w\n"
    "this-machine,generic,cpu,2026,measured,{memory},measured,20,{rate},4,none,60\n"
)
NODES = (
    "name,provider,accelerator,accelerator_count,nic_gbit_s,fabric\n"
    "this-node,onprem,this-machine,2,1,ethernet\n"
)
CONSTANTS = (
    "# version 1\nname,scope,value,low,high,unit,source,rows,fitted_by,note\n"
    "kernel_floor_s,accelerator=this-machine;family=cpu,1e-05,9e-06,1.1e-05,s,m,1,device,measured here\n"
)
DAY = date(2026, 1, 2)


def measured(folder: Path, rate: float = 1.0, identity: Identity | None = None) -> None:
    """Write a device of so many TFLOP/s beside the spec in `folder`."""
    tables = {
        "accelerators.csv": ACCELERATOR.format(memory=64, rate=rate),
        "nodes.csv": NODES,
        "constants.csv": CONSTANTS,
    }
    here = identity or this_identity()
    record = DeviceRecord("this-machine", DAY, here, "torch 9", 2, 1.0, (), digest_of(tables))
    write_device(folder / ".twofold" / "device", tables, record)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "twofold.yaml").write_text(SPEC)
    return tmp_path


def test_a_machine_that_was_measured_is_not_judged_as_one_that_is_to_be_built(spec: Path) -> None:
    """`check` told the watts and the rack of a laptop, which nobody had asked."""
    measured(spec)
    assert len(check(spec).lines) == 1


def test_without_a_device_a_stand_in_is_planned(spec: Path) -> None:
    made = plan(spec)
    assert made.training[0].machine.accelerator == "CPU-8-core-AVX2"
    assert made.calibration == made.digests.calibration == ""


def test_with_one_the_plan_is_made_of_it_and_says_so(spec: Path) -> None:
    measured(spec)
    made = plan(spec, DAY)
    assert load(spec).device == spec / ".twofold" / "device"
    assert made.training[0].machine.accelerator == "this-machine"
    assert made.training[0].machine.node == "this-node"
    assert made.training[0].step_s.source.value == "m"
    memory = made.training[0].memory_bytes
    assert memory and memory.source.value == "f"
    assert "measured here on 2026-01-02" in made.calibration and made.digests.calibration
    assert "measured here on 2026-01-02" in " ".join(str(made).split())
    assert not [note for note in made.warnings if "measured" in note]


def test_a_faster_device_plans_faster_and_its_digests_differ(spec: Path) -> None:
    measured(spec, rate=1.0)
    slow = plan(spec, DAY)
    measured(spec, rate=4.0)
    fast = plan(spec, DAY)
    assert fast.training[0].step_s.value < slow.training[0].step_s.value
    assert fast.digests.calibration != slow.digests.calibration
    assert fast.digests.catalog != slow.digests.catalog


def test_a_device_of_another_machine_and_an_old_one_are_notes(spec: Path) -> None:
    measured(spec, identity=Identity("a processor of nobody", 3, 2**40))
    notes = plan(spec, DAY + timedelta(days=100)).warnings
    assert any("another machine" in note for note in notes)
    assert any("100 days" in note for note in notes)


def test_rows_of_your_own_lie_over_the_measured_ones(spec: Path) -> None:
    measured(spec)
    (spec / "catalog").mkdir()
    text = ACCELERATOR.format(memory=64, rate=9)
    (spec / "catalog" / "accelerators.csv").write_text(text)
    assert load(spec).catalog.accelerator("this-machine").fp32_flops_per_s == pytest.approx(9e12)


def test_an_altered_device_is_refused(spec: Path) -> None:
    measured(spec)
    path = spec / ".twofold" / "device" / "constants.csv"
    path.write_text(CONSTANTS.replace("1e-05", "2e-05"))
    with pytest.raises(AlteredError):
        plan(spec)


def test_comparing_reads_the_device_too(spec: Path) -> None:
    measured(spec)
    assert "TWO HALVES" in str(compare(spec)) or compare(spec).lines
