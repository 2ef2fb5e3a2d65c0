"""Forty-four models on three kinds of supply: does what is planned fit, can one have it, is it one answer?

Memory is counted here by hand from the published architecture, apart from the product's own models: of a
run the weights, gradients and optimiser states by how they are sharded, and what a layer keeps (Korthikanti
et al., 2022); of a replica its weights, and by Little's law the cache of the requests that are in it. Buffers
are left out, so that what does not fit by this count is out of memory for certain. What a plan rents of one
account by the hour is added up over all runs and services and held against `capacity.csv` as it stands.

python -m bench models
"""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from csv import DictReader
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import twofold
from twofold.contracts.results.ledger import total_usd
from twofold.contracts.results.parts import PriceUsed
from twofold.contracts.results.plan import Plan
from twofold.contracts.results.serving import Pool, ServicePlan
from twofold.contracts.results.training import TrainingPlan
from twofold.core.errors import InfeasibleError
from twofold.planner.actions import owner_of

MODELS = """
llama-2-7b llama-2-13b llama-2-70b llama-3-8b llama-3.1-8b llama-3.1-70b llama-3.1-405b llama-3.2-3b
llama-3.3-70b llama-4-scout qwen2.5-7b qwen2.5-32b qwen2.5-72b qwen3-8b qwen3-32b qwen3-30b-a3b
qwen3-235b-a22b qwen3-next-80b-a3b mistral-7b-v0.3 mistral-nemo-12b mistral-small-24b-2501 mixtral-8x7b
mixtral-8x22b gemma-2-9b gemma-2-27b gemma-3-12b gemma-3-27b phi-3-mini phi-4 deepseek-v2-lite deepseek-v2
deepseek-v3 deepseek-r1 gpt-oss-20b gpt-oss-120b kimi-k2 glm-4.5 glm-4.5-air nemotron-nano-9b-v2 olmo-2-7b
olmo-2-32b falcon-7b falcon-180b bloom-176b
"""
SUPPLIES = {
    "rented": "",
    "own": "supply: {own: [{node: DGX-H100, count: 64}], shop: {accelerators: [H100-SXM5-80GB]}}",
    "one kind": "supply: {shop: {accelerators: [MI300X]}}",
}
BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "fp4": 4, "nvfp4": 4, "mxfp4": 4}
SEQUENCE = 4096
ADAM_BYTES = 12.0  # master weights and two moments, 32 bits each
KEPT_BYTES = {"none": 34.0}  # of a token and a hidden unit in a layer, without scores of attention
RECOMPUTED_BYTES = 2.0  # the same where a layer is recomputed: its input
LEASED = ("rent", "support", "egress", "storage")
LARGE = 2e10  # parameters from which a model is adapted and not trained whole

Row = dict[str, str]


@cache
def rows() -> dict[str, Row]:
    """The catalogue's models by name, as its table has them."""
    table = files("twofold.catalog.data").joinpath("models.csv").read_text("utf-8")
    return {row["name"]: row for row in DictReader(table.splitlines())}


@cache
def capacity() -> list[Row]:
    """What providers say of how many can be had, as the table has it."""
    table = files("twofold.catalog.data").joinpath("capacity.csv").read_text("utf-8")
    return list(DictReader(table.splitlines()))


def account_limit(provider: str, accelerator: str) -> float:
    """Accelerators that an account may get by the hour: what its provider states, else what is usual."""
    own = [
        number(row, "accelerators_max")
        for row in capacity()
        if (row["provider"], row["kind"]) in ((provider, "on_demand"), (provider, "marketplace"))
        and {accelerator, "all", "various"} & set(row["accelerators"].split("; "))
    ]
    usual = [max(number(row, "accelerators_max"), 8 * number(row, "nodes_max")) for row in capacity()]
    any_of = [most for row, most in zip(capacity(), usual, strict=True) if row["provider"] == "any"]
    return max(own, default=0.0) or max(any_of)


def number(row: Row, key: str) -> float:
    """A number of the table; what is not there is nought."""
    return float(row[key] or 0.0)


def sequence_tokens(row: Row) -> int:
    """Tokens of a training sequence: not more than the model's context."""
    return min(SEQUENCE, int(row["max_context_tok"]))


