"""A plan written by hand, with the figures of the design's picture: rendering is tested without any model."""

import pytest

from twofold.contracts.results.parts import (
    Bound,
    Count,
    FrontPoint,
    Loser,
    Machine,
    Part,
    PriceUsed,
    ScalingPoint,
)
from twofold.contracts.results.plan import CrossCell, Digests, Factor, Plan
from twofold.contracts.results.serving import ClassPlan, Replica, ServicePlan, SloOutcome
from twofold.contracts.results.training import Checkpoints, Layout, Run, TrainingPlan
from twofold.core.estimate import Estimate, exact

DAY_S = 86400.0


def around(value: float, unit: str, spread: float = 0.1) -> Estimate:
    return Estimate(value, value * (1 - spread), value * (1 + spread), unit)


def parts(unit: str, **values: float) -> tuple[Part, ...]:
    whole = sum(values.values())
    return tuple(Part(name, around(value, unit), value / whole) for name, value in values.items())


def machine(accelerator: str, node_count: int, per_node: int, usd_per_h: float) -> Machine:
    price = PriceUsed("lambda", "gpu_8x", "us-east", "reserved_1y", "2026-05-01", around(usd_per_h, "USD/h"))
    return Machine(accelerator, "hgx", node_count, per_node, node_count * per_node, "infiniband", price)


@pytest.fixture
def training() -> TrainingPlan:
    return TrainingPlan(
        name="pretrain",
        model="llama-3.1-70b",
        parameters=70_553_706_496,
        kind="pretrain",
        precision="bf16",
        framework="megatron-core",
        machine=machine("H100-SXM5-80GB", 64, 8, 2.4),
        layout=Layout(
            8, 1, 1, 4, 5, 16, 1, 1, "selective", True,
            "TP 8 · PP 4 ×5 · DP 16 · micro-batch 1 · selective recompute · ZeRO-1",
        ),
        step_s=around(8.6, "s"),
        step_parts=parts("s", compute=6.36, TP=0.95, bubble=0.43, DP=0.26, optimiser=0.09, jitter=0.51),
        communication_exposed_fraction=0.14,
        mfu_fraction=around(0.41, "fraction"),
        peak_ratio=around(0.41, "fraction"),
        memory_bytes=around(43.8 * 2**30, "B"),
        memory_parts=parts(
            "B", weights=4.1 * 2**30, gradients=8.2 * 2**30, optimiser=1.5 * 2**30, activations=30 * 2**30
        ),
        memory_by_format=parts("B", bf16=30 * 2**30, fp32=13.8 * 2**30),
        memory_capacity_bytes=80 * 2**30,
        run=Run(
            steps=166_893,
            flops=2.9e23,
            compute_s=around(16.6 * DAY_S, "s"),
            checkpoint_s=around(0.2 * DAY_S, "s"),
            failure_s=around(0.2 * DAY_S, "s"),
            wall_s=around(17.0 * DAY_S, "s"),
            headroom=(
                Part("retries", exact(0.05, "fraction"), 5 / 22),
                Part("validation", exact(0.02, "fraction"), 2 / 22),
                Part("experiments", exact(0.15, "fraction"), 15 / 22),
            ),
            total_s=around(20.74 * DAY_S, "s"),
            accelerator_h=around(254_000, "h"),
            interruptions=Estimate(4, 2, 8, "1"),
            goodput_fraction=Estimate(0.98, 0.97, 0.99, "fraction"),
            checkpoints=Checkpoints(0.99e12, around(109 * 60, "s"), 60.0, 16.5e9, 16.5e9, "checkpoint write"),
            data_bytes_per_s=2e6,
            energy_j=around(2.3e11 * 3.6, "J"),
            carbon_gco2=None,
        ),
        release_after_s=20.74 * DAY_S,
        deadline_s=30 * DAY_S,
        cost_usd=around(610_000, "USD"),
        bounds=(Bound("compute", 0.15), Bound("link", 0.02)),
        tried=1184,
        rejected=(Count("exceed memory", 400), Count("slower", 783)),
        losers=(Loser("32 nodes", "41 d misses 30 d"), Loser("L40S", "no scale-up link")),
        front=(FrontPoint("64 × 8 H100", 512, 17 * DAY_S, 610_000, True),),
        scaling=(ScalingPoint(512, around(8.6, "s"), around(0.93, "fraction", 0.02)),),
        flip_fraction=0.31,
        warnings=("the price is 14 months old",),
    )  # fmt: skip


