"""The catalogue reads our tables, lays a user's over them, and says what is wrong in the cell where it is."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.catalog.types import Accelerator, Fabric, Model, Node
from twofold.core.errors import CatalogError, InputErrors, UnknownNameError

CATALOG = load_catalog()


@pytest.fixture
def folder_with(tmp_path: Path) -> Callable[..., Path]:
    def write(**tables: str | bytes) -> Path:
        for name, text in tables.items():
            (tmp_path / f"{name}.csv").write_bytes(text.encode() if isinstance(text, str) else text)
        return tmp_path

    return write


def test_the_catalogue_is_as_large_as_promised() -> None:
    released = [accelerator for accelerator in CATALOG.rows(Accelerator) if accelerator.released]
    families = Counter(accelerator.family == "cpu" for accelerator in released)
    assert families[False] >= 60
    assert families[True] >= 4
    assert len(CATALOG.rows(Node)) >= 100
    assert len(CATALOG.prices()) >= 600
    assert len(CATALOG.rows(Model)) >= 200
    assert {fabric.name for fabric in CATALOG.rows(Fabric)} == {
        "infiniband",
        "roce",
        "efa",
        "tcpx",
        "ethernet",
        "omnipath",
        "ici",
        "none",
    }


def test_numbers_are_si_inside() -> None:
    h100 = CATALOG.accelerator("H100-SXM")
    assert h100.bf16_flops_per_s == pytest.approx(989.4e12)
    assert h100.memory_bytes_per_s == pytest.approx(3.35e12)
    assert h100.scaleup_bytes_per_s == pytest.approx(450e9)
    assert h100.memory_nominal_bytes == pytest.approx(80e9)
    assert 79e9 < h100.memory_bytes < 80 * 2**30
    assert CATALOG.node("DGX-H100").nic_bytes_per_s == pytest.approx(400e9)
    assert CATALOG.fabric("infiniband").latency_s == pytest.approx(5e-6)


def test_links_stand_in_both_readings() -> None:
    both_ways = {str(row["name"]): row["link_both_ways_gb_s"] for row in CATALOG.table("accelerators").rows}
    assert both_ways["A100-SXM4-80GB"] == 600
    assert both_ways["B200-SXM-180GB"] == 1800
    assert CATALOG.accelerator("H100 SXM").tdp_w != CATALOG.accelerator("H100 PCIe").tdp_w


def test_server_rows_state_what_a_rack_planner_asks() -> None:
    h100 = CATALOG.node("HGX-H100-5U")
    assert (h100.accelerator_count, h100.rack_units, h100.power_w_max) == (8, 5, 10200.0)
    b200 = CATALOG.node("HGX-B200-10U-CX8")
    assert b200.rack_units == 10 and b200.power_w_max is not None and 14e3 <= b200.power_w_max <= 15e3
    assert b200.nic_bytes_per_s == pytest.approx(8 * 800e9 / 8) and b200.ram_bytes == pytest.approx(2048e9)
    l40s = CATALOG.node("L40S-2U-4")
    fp16 = CATALOG.accelerator("L40S").fp16_flops_per_s
    assert l40s.rack_units == 2 and l40s.power_w_max is not None and l40s.power_w_max < 3000
    assert fp16 is not None and l40s.accelerator_count * fp16 == pytest.approx(1448e12)


def test_serving_parts_state_power_memory_and_bandwidth() -> None:
    for name in ("L40S", "L4", "L20", "A10", "MI300X", "Inferentia2", "Groq-LPU-v1", "Cerebras-WSE-3"):
        part = CATALOG.accelerator(name)
        assert part.tdp_w > 0 and part.memory_bytes > 0 and part.memory_bytes_per_s > 0
    assert CATALOG.accelerator("L4").tdp_w == 72


def test_announced_platforms_are_marked_unreleased() -> None:
    assert not CATALOG.accelerator("Vera Rubin").released
    assert not CATALOG.accelerator("MI455X").released
    assert CATALOG.nodes_with("VR200")[0].accelerator_count == 72


def test_lookups_by_accelerator_accept_any_spelling() -> None:
    assert {node.accelerator for node in CATALOG.nodes_with("h100")} == {"H100-SXM5-80GB"}
    assert {price.accelerator for price in CATALOG.prices_for("H100 SXM")} == {"H100-SXM5-80GB"}
    assert CATALOG.prices_for("Gaudi3") == ()
    assert [part.profile for part in CATALOG.partitions("MI300X")] == ["SPX", "DPX", "QPX", "CPX"]
    assert CATALOG.partitions("A10G") == ()


def test_round_trips_are_measured_or_follow_the_distance() -> None:
    assert CATALOG.rtt_s("azure:eastus", "azure:westeurope") == CATALOG.rtt_s(
        "azure:westeurope", "azure:eastus"
    )
    assert 0.06 < CATALOG.rtt_s("aws:us-east-1", "aws:eu-west-1") < 0.12
    assert CATALOG.rtt_s("aws:us-east-1", "aws:us-east-1") < 0.005


def test_frameworks_have_one_short_name() -> None:
    assert CATALOG.framework("TensorRT-LLM") == CATALOG.framework("trtllm") == "trtllm"
    assert CATALOG.framework("Megatron-Core 0.8") == "megatron-core"
    assert CATALOG.framework("NeMo 99.01 (a version to come)") == "nemo"
    with pytest.raises(UnknownNameError):
        CATALOG.framework("caffe")


def test_a_users_row_overrides_ours_and_keeps_what_it_does_not_say(folder_with: Callable[..., Path]) -> None:
    folder = folder_with(accelerators="name,tdp_w\nh100-sxm5-80gb,650\n")
    h100 = load_catalog(folder).accelerator("H100 SXM")
    assert h100.tdp_w == 650
    assert h100.memory_bytes_per_s == CATALOG.accelerator("H100 SXM").memory_bytes_per_s
    assert h100.source == "user"
    assert len(load_catalog(folder).rows(Accelerator)) == len(CATALOG.rows(Accelerator))
    assert load_catalog(folder).digest != CATALOG.digest


def test_a_users_rows_name_parts_in_any_spelling(folder_with: Callable[..., Path]) -> None:
    nodes = "name,provider,accelerator,accelerator_count,fabric\nbox,onprem,h100 sxm,4,IB\n"
    box = load_catalog(folder_with(nodes=nodes)).node("box")
    assert (box.accelerator, box.fabric) == ("H100-SXM5-80GB", "infiniband")
    with pytest.raises(CatalogError) as error:
        load_catalog(folder_with(nodes=nodes.replace("h100 sxm", "H100-SXM9")))
    assert error.value.place is not None and error.value.place.line == 2
    assert "`H100-SXM5-80GB`" in error.value.hint


def test_a_users_price_needs_no_more_than_its_offer(folder_with: Callable[..., Path]) -> None:
    prices = "provider,instance,accelerator,accelerator_count,region,term,usd_per_h,date\n"
    catalog = load_catalog(folder_with(prices=prices + "mine,box,Gaudi 3,8,all,reserved_1y,16,2026-10\n"))
    (price,) = catalog.prices_for("Gaudi3")
    assert (price.usd_per_accelerator_h, price.date_precision, price.source) == (2.0, "month", "user")


def test_a_users_alias_replaces_what_ours_meant(folder_with: Callable[..., Path]) -> None:
    catalog = load_catalog(folder_with(aliases="kind,alias,name\naccelerator,A100,A100-PCIe-80GB\n"))
    assert catalog.accelerator("a100").name == "A100-PCIe-80GB"


@pytest.mark.parametrize(
    ("table", "text", "place", "said"),
    [
        ("accelerators", "name,tdp_w\nH200-SXM5-141GB,lots\n", "2:17", "`lots` is not a number in W"),
        (
            "accelerators",
            "name,tdp_w\nH200-SXM5-141GB,-5\n",
            "2:17",
            "out of range; write a number in W, above 0",
        ),
        ("accelerators", "name,tdp_w\nH200-SXM5-141GB,nan\n", "2:17", "out of range"),
        ("accelerators", "name,tdp_w\nmine,700\n", "2:1", "column `vendor` is missing"),
        ("accelerators", "name,tdp\nH200-SXM5-141GB,700\n", "1:6", "`tdp` is not a column"),
        ("accelerators", "name,tdp_w\nL4,72\nL4,75\n", "3:1", "there already, in line 2"),
        ("accelerators", "name,tdp_w\nL4\n", "2:1", "1 cells, the header 2"),
        ("prices", "provider,instance\nx,y\n", "1:1", "column `accelerator` is missing"),
        ("accelerators", b"\xff\xfe\x00binary", "1:1", "not UTF-8"),
        ("accelerators", 'name,tdp_w\n"L4,72\n', "2:1", "not readable as CSV"),
        ("models", 'name,family,layers\n"llama-3.1-8b","a, b",x\n', "2:23", "`x` is not a whole number"),
    ],
)
def test_a_bad_cell_is_named_by_file_line_and_column(
    folder_with: Callable[..., Path], table: str, text: str | bytes, place: str, said: str
) -> None:
    folder = folder_with(**{table: text})
    with pytest.raises(CatalogError) as error:
        load_catalog(folder)
    assert str(error.value.place) == f"{folder / table}.csv:{place}"
    assert said in error.value.message


def test_all_bad_cells_are_said_at_once(folder_with: Callable[..., Path]) -> None:
    with pytest.raises(InputErrors) as errors:
        load_catalog(folder_with(accelerators="name,tdp_w\nL4,x\nT4,y\n"))
    assert [error.place.line for error in errors.value.errors if error.place] == [2, 3]


def test_a_file_that_is_no_table_is_refused(folder_with: Callable[..., Path]) -> None:
    with pytest.raises(CatalogError) as error:
        load_catalog(folder_with(accelerator="name\n"))
    assert "`accelerators`" in error.value.hint
    with pytest.raises(CatalogError):
        load_catalog(Path("no such folder"))


def test_an_unknown_table_is_refused_with_a_hint() -> None:
    with pytest.raises(UnknownNameError) as error:
        CATALOG.table("acelerators")
    assert "`accelerators`" in error.value.hint


def test_the_digest_is_stable_and_reads_all_tables() -> None:
    assert load_catalog().digest == CATALOG.digest
    assert len(CATALOG.digest) == 64