def spec(row: Row, supply: str) -> str:
    """A run and a service of one model: all weights of a small one, adapters of a large one."""
    kind = "lora" if number(row, "parameters") > LARGE else "finetune"
    return f"""
name: sweep
model: {row["name"]}
training:
  {{kind: {kind}, tokens: 1 Gtok, sequence: {sequence_tokens(row)} tok, global_batch: 64 seq, deadline: 20 d}}
serving:
  classes:
    chat:
      traffic:
        rate: 5 /s
        input: {{mean: 800 tok, p95: 1500 tok}}
        output: {{mean: 200 tok, p95: 400 tok}}
      slo: {{ttft_p95: 3 s, tpot_p95: 120 ms}}
{supply}
"""


def weights_of(row: Row) -> tuple[float, float]:
    """Parameters outside experts, and in them."""
    matrices = 3.0 * number(row, "hidden") * number(row, "moe_ffn_hidden")
    experts = min(
        matrices * number(row, "moe_layers") * number(row, "experts"), 0.99 * number(row, "parameters")
    )
    return number(row, "parameters") - experts, experts


def run_bytes(run: TrainingPlan, row: Row) -> float:
    """Weights, gradients, states and activations of one accelerator of a run."""
    layout = run.layout
    assert layout
    dense, experts = weights_of(row)
    held = dense / (layout.tp * layout.pp) + experts / (max(layout.tp, layout.ep) * layout.pp)
    ranks = layout.dp * layout.cp
    trained = 0.0 if run.kind == "lora" else 1.0
    each = 2.0 / (ranks if layout.zero_stage >= 3 else 1)
    each += trained * 2.0 / (ranks if layout.zero_stage >= 2 else 1)
    each += trained * ADAM_BYTES / (ranks if layout.zero_stage >= 1 else 1)
    kept = KEPT_BYTES.get(layout.recompute, RECOMPUTED_BYTES) * number(row, "hidden") * number(row, "layers")
    tokens = sequence_tokens(row) * layout.micro_batch / layout.cp
    return held * each + (0.0 if experts else tokens * kept / layout.tp)


def cache_bytes_per_token(row: Row, bits: int) -> float:
    """Keys and values of a token in layers of full attention: windows and fixed states are left out."""
    layers = number(row, "softmax_attention_layers") or number(row, "layers")
    numbers = 2.0 * number(row, "kv_heads") * number(row, "head_dim")
    if row["attention"] == "mla":
        numbers = number(row, "mla_kv_rank") + number(row, "mla_qk_rope")
    return (layers - number(row, "sliding_layers")) * numbers * bits / 8


def replica_bytes(service: ServicePlan, pool: Pool, row: Row) -> float:
    """Weights, and the cache of what is in flight, of all accelerators of one replica."""
    tokens = 0.0
    for each in service.classes:
        answer = each.output_tokens or 0.0
        stays_s = each.percentiles["ttft_p50"].value + answer * each.percentiles["tpot_p50"].value
        in_flight = each.peak_per_s / each.replica_count * stays_s
        tokens += in_flight * ((each.input_tokens or 0.0) + 0.5 * answer)
    cached = tokens * cache_bytes_per_token(row, BITS[pool.replica.kv_format or "bf16"])
    return number(row, "parameters") * BITS[pool.replica.weights_format or "bf16"] / 8 + cached


def filled(plan: Plan, row: Row) -> Iterator[tuple[str, float]]:
    """Each run and replica, with the fraction of its memory that the count of this file fills."""
    for run in plan.training:
        yield run.name, run_bytes(run, row) / run.memory_capacity_bytes
    for service in plan.serving:
        for pool in service.pools:
            room = service.memory_capacity_bytes * pool.replica.accelerator_count
            yield service.name, replica_bytes(service, pool, row) / room


def leases(half: TrainingPlan | ServicePlan) -> Iterator[tuple[PriceUsed, int]]:
    """Each price of a run or service with its accelerators, whole nodes of what is held all year."""
    machine = half.machine
    held = machine.base_node_count * machine.accelerators_per_node
    if machine.base_price:
        yield machine.base_price, held
    if machine.price:
        yield machine.price, machine.accelerator_count - held


def offer_faults(plan: Plan) -> Iterator[str]:
    """Where all together rent more by the hour than an account gets, and nobody is asked."""
    taken: dict[tuple[str, str, str], list[tuple[PriceUsed, int]]] = {}
    for half in plan.halves:
        for price, count in leases(half):
            if price.term == "on_demand":
                account = price.provider, half.machine.accelerator, price.region
                taken.setdefault(account, []).append((price, count))
    for (provider, accelerator, _), of_one in taken.items():
        count, limit = sum(count for _, count in of_one), account_limit(provider, accelerator)
        if count > limit and not all("for a quote" in price.gate for price, _ in of_one):
            yield f"offer: {count} × {accelerator} of {provider}, which gives {limit:.0f}"


