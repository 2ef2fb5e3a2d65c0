"""The questions of `twofold jobs`: a queue on this machine's slots."""

from dataclasses import fields
from typing import Any

import click

from twofold.cli.options import (
    FILE,
    JSON,
    NAMES,
    RANKS,
    SPEC,
    TABLES,
    Verb,
    Whole,
    flag,
    option,
    usual,
    words,
)
from twofold.cli.progress import passed_on
from twofold.cli.registry import BITS, REGISTRY, TASKS

KINDS = ["command", "finetune", "evaluate", "quantise"]


def gathered(parsed: dict[str, Any]) -> dict[str, Any]:
    """What is said of a job as one argument."""
    from twofold.app.jobs import Wanted
    from twofold.app.model_jobs import ModelWanted

    model = ModelWanted(**{each.name: parsed.pop(each.name) for each in fields(ModelWanted)})
    own = {each.name: parsed.pop(each.name) for each in fields(Wanted) if each.name != "model"}
    wanted = Wanted(**own, model=model)
    return {**parsed, "wanted": wanted}


SUBMIT = Verb(
    help="""Queue a training run of SPEC, an evaluation or quantisation of a registry's --version, or COMMAND
    behind `--`, on the slots of `on: …this-machine`.

    A slot is a rank with its share of the machine. A gang starts on all its slots or waits; a higher
    --priority has others make room, each after a checkpoint. A command runs once per rank, told RANK,
    WORLD_SIZE and TWOFOLD_JOB_FOLDER.
    """,
    answer="jobs.submit_job",
    gathered=gathered,
    parameters=(
        SPEC,
        click.argument("command", nargs=-1),
        words("--name", "Of the command's job; of a spec with several runs, which one."),
        words("--team", "Whose share it counts for; as the spec says, else `default`."),
        option("--priority", "Higher goes first; as the spec says, else 0.", type=Whole(-1000, 1000)),
        usual("--ranks", 1, "Processes of the command.", type=RANKS),
        option("--slots", "Of the command, all ranks together; one each unless told.", type=RANKS),
        usual("--kind", "command", "What the command does.", type=click.Choice(KINDS)),
        words("--version", "Of a registry: what --kind evaluate or quantise, without a command, is about."),
        option("--on", "The set that a version is evaluated on.", "texts", type=FILE),
        TASKS,
        option("--bits", "How wide a quantised version's weights are; 8 unless told.", type=BITS),
        REGISTRY,
        flag("--saves", "It writes steps, and a checkpoint when asked: it makes room for others."),
        words("--expect", "How long it takes, such as '20 min'; an hour unless told."),
        option(
            "--env",
            "Variables that it is given of this environment, such as HF_TOKEN,AWS_PROFILE.",
            default="",
            type=NAMES,
        ),
        option(
            "--order",
            "JSON of what the run does, in place of the spec's settings: `docs/howto/train.md` has the keys.",
            type=FILE,
        ),
        words(
            "--scenario",
            "Shares of teams, spares, failures and checkpoints of the queue, from its `cluster`.",
        ),
        JSON,
    ),
)
LIST = Verb(
    help="List every job with its state, as the queue's log tells.",
    answer="jobs.list_jobs",
    parameters=(SPEC, JSON, *TABLES),
)
CANCEL = Verb(
    help="Take JOB out of the queue; where it runs it writes a last checkpoint and ends. The name of a run"
    " that `repeats`, without a number, ends the repeating.",
    answer="jobs.cancel_job",
    parameters=(SPEC, click.argument("job"), JSON),
)
LOGS = Verb(
    help="Print the end of what JOB said.",
    answer="jobs.job_logs",
    progress=passed_on,
    parameters=(
        SPEC,
        click.argument("job"),
        flag("--follow", "Go on with what it says, until it is over or Ctrl-C."),
        JSON,
    ),
)