@pytest.fixture
def service() -> ServicePlan:
    chat = ClassPlan(
        name="chat",
        rate_per_s=40,
        peak_per_s=100,
        input_tokens=1155,
        output_tokens=211,
        percentiles={
            "ttft_p50": around(0.2, "s"),
            "ttft_p95": around(0.38, "s"),
            "ttft_p99": around(0.6, "s"),
        },
        slos=(
            SloOutcome("ttft_p95", 0.5, around(0.38, "s"), True, holds_probability=0.84),
            SloOutcome("tpot_p95", 0.04, around(0.031, "s"), True),
        ),
        replica_count=12,
        rate_per_replica_per_s=around(9.8, "1/s"),
        holds_until_per_s=around(118, "1/s"),
        knee_per_s=121,
        usd_per_1k_output_tokens=around(0.0032, "USD"),
        latency_budget=parts("s", edge=0.02, queue=0.1, prefill=0.26),
    )
    batch = ClassPlan(
        "batch", 20, 20, 1155, 211, {}, (SloOutcome("finish_within", 21600, around(14760, "s"), True),),
        2, around(12, "1/s"), around(24, "1/s"), 25, None, (),
    )  # fmt: skip
    return ServicePlan(
        name="serve",
        model="llama-3.1-70b",
        parameters=70_553_706_496,
        quality_note="",
        machine=machine("H200-SXM-141GB", 14, 4, 3.1),
        replica=Replica(4, 4, 1, 1, 1, "fp8", "bf16", "vllm", 256, 2048, "TP 4 · fp8 weights · bf16 KV"),
        classes=(chat, batch),
        replica_count=14,
        spare_count=2,
        spare_reason="the loss of one of 3 zones",
        zones=3,
        regions=("us-east", "eu-west"),
        memory_bytes=around(110 * 2**30, "B"),
        memory_parts=parts("B", weights=17 * 2**30, buffers=5 * 2**30, **{"KV cache": 88 * 2**30}),
        memory_capacity_bytes=131 * 2**30,
        kv_bytes_per_token=327_680,
        kv_utilisation_fraction=0.61,
        batch_limit="bandwidth",
        cold_start_s=around(95, "s"),
        warm_pool_count=1,
        output_tokens_per_s_per_accelerator=around(420, "tok/s"),
        output_tokens_per_j=around(0.8, "tok/J"),
        peak_ratio=around(0.5, "fraction"),
        communication_exposed_fraction=0.08,
        pooling_loss_fraction=0.1,
        cost_usd_per_year=around(1.5e6, "USD"),
        energy_j_per_year=around(1e12, "J"),
        carbon_gco2_per_year=around(1e8, "gCO2"),
        bounds=(Bound("memory bandwidth", 0.12),),
        tried=640,
        rejected=(Count("memory", 200),),
        losers=(Loser("L40S", "TPOT 71 ms misses 40 ms"),),
        flip_fraction=0.05,
        warnings=(),
    )


@pytest.fixture
def plan(training: TrainingPlan, service: ServicePlan) -> Plan:
    cross = (
        CrossCell("training", "pretrain", "training", "21 d, 0.61 M$", True, None, None, None),
        CrossCell("training", "pretrain", "serving", "190 d, misses 30 d", False, None, None, None),
        CrossCell("serving", "serve", "training", "TPOT 35 ms, 1.9 M$/y (+29 %)", True, None, None, None),
        CrossCell("serving", "serve", "serving", "TPOT 31 ms, 1.5 M$/y", True, None, None, None),
    )
    return Plan(
        schema="twofold/plan/1",
        name="assistant",
        twofold="0.1.0",
        digests=Digests("s", "c", "k", ""),
        rehearsed=False,
        training=(training,),
        serving=(service,),
        cross=cross,
        first_year_usd=around(2.11e6, "USD"),
        budget_usd=4e6,
        factors=(Factor("compute", 0.9, 1.1, 0.08, 0.01),),
        calibration="",
        derivations=(),
        defaults=(("training.pretrain.optimizer", "adam"),),
        warnings=(),
    )