def answer_faults(plan: Plan) -> Iterator[str]:
    """Where DO THIS, what is described and the bill speak of different machines."""
    told = [each for each in plan.actions if each.kind in ("rent", "use")]
    lines = plan.money.lines if plan.money else ()
    for half in plan.halves:
        machine = half.machine
        nodes = f"{machine.node_count} × {machine.accelerators_per_node} "
        counts = (nodes, f"{machine.accelerator_count} × ")
        mine = [each for each in told if each.name == half.name]
        if len(mine) != 1 or machine.accelerator not in mine[0].text or not mine[0].text.startswith(counts):
            yield f"answer: DO THIS does not rent {nodes}{machine.accelerator} for {half.name}"
        kinds = ("rent", "support") if machine.price else ("energy",)
        usd = total_usd(line for line in lines if line.category in kinds and owner_of(line) == half.name)
        if mine and abs((mine[0].usd or 0.0) - usd) > 0.005:
            yield f"answer: DO THIS pays {mine[0].usd} $ for {half.name}, the bill {usd} $"
    if plan.money and abs(total_usd(lines) - plan.money.total_usd) > 0.005:
        yield "answer: the bill is not the sum of its lines"
    housed = {group.name: group.node_count for group in plan.building.racks} if plan.building else {}
    for half in plan.halves:
        if housed.get(half.name, half.machine.node_count) != half.machine.node_count:
            yield f"answer: BUILDING houses {housed[half.name]} nodes of {half.name}"
    if plan.leasing and plan.money:  # before tax, without what the rules and checkpoints take
        leased = {each.name for each in plan.halves if each.machine.price}
        paid = total_usd(
            line
            for line in lines
            if line.category in LEASED and owner_of(line) in leased and not line.what.endswith("months")
        )
        if abs(plan.leasing.usd - paid) > 0.01 * len(lines) + 1e-4 * paid:
            yield f"answer: the leases cost {plan.leasing.usd:,.2f} $, the bill {paid:,.2f} $"


class Judged(NamedTuple):
    """What became of a spec."""

    fate: str  # planned, or why not
    took_s: float  # processor time
    fullest: float  # fraction of memory by this file's count
    wrong: list[str]


def judged(name: str, supply: str) -> Judged:
    """Plan one model on one supply, and hold the plan against the counts of this file."""
    row, start_s = rows()[name], time.process_time()
    try:
        plan = twofold.plan(spec(row, SUPPLIES[supply]))
    except InfeasibleError as error:
        return Judged(f"infeasible: {error}", time.process_time() - start_s, 0.0, [])
    took_s, shares = time.process_time() - start_s, dict(filled(plan, row))
    above = [
        f"memory: {name} needs {100 * share:.0f} % of it" for name, share in shares.items() if share > 1.0
    ]
    return Judged(
        "planned", took_s, max(shares.values()), [*above, *offer_faults(plan), *answer_faults(plan)]
    )


def main() -> None:
    """Print what is wrong, then the counts."""
    names = MODELS.split()
    cases = [(name, supply) for name in names for supply in SUPPLIES]
    with ProcessPoolExecutor(2) as pool:
        answers = list(pool.map(judged, *zip(*cases, strict=True)))
    counts = Counter(answer.fate.partition(":")[0] for answer in answers)
    for (name, supply), answer in zip(cases, answers, strict=True):
        counts.update(each.partition(":")[0] for each in answer.wrong)
        for each in answer.wrong or ([answer.fate] if answer.fate != "planned" else []):
            print(f"{name}, {supply}: {each}", flush=True)
    fates = f"{counts['planned']} planned, {counts['infeasible']} infeasible"
    print(f"{len(cases)} plans of {len(names)} models: {fates}")
    fullest = max(answer.fullest for answer in answers)
    print(f"out of memory {counts['memory']} (fullest {100 * fullest:.0f} %), two answers {counts['answer']}")
    print(f"rented beyond what an account gets {counts['offer']}")
    print(f"slowest {max(answer.took_s for answer in answers):.1f} s of processor time")
