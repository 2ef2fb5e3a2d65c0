"""The questions of `twofold estimate`, each on machines in words, with what is varied of them."""

from dataclasses import fields
from functools import partial
from typing import Any

import click

from twofold.cli.names import completed, models
from twofold.cli.options import FILE, JSON, RANKS, TABLES, Verb, Whole, flag, option, usual, words
from twofold.cli.progress import watched_bar

TRAIN_EXAMPLE = "twofold estimate train llama-3.1-70b --on 64x8xH100-SXM --batch '512 seq'"
SERVE_EXAMPLE = "twofold estimate serve llama-3.1-70b --on 4xH200 --input 1155 --output 211 --concurrency 64"
MODELS = completed(models, or_files=True)
SHOWN = ("formats", "layouts", "switches")
MACHINES = (
    option("--on", "64x8xH100-SXM (nodes × per node), 4xH200, or 8xp5.48xlarge.", required=True),
    words("--scale", "Faster or slower parts, such as compute=1.2,link=0.5,nic=2."),
    option("--oversubscription", "Of the fabric between nodes: 4 for 4:1.", default=1.0),
    words("--fabric", "Another class of fabric, such as roce."),
    words("--nic", "Another rate between nodes per accelerator, such as '200 Gb/s'."),
    words("--virtual", "Time that a hypervisor takes, such as '3 %'.", "virtual_overhead"),
    words("--price", "Of one accelerator, such as '2.10 $/h'."),
    option("--catalog", "A folder with rows of yours.", type=FILE),
)


def on_machines(parsed: dict[str, Any]) -> dict[str, Any]:
    """The words on machines as one argument."""
    from twofold.app.estimating import Machines

    words = [each.name for each in fields(Machines) if each.name in parsed]
    machines = Machines(**{name: parsed.pop(name) for name in words})
    return {"on": machines, **parsed}


def with_tables(parsed: dict[str, Any]) -> dict[str, Any]:
    """The tables that are asked for as one set as well."""
    wanted = frozenset(name for name in SHOWN if parsed.pop(name))
    return {"tables": wanted, **on_machines(parsed)}


