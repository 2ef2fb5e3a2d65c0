"""Names that people write find the row they mean, or say which rows they could mean."""

import csv
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.catalog.catalog import load_catalog
from twofold.catalog.names import canonical, did_you_mean
from twofold.catalog.types import Accelerator, Model, Node
from twofold.core.errors import UnknownNameError

CATALOG = load_catalog()
ACCELERATORS = [accelerator.name for accelerator in CATALOG.rows(Accelerator)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("H100-SXM", "H100-SXM5-80GB"),
        ("H100 SXM", "H100-SXM5-80GB"),
        ("h100", "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("H200", "H200-SXM5-141GB"),
        ("l40s", "L40S"),
        ("B200", "B200-SXM-180GB"),
        ("A100-80GB", "A100-SXM4-80GB"),
        ("A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla T4", "T4"),
        ("GB200 NVL72", "GB200-186GB"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
    ],
)
def test_usual_spellings_of_accelerators_resolve(written: str, meant: str) -> None:
    assert CATALOG.accelerator(written).name == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Llama 3.1 70B", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("meta-llama/Llama-3.2-1B-Instruct", "llama-3.2-1b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
    ],
)
def test_usual_spellings_of_models_resolve(written: str, meant: str) -> None:
    assert CATALOG.model(written).name == meant


@pytest.mark.parametrize("written", ["A100", "A100 PCIe", "V100", "RTX PRO 6000", "A100 SXM"])
def test_a_name_that_fits_two_parts_is_refused_with_all_of_them(written: str) -> None:
    with pytest.raises(UnknownNameError) as refusal:
        CATALOG.accelerator(written)
    fits = [name for name in ACCELERATORS if f"{name}" in refusal.value.message.split(": ")[1].split(", ")]
    assert len(fits) >= 2
    assert refusal.value.code == "E-name"


def test_published_measurements_may_use_a_name_that_people_may_not() -> None:
    assert CATALOG.benchmark_accelerator("a100").name == "A100-SXM4-80GB"
    assert CATALOG.benchmark_accelerator("H100-80GB").name == "H100-SXM5-80GB"
    assert CATALOG.benchmark_model("mpt-30b").name != CATALOG.model("mpt-30b").name


def test_every_name_in_the_published_measurements_resolves() -> None:
    path = Path(__file__).parents[3] / "shared" / "truth" / "aliases.csv"
    if not path.exists():
        pytest.skip(f"needs ../shared/truth/{path.name}")
    finds = {
        "gpu": lambda name: CATALOG.benchmark_accelerator(name).name,
        "model": lambda name: CATALOG.benchmark_model(name).name,
        "framework": CATALOG.framework,
    }
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["catalog_name"]]
    assert [row for row in rows if finds[row["kind"]](row["alias"]) != row["catalog_name"]] == []


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as refusal:
        CATALOG.model("lama-3.1-70b")
    assert "`llama-3.1-70b`" in refusal.value.hint


@given(st.sampled_from(ACCELERATORS), st.randoms(use_true_random=False))
def test_case_spaces_underscores_and_dashes_do_not_count(name: str, random: Random) -> None:
    shuffled = "".join(
        random.choice((letter.upper(), letter.lower())) if letter != "-" else random.choice("-_ ")
        for letter in name
    )
    assert CATALOG.accelerator(shuffled).name == name


@given(st.text(max_size=30))
def test_any_text_is_found_or_refused_with_a_hint(name: str) -> None:
    try:
        CATALOG.accelerator(name)
    except UnknownNameError as refusal:
        assert refusal.hint


def test_every_row_is_found_by_its_own_name() -> None:
    for accelerator in CATALOG.rows(Accelerator):
        assert CATALOG.accelerator(accelerator.name) is accelerator
    for model in CATALOG.rows(Model):
        assert CATALOG.model(model.name) is model
    for node in CATALOG.rows(Node):
        assert CATALOG.node(node.name) is node
    for region in CATALOG.regions():
        assert CATALOG.region(f"{region.provider}:{region.name}") is region


def test_regions_of_two_clouds_are_told_apart_by_their_dashes() -> None:
    assert CATALOG.region("us-east-1").provider == "aws"
    assert CATALOG.region("us-east1").provider == "gcp"
    assert CATALOG.region("us-east").name == "us-east-1"


def test_canonical_is_idempotent_and_near_names_are_suggested() -> None:
    assert canonical(canonical("H100 SXM_80-GB")) == "h100sxm80gb"
    assert did_you_mean("H10", ["H100", "L4"]) == "did you mean `H100`?"
    assert did_you_mean("zzz", ["H100"], "nothing near") == "nothing near"
