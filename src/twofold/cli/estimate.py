"""`twofold estimate`: one question without a spec."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from twofold.cli.output import json_option, print_lines

if TYPE_CHECKING:
    from twofold.app import Answer, Machines

TRAIN_EXAMPLE = "twofold estimate train llama-3.1-70b --on 64x8xH100-SXM --batch '512 seq'"
SERVE_EXAMPLE = "twofold estimate serve llama-3.1-70b --on 4xH200 --input 1155 --output 211 --concurrency 64"


@click.group("estimate")
def command() -> None:
    """Answer one question without a spec: a training step, a served load, a collective, a fleet, a roofline.

    MODEL is a name of the catalogue or the path of a config.json.
    """


MACHINE_OPTIONS = (
    click.option("--on", required=True, help="64x8xH100-SXM (nodes × per node), 4xH200, or 8xp5.48xlarge."),
    click.option("--scale", default="", help="Faster or slower parts, such as compute=1.2,link=0.5,nic=2."),
    click.option("--oversubscription", default=1.0, help="Of the fabric between nodes: 4 for 4:1."),
    click.option("--fabric", default="", help="Another class of fabric, such as roce."),
    click.option("--nic", default="", help="Another rate between nodes per accelerator, such as '200 Gb/s'."),
    click.option("--virtual", default="", help="Time that a hypervisor takes, such as '3 %'."),
    click.option("--price", default="", help="Of one accelerator, such as '2.10 $/h'."),
    click.option("--catalog", type=click.Path(path_type=Path), help="A folder with rows of yours."),
)


def takes_machines(function: Callable[..., None]) -> Callable[..., None]:
    """The options on machines that every question has, handed on as one argument `machines`."""

    @wraps(function)
    def with_machines(
        on: str,
        scale: str,
        oversubscription: float,
        fabric: str,
        nic: str,
        virtual: str,
        price: str,
        catalog: Path | None,
        **others: Any,  # what click parsed for the function itself: only it knows their names
    ) -> None:
        from twofold.app import Machines

        machines = Machines(on, scale, oversubscription, fabric, nic, virtual, price, catalog)
        function(machines=machines, **others)

    for option in reversed(MACHINE_OPTIONS):
        with_machines = option(with_machines)
    return with_machines


def show(answer: "Answer", as_json: bool) -> None:
    """The answer as lines, or as data whose first key is its schema."""
    if not as_json:
        print_lines(answer.lines)
        return
    from twofold.contracts.results import plan_to_json

    click.echo(plan_to_json(answer.data), nl=False)  # type: ignore[arg-type]  # any answer of the schema


@command.command(
    "train", short_help="A step: time, memory, layouts; the run", epilog=f"For example: {TRAIN_EXAMPLE}"
)
@click.argument("model")
@takes_machines
@click.option("--batch", required=True, help="Of one step: '512 seq', or tokens that divide by the sequence.")
@click.option("--sequence", default="8192 tok", show_default=True, help="Tokens of one sequence.")
@click.option("--precision", default="bf16", type=click.Choice(["bf16", "fp16", "fp8", "fp32"]))
@click.option("--kind", default="pretrain", type=click.Choice(["pretrain", "finetune", "lora"]))
@click.option("--lora-rank", default=16, show_default=True, type=click.IntRange(1, 4096))
@click.option("--layout", default="", help="Fix sizes, such as tp=8,pp=4,dp=16,mb=1; the rest is searched.")
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]), help="Searched by default.")
@click.option("--zero", type=click.IntRange(0, 3), help="ZeRO stage; searched by default.")
@click.option("--tokens", default="", help="Of the whole run, such as '15.6 Ttok': adds the run.")
@click.option(
    "--layouts", default=0, type=click.IntRange(0, 1000), help="List so many layouts, fastest first."
)
@click.option("--write-within", default="60 s", show_default=True, help="Longest pause for a checkpoint.")
@click.option(
    "--headroom", default="", help="Hours kept for other causes, such as 'retries=5 %,validation=2 %'."
)
@click.option("--framework", default="megatron-core", show_default=True, help="Training software.")
@json_option
def train(
    model: str,
    machines: "Machines",
    batch: str,
    sequence: str,
    precision: Literal["bf16", "fp16", "fp8", "fp32"],
    kind: Literal["pretrain", "finetune", "lora"],
    lora_rank: int,
    layout: str,
    recompute: Literal["none", "selective", "full"] | None,
    zero: int | None,
    tokens: str,
    layouts: int,
    write_within: str,
    headroom: str,
    framework: str,
    as_json: bool,
) -> None:
    """One training step of MODEL: time by part, memory by part and format, layouts; with --tokens the run."""
    from twofold.app import estimate

    answer = estimate.train(
        model,
        machines,
        batch=batch,
        sequence=sequence,
        precision=precision,
        kind=kind,
        lora_rank=lora_rank,
        layout=layout,
        recompute=recompute,
        zero=zero,
        tokens=tokens,
        layouts=layouts,
        write_within=write_within,
        headroom=headroom,
        framework=framework,
    )
    show(answer, as_json)


@command.command(
    "serve", short_help="A load: memory, latency, tokens/s, cost", epilog=f"For example: {SERVE_EXAMPLE}"
)
@click.argument("model")
@takes_machines
@click.option("--input", "input_tokens", required=True, help="Tokens that a request sends.")
@click.option("--output", "output_tokens", required=True, help="Tokens that it gets.")
@click.option("--concurrency", type=click.IntRange(1, 1_000_000), help="Clients in a closed loop.")
@click.option("--rate", default="", help="Or arrivals at random, such as '10 /s'.")
@click.option("--weights", default="", help="Number format of the weights; as published when left out.")
@click.option("--kv", default="bf16", show_default=True, help="Number format of the KV cache.")
@click.option("--tp", type=click.IntRange(1, 4096), help="Tensor parallel ranks; searched when left out.")
@click.option("--pp", type=click.IntRange(1, 4096), help="Pipeline stages.")
@click.option("--ep", type=click.IntRange(1, 4096), help="Expert parallel ranks.")
@click.option("--dp", type=click.IntRange(1, 4096), help="Copies of the model, or of its attention.")
@click.option("--engine", default="vllm", show_default=True, help="Serving software, as in 'vllm 0.12'.")
@click.option(
    "--chunk", default=8192, show_default=True, type=click.IntRange(1), help="Prefill tokens a step."
)
@click.option(
    "--max-batch", default=1024, show_default=True, type=click.IntRange(1), help="Decoding at once."
)
@click.option("--prefix", default="", help="Share of the input that the prefix cache holds, such as '30 %'.")
@click.option("--offload", default="", help="Host memory for cold cache per accelerator, such as '64 GiB'.")
@click.option("--load-rate", default="", help="What weights are read at when a replica starts: '5 GB/s'.")
@click.option("--formats", is_flag=True, help="Add memory and speed per weight format.")
@click.option("--layouts", is_flag=True, help="Add every split of the accelerators.")
@click.option("--switches", is_flag=True, help="Add ways to keep the KV cache.")
@click.option("--replicas", default="", help="Add throughput against replicas, such as 1..16.")
@json_option
def serve(
    model: str,
    machines: "Machines",
    input_tokens: str,
    output_tokens: str,
    concurrency: int | None,
    rate: str,
    weights: str,
    kv: str,
    tp: int | None,
    pp: int | None,
    ep: int | None,
    dp: int | None,
    engine: str,
    chunk: int,
    max_batch: int,
    prefix: str,
    offload: str,
    load_rate: str,
    formats: bool,
    layouts: bool,
    switches: bool,
    replicas: str,
    as_json: bool,
) -> None:
    """One copy of MODEL under a load: memory, KV cache, latency, tokens/s, cost, what limits it."""
    from twofold.app import estimate

    asked: dict[Literal["formats", "layouts", "switches"], bool] = {
        "formats": formats,
        "layouts": layouts,
        "switches": switches,
    }
    answer = estimate.serve(
        model,
        machines,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        rate=rate,
        weights=weights,
        kv=kv,
        tp=tp,
        pp=pp,
        ep=ep,
        dp=dp,
        engine=engine,
        chunk=chunk,
        max_batch=max_batch,
        prefix=prefix,
        offload=offload,
        load_rate=load_rate,
        tables=frozenset(name for name, wanted in asked.items() if wanted),
        replicas=replicas,
    )
    show(answer, as_json)


@command.command("collective", short_help="A collective, idle and with jitter")
@click.argument("operation")
@takes_machines
@click.option("--size", required=True, help="Of the full tensor on one rank, such as '1 GB'.")
@click.option("--ranks", type=int, help="Consecutive accelerators that take part; all of them by default.")
@click.option(
    "--jitter", default="", help="Spread of one rank's time, such as '5 %'; the fabric's by default."
)
@json_option
def collective(
    operation: str,
    machines: "Machines",
    size: str,
    ranks: int | None,
    jitter: str,
    as_json: bool,
) -> None:
    """One all_reduce, all_gather, reduce_scatter or all_to_all, on an idle network and with jitter."""
    from twofold.app import estimate

    show(estimate.collective(operation, machines, size=size, ranks=ranks, jitter=jitter), as_json)


@command.command("compute", short_help="FLOPs of a fleet, and what they may cost")
@takes_machines
@click.option("--for", "duration", required=True, help="How long, such as '95 d'.")
@click.option("--mfu", default="40 %", show_default=True, help="Share of the 16-bit peak that is reached.")
@click.option("--spend", default="", help="Money that must suffice, such as '100 M$'.")
@click.option("--model", default="", help="Say how many tokens the FLOPs train it on.")
@json_option
def compute(
    machines: "Machines",
    duration: str,
    mfu: str,
    spend: str,
    model: str,
    as_json: bool,
) -> None:
    """FLOPs of a fleet in a time, and the price per GPU-hour at which a spend pays for it."""
    from twofold.app import estimate

    show(estimate.compute(machines, duration=duration, mfu=mfu, spend=spend, model=model), as_json)


@command.command("roofline", short_help="FLOPs per byte under the roofline")
@click.argument("model")
@takes_machines
@click.option("--weights", default="", help="Number format of the weights; as published when left out.")
@json_option
def roofline(
    model: str,
    machines: "Machines",
    weights: str,
    as_json: bool,
) -> None:
    """FLOPs per byte of training, prefill and decode of MODEL under a device's roofline."""
    from twofold.app import estimate

    show(estimate.roofline(model, machines, weights=weights), as_json)
