"""The questions of `twofold measure` about services: loads on one, and results of other tools."""

from dataclasses import fields
from math import isnan
from typing import Any

import click

from twofold.cli.options import FILE, FORCE, JSON, TABLES, WRITTEN, Verb, Whole, flag, option, usual, words
from twofold.cli.progress import stage_bar


class Counted(click.FloatRange):
    """A number above 0, and none that is no number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if isnan(number):
            self.fail("it is no number", param, ctx)
        return number


COUNTED = Counted(0, 1e6, min_open=True)
RAN_ON = (
    words("--as", "Its model: a name of the catalogue, or the path of its config.json.", "ran_model"),
    words("--gpu", "The accelerator it ran on, by a name of the catalogue."),
    option("--gpus", "How many of them.", "gpu_count", type=Whole(1, 100_000)),
    option("--tp", "Over how many each replica is split.", "tensor_parallel", type=Whole(1, 1024)),
    words("--engine", "What serves it: vllm, sglang, trtllm, llama.cpp, transformers …"),
    words("--engine-version", "Its release."),
    words("--weights", "The weights' format: bf16, fp8, int4 …", "weights_format"),
)
ROWS = option("--out", "Write a row per load, as `predict` and `calibrate` read them.", type=WRITTEN)


def gathered(parsed: dict[str, Any]) -> dict[str, Any]:
    """The words on the service, the loads and the machine as one argument each."""
    from twofold.app.measure_serving import What, Where
    from twofold.measure.served_rows import RunOn

    ran_on = {each.name: parsed.pop(each.name) for each in fields(RunOn) if each.name != "model"}
    parsed["ran_on"] = RunOn(model=parsed.pop("ran_model"), **ran_on)
    for name, kind in (("where", Where), ("what", What)):
        if all(each.name in parsed for each in fields(kind)):
            parsed[name] = kind(**{each.name: parsed.pop(each.name) for each in fields(kind)})
    return parsed


SERVE = Verb(
    help="""Load the service at URL, which answers as OpenAI's API does, or takes --body, and measure it.

    Loads run one after another: closed loops (--clients), Poisson streams (--rate), in bursts, the search
    for the knee, a replayed trace; 1 and 4 clients unless told. Latencies of all but closed loops count from
    when a request was due. Without a tokenizer, lengths go by what the service counts. Tokens a joule (per
    second and watt) are told where the machine tells its power.
    """,
    answer="measure_serving.measure_serve",
    gathered=gathered,
    progress=stage_bar,
    writes=("out",),
    parameters=(
        click.argument("url"),
        words("--model", "What the service calls it; the first that it lists unless told."),
        words("--key-env", "The environment variable that holds the key."),
        option("--ca", "Certificates (PEM) to trust besides this machine's.", type=FILE),
        usual(
            "--api",
            "auto",
            "Which of them.",
            type=click.Choice(["auto", "completions", "chat", "embeddings"]),
        ),
        option(
            "--body", "JSON to send instead of prompts, or a file of lines; `{text}` is replaced.", type=FILE
        ),
        words("--unit", "What such a request holds: images, texts, rows."),
        usual("--units", 1, "How many of them.", type=Whole(1, 100_000)),
        option("--tokenizer", "A model's folder, by whose tokenizer prompts are cut.", type=FILE),
        flag("--ignore-eos", "Ask for answers of full length, which vLLM and SGLang know."),
        option("--pid", "The server's process, if it runs here: its memory is watched.", type=int),
        words("--clients", "Closed loops of so many, such as 1,4,16 or 1..64."),
        words("--rate", "Poisson streams of so many requests/s, such as 2,4,8."),
        usual("--burst", 1, "Requests at each arrival of them.", type=Whole(1, 10_000)),
        flag("--knee", "Double the rate, from the first or 1/s, until it does not hold; then halve the gap."),
        words("--ttft-p95", "What holds: p95 of the first token, such as '500 ms'; else twice the lightest."),
        words("--e2e-p95", "What holds: p95 of the whole answer."),
        option("--trace", "Replay the requests of this trace.", type=FILE),
        usual("--scale", 1.0, "How many times as fast.", type=float),
        usual("--input", "256 tok", "Of each prompt."),
        usual("--output", "64 tok", "Of each answer, at most."),
        usual("--for", "20 s", "How long each load is held.", "load_for"),
        usual("--seed", 0, "Of prompts and arrivals.", type=Whole(0)),
        *RAN_ON,
        ROWS,
        FORCE,
        JSON,
        *TABLES,
    ),
)


def gathered_training(parsed: dict[str, Any]) -> dict[str, Any]:
    """The words on the runs as one argument."""
    from twofold.app.measure_training import TrainWanted

    parsed["what"] = TrainWanted(**{each.name: parsed.pop(each.name) for each in fields(TrainWanted)})
    return parsed


TRAIN = Verb(
    help="""Train MODEL, a config.json or a folder with one, in short runs on this machine, and measure them.

    The first run has the most ranks, the first precision, and runs eagerly; each other one differs from it
    in one thing: ranks, precision, compiled. One rank is killed on the way. Step parts, checkpoints, restart,
    the loader, power and clocks where the machine tells them; minutes in all.
    """,
    answer="measure_training.measure_train",
    gathered=gathered_training,
    progress=stage_bar,
    writes=("out",),
    parameters=(
        click.argument("model", type=FILE),
        usual("--ranks", "1,2", "Of each run, such as 1,2 or 1..8."),
        usual("--precision", "fp32,bf16", "Of the products: fp32, bf16, fp16.", "precisions"),
        usual("--compute", "eager,compiled", "Eager or compiled, which needs a compiler.", "computes"),
        usual("--steps", 24, "Of each run.", type=Whole(4, 100_000)),
        usual("--batch", "8 seq", "Of all ranks, in one step."),
        usual("--sequence", "128 tok", "Of each sequence."),
        option("--micro-batch", "Sequences of a rank at once; its whole share unless told.",
               type=Whole(0, 1_000_000), default=0),
        usual("--recompute", "none", "In the backward pass.",
              type=click.Choice(["none", "selective", "mlp", "full"])),
        words("--data", "Your files: 'text/*.jsonl', s3://…; the standard library's sources unless told."),
        usual("--column", "text", "Of JSON lines and Parquet: holds the text."),
        usual("--workers", 2, "Files fetched and tokenised ahead at once.", type=Whole(1, 64)),
        usual("--device", "cpu", "What it runs on.", type=click.Choice(["cpu", "cuda"])),
        words("--gpu", "The name of what it runs on in the catalogue, for the rows."),
        usual("--seed", 1, "Of weights and of the order of text.", type=Whole(0)),
        flag("--branch", "Each other run goes on from a checkpoint of the first."),
        option("--out", "Write a row per eager run, as `predict` and `calibrate` read them.", type=WRITTEN),
        FORCE,
        JSON,
        *TABLES,
    ),
)  # fmt: skip
IMPORT = Verb(
    help="""Read FILE, results of `vllm bench serve`, AIPerf or GuideLLM, as loads.

    AIPerf's CSV and JSON lines do not say how it was loaded: clients are found by Little's law or as the
    most in flight, unless told.
    """,
    answer="measure_serving.measure_import",
    gathered=gathered,
    writes=("out",),
    parameters=(
        click.argument("file", type=FILE),
        option("--clients", "How many there were.", type=COUNTED),
        option("--rate", "Requests/s that were offered.", type=COUNTED),
        *RAN_ON,
        ROWS,
        FORCE,
        JSON,
        *TABLES,
    ),
)
