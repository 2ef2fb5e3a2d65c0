"""The questions of `twofold estimate`, each on machines in words, with what is varied of them."""

from dataclasses import fields
from typing import Any

import click

from twofold.cli.options import FILE, JSON, Verb

TRAIN_EXAMPLE = "twofold estimate train llama-3.1-70b --on 64x8xH100-SXM --batch '512 seq'"
SERVE_EXAMPLE = "twofold estimate serve llama-3.1-70b --on 4xH200 --input 1155 --output 211 --concurrency 64"
TABLES = ("formats", "layouts", "switches")
MACHINES = (
    click.option("--on", required=True, help="64x8xH100-SXM (nodes × per node), 4xH200, or 8xp5.48xlarge."),
    click.option("--scale", default="", help="Faster or slower parts, such as compute=1.2,link=0.5,nic=2."),
    click.option("--oversubscription", default=1.0, help="Of the fabric between nodes: 4 for 4:1."),
    click.option("--fabric", default="", help="Another class of fabric, such as roce."),
    click.option("--nic", default="", help="Another rate between nodes per accelerator, such as '200 Gb/s'."),
    click.option(
        "--virtual", "virtual_overhead", default="", help="Time that a hypervisor takes, such as '3 %'."
    ),
    click.option("--price", default="", help="Of one accelerator, such as '2.10 $/h'."),
    click.option("--catalog", type=FILE, help="A folder with rows of yours."),
)


def on_machines(parsed: dict[str, Any]) -> dict[str, Any]:
    """The words on machines as one argument."""
    from twofold.app import Machines

    words = [each.name for each in fields(Machines) if each.name in parsed]
    machines = Machines(**{name: parsed.pop(name) for name in words})
    return {"on": machines, **parsed}


def with_tables(parsed: dict[str, Any]) -> dict[str, Any]:
    """The tables that are asked for as one set as well."""
    wanted = frozenset(name for name in TABLES if parsed.pop(name))
    return {"tables": wanted, **on_machines(parsed)}