QUESTIONS = {
    "train": Verb(
        summary="A step: time, memory, layouts; the run",
        help="""One training step of MODEL: time by part, memory by part and format, layouts; with --tokens
        the run.
        """,
        answer="estimating.estimate.train",
        progress=partial(watched_bar, "estimating"),
        epilog=lambda: f"For example: {TRAIN_EXAMPLE}",
        gathered=on_machines,
        parameters=(
            click.argument("model", shell_complete=MODELS),
            *MACHINES,
            option(
                "--batch", "Of one step: '512 seq', or tokens that divide by the sequence.", required=True
            ),
            usual("--sequence", "8192 tok", "Tokens of one sequence."),
            click.option("--precision", default="bf16", type=click.Choice(["bf16", "fp16", "fp8", "fp32"])),
            click.option("--kind", default="pretrain", type=click.Choice(["pretrain", "finetune", "lora"])),
            click.option("--lora-rank", default=16, show_default=True, type=RANKS),
            words("--layout", "Fix sizes, such as tp=8,pp=4,dp=16,mb=1; the rest is searched."),
            option(
                "--recompute",
                "Searched by default.",
                type=click.Choice(["none", "light", "selective", "mlp", "full"]),
            ),
            option("--zero", "ZeRO stage; searched by default.", type=Whole(0, 3)),
            words("--tokens", "Of the whole run, such as '15.6 Ttok': adds the run."),
            option("--layouts", "List so many layouts, fastest first.", default=0, type=Whole(0, 1000)),
            usual("--write-within", "60 s", "Longest time to write a checkpoint."),
            words("--stall", "Training stops for so much of it; by default what the framework does."),
            words("--headroom", "Hours kept for other causes, such as 'retries=5 %,validation=2 %'."),
            usual("--framework", "megatron-core", "Training software."),
            JSON,
            *TABLES,
        ),
    ),
    "serve": Verb(
        summary="A load: memory, latency, tokens/s, cost",
        help="One copy of MODEL under a load: memory, KV cache, latency, tokens/s, cost, what limits it.",
        answer="estimating.estimate.serve",
        progress=partial(watched_bar, "estimating"),
        epilog=lambda: f"For example: {SERVE_EXAMPLE}",
        gathered=with_tables,
        parameters=(
            click.argument("model", shell_complete=MODELS),
            *MACHINES,
            option("--input", "Tokens that a request sends.", "input_tokens", required=True),
            option("--output", "Tokens that it gets.", "output_tokens", required=True),
            option("--concurrency", "Clients in a closed loop.", type=Whole(1, 1_000_000)),
            words("--rate", "Or arrivals at random, such as '10 /s'."),
            words("--weights", "Number format of the weights; as published when left out."),
            words("--kv", "Number format of the KV cache; as the engine does when left out."),
            option("--tp", "Tensor parallel ranks; searched when left out.", type=RANKS),
            option("--pp", "Pipeline stages.", type=RANKS),
            option("--ep", "Expert parallel ranks.", type=RANKS),
            option("--dp", "Copies of the model, or of its attention.", type=RANKS),
            usual("--engine", "vllm", "Serving software, as in 'vllm 0.12' or 'sglang two-batch-overlap'."),
            usual("--chunk", 8192, "Prefill tokens a step.", type=Whole(1)),
            usual("--max-batch", 1024, "Decoding at once.", type=Whole(1)),
            words("--prefix", "Share of the input that the prefix cache holds, such as '30 %'."),
            words("--offload", "Host memory for cold cache per accelerator, such as '64 GiB'."),
            words("--load-rate", "What weights are read at when a replica starts: '5 GB/s'."),
            flag("--formats", "Add memory and speed per weight format."),
            flag("--layouts", "Add every split of the accelerators."),
            flag("--switches", "Add ways to keep the KV cache."),
            words("--replicas", "Add throughput against replicas, such as 1..16."),
            JSON,
            *TABLES,
        ),
    ),
    "collective": Verb(
        summary="A collective, idle and with jitter",
        help="One all_reduce, all_gather, reduce_scatter or all_to_all, on an idle network and with jitter.",
        answer="estimating.estimate.collective",
        gathered=on_machines,
        parameters=(
            click.argument("operation"),
            *MACHINES,
            option("--size", "Of the full tensor on one rank, such as '1 GB'.", required=True),
            option("--ranks", "Consecutive accelerators that take part; all of them by default.", type=int),
            words("--jitter", "Spread of one rank's time, such as '5 %'; the fabric's by default."),
            JSON,
            *TABLES,
        ),
    ),
    "compute": Verb(
        summary="FLOPs of a fleet, and what they may cost",
        help="FLOPs of a fleet in a time, and the price per GPU-hour at which a spend pays for it.",
        answer="estimating.estimate.compute",
        gathered=on_machines,
        parameters=(
            *MACHINES,
            option("--for", "How long, such as '95 d'.", "duration", required=True),
            usual("--mfu", "40 %", "Share of the 16-bit peak that is reached."),
            words("--spend", "Money that must suffice, such as '100 M$'."),
            words("--model", "Say how many tokens the FLOPs train it on."),
            JSON,
            *TABLES,
        ),
    ),
    "roofline": Verb(
        summary="FLOPs per byte under the roofline",
        help="FLOPs per byte of training, prefill and decode of MODEL under a device's roofline.",
        answer="estimating.estimate.roofline",
        gathered=on_machines,
        parameters=(
            click.argument("model", shell_complete=MODELS),
            *MACHINES,
            words("--weights", "Number format of the weights; as published when left out."),
            JSON,
            *TABLES,
        ),
    ),
}