QUESTIONS = {
    "train": Verb(
        summary="A step: time, memory, layouts; the run",
        help="""One training step of MODEL: time by part, memory by part and format, layouts; with --tokens
        the run.
        """,
        answer="estimate.train",
        epilog=lambda: f"For example: {TRAIN_EXAMPLE}",
        gathered=on_machines,
        parameters=(
            click.argument("model"),
            *MACHINES,
            click.option(
                "--batch",
                required=True,
                help="Of one step: '512 seq', or tokens that divide by the sequence.",
            ),
            click.option("--sequence", default="8192 tok", show_default=True, help="Tokens of one sequence."),
            click.option("--precision", default="bf16", type=click.Choice(["bf16", "fp16", "fp8", "fp32"])),
            click.option("--kind", default="pretrain", type=click.Choice(["pretrain", "finetune", "lora"])),
            click.option("--lora-rank", default=16, show_default=True, type=click.IntRange(1, 4096)),
            click.option(
                "--layout", default="", help="Fix sizes, such as tp=8,pp=4,dp=16,mb=1; the rest is searched."
            ),
            click.option(
                "--recompute", type=click.Choice(["none", "selective", "full"]), help="Searched by default."
            ),
            click.option("--zero", type=click.IntRange(0, 3), help="ZeRO stage; searched by default."),
            click.option("--tokens", default="", help="Of the whole run, such as '15.6 Ttok': adds the run."),
            click.option(
                "--layouts",
                default=0,
                type=click.IntRange(0, 1000),
                help="List so many layouts, fastest first.",
            ),
            click.option(
                "--write-within", default="60 s", show_default=True, help="Longest pause for a checkpoint."
            ),
            click.option(
                "--headroom",
                default="",
                help="Hours kept for other causes, such as 'retries=5 %,validation=2 %'.",
            ),
            click.option(
                "--framework", default="megatron-core", show_default=True, help="Training software."
            ),
            JSON,
        ),
    ),
    "serve": Verb(
        summary="A load: memory, latency, tokens/s, cost",
        help="One copy of MODEL under a load: memory, KV cache, latency, tokens/s, cost, what limits it.",
        answer="estimate.serve",
        epilog=lambda: f"For example: {SERVE_EXAMPLE}",
        gathered=with_tables,
        parameters=(
            click.argument("model"),
            *MACHINES,
            click.option("--input", "input_tokens", required=True, help="Tokens that a request sends."),
            click.option("--output", "output_tokens", required=True, help="Tokens that it gets."),
            click.option(
                "--concurrency", type=click.IntRange(1, 1_000_000), help="Clients in a closed loop."
            ),
            click.option("--rate", default="", help="Or arrivals at random, such as '10 /s'."),
            click.option(
                "--weights", default="", help="Number format of the weights; as published when left out."
            ),
            click.option("--kv", default="bf16", show_default=True, help="Number format of the KV cache."),
            click.option(
                "--tp", type=click.IntRange(1, 4096), help="Tensor parallel ranks; searched when left out."
            ),
            click.option("--pp", type=click.IntRange(1, 4096), help="Pipeline stages."),
            click.option("--ep", type=click.IntRange(1, 4096), help="Expert parallel ranks."),
            click.option(
                "--dp", type=click.IntRange(1, 4096), help="Copies of the model, or of its attention."
            ),
            click.option(
                "--engine", default="vllm", show_default=True, help="Serving software, as in 'vllm 0.12'."
            ),
            click.option(
                "--chunk",
                default=8192,
                show_default=True,
                type=click.IntRange(1),
                help="Prefill tokens a step.",
            ),
            click.option(
                "--max-batch",
                default=1024,
                show_default=True,
                type=click.IntRange(1),
                help="Decoding at once.",
            ),
            click.option(
                "--prefix", default="", help="Share of the input that the prefix cache holds, such as '30 %'."
            ),
            click.option(
                "--offload", default="", help="Host memory for cold cache per accelerator, such as '64 GiB'."
            ),
            click.option(
                "--load-rate", default="", help="What weights are read at when a replica starts: '5 GB/s'."
            ),
            click.option("--formats", is_flag=True, help="Add memory and speed per weight format."),
            click.option("--layouts", is_flag=True, help="Add every split of the accelerators."),
            click.option("--switches", is_flag=True, help="Add ways to keep the KV cache."),
            click.option("--replicas", default="", help="Add throughput against replicas, such as 1..16."),
            JSON,
        ),
    ),
    "collective": Verb(
        summary="A collective, idle and with jitter",
        help="One all_reduce, all_gather, reduce_scatter or all_to_all, on an idle network and with jitter.",
        answer="estimate.collective",
        gathered=on_machines,
        parameters=(
            click.argument("operation"),
            *MACHINES,
            click.option("--size", required=True, help="Of the full tensor on one rank, such as '1 GB'."),
            click.option(
                "--ranks", type=int, help="Consecutive accelerators that take part; all of them by default."
            ),
            click.option(
                "--jitter",
                default="",
                help="Spread of one rank's time, such as '5 %'; the fabric's by default.",
            ),
            JSON,
        ),
    ),
    "compute": Verb(
        summary="FLOPs of a fleet, and what they may cost",
        help="FLOPs of a fleet in a time, and the price per GPU-hour at which a spend pays for it.",
        answer="estimate.compute",
        gathered=on_machines,
        parameters=(
            *MACHINES,
            click.option("--for", "duration", required=True, help="How long, such as '95 d'."),
            click.option(
                "--mfu", default="40 %", show_default=True, help="Share of the 16-bit peak that is reached."
            ),
            click.option("--spend", default="", help="Money that must suffice, such as '100 M$'."),
            click.option("--model", default="", help="Say how many tokens the FLOPs train it on."),
            JSON,
        ),
    ),
    "roofline": Verb(
        summary="FLOPs per byte under the roofline",
        help="FLOPs per byte of training, prefill and decode of MODEL under a device's roofline.",
        answer="estimate.roofline",
        gathered=on_machines,
        parameters=(
            click.argument("model"),
            *MACHINES,
            click.option(
                "--weights", default="", help="Number format of the weights; as published when left out."
            ),
            JSON,
        ),
    ),
}
