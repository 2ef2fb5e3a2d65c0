"""The verbs in their groups, as one table: what each is for, what it takes, and the function that answers it.

A parameter has the name of the function's argument that it becomes; `running` does what all verbs share.
"""

from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from twofold.cli import options, registry, trust
from twofold.cli.estimate import QUESTIONS
from twofold.cli.jobs import CANCEL, LIST, LOGS, SUBMIT
from twofold.cli.measure import IMPORT, SERVE, TRAIN
from twofold.cli.names import accelerators, completed, scenarios, tables
from twofold.cli.progress import passed_on, patient_bar, stage_bar, stage_lines, watched_bar, watched_screen

AXES = ["fabric", "nodes", "context", "size", "format", "tenancy"]
TARGETS = ["shell", "compose", "slurm", "kubernetes", "ray", "skypilot", "triton"]
HALVES = ["training", "inference"]
SHELLS = ["bash", "zsh", "fish"]
VERDICTS = ["holds", "conditional", "contradicted", "unverifiable"]
EXIT_CODES = "0 ok · 1 our bug · 2 bad input · 3 infeasible · 4 a difference found (diff)"


def _scenarios() -> str:
    """What stands in the package, without reading it: `--help` is light."""
    names = (path.name.removesuffix(".yaml") for path in files("twofold").joinpath("scenarios").iterdir())
    return f"Scenarios, besides YAML files of yours: {', '.join(sorted(names))}."


def _named_by_kind(parsed: dict[str, Any]) -> dict[str, Any]:
    """The file of `report` where none is named."""
    kinds = {"as_markdown": "md", "as_workbook": "xlsx", "as_table": "csv", "table": "csv"}
    kind = next((ending for name, ending in kinds.items() if parsed[name]), "html")
    return {**parsed, "out": parsed["out"] or Path(f"report.{kind}")}


VERBS = {
    "init": options.Verb(
        group="decide",
        summary="Write a commented starter spec, or infer one from what you run",
        help="Write a commented starter spec; with --from, infer one, the rest marked `# assumed`.",
        answer="checking.first_spec",
        writes=("out",),
        parameters=(
            options.usual("--kind", "both", "What is planned.", type=click.Choice(["chat", "train", "both"])),
            options.option(
                "--from",
                "Infer from an engine's line or script, a requests.jsonl or a sacct.csv instead.",
                "source",
            ),
            options.usual("--out", Path("twofold.yaml"), "`-` prints it.", type=options.WRITTEN),
            options.FORCE,
            options.JSON,
        ),
    ),
    "check": options.Verb(
        group="decide",
        summary="Validate a spec: every error in one pass, with its place",
        help="""Validate SPEC: a file, or a folder with a twofold.yaml. Every error in one pass; exit 2 if
        any.
        """,
        answer="checking.check",
        parameters=(options.SPEC, options.JSON),
    ),
    "plan": options.Verb(
        group="decide",
        summary="Plan both halves of a spec on one screen",
        help="""Plan both halves of SPEC: a file, or a folder with a twofold.yaml.

        The screen is the decision: what to rent, how sure, for how much, and what may go wrong.
        `--out plan.json` keeps the plan as data for `explain` and `diff`, whatever is printed.
        """,
        answer="planning.plan_screen",
        progress=watched_bar,
        parameters=(
            options.SPEC,
            options.JSON,
            *options.TABLES,
            options.flag(
                "--full", "Add every section: step, memory, failures, money, and why not otherwise."
            ),
            options.flag("--details", "Add to --full memory by format, percentiles, scaling, the building."),
            options.flag("--money", "Add to --full every line of the bill, owning, levers, sensitivity."),
            options.flag("--rehearse", "Confirm the two best fleets of each service on the twin."),
            options.flag("--show-defaults", "List every value that the spec left open."),
            options.flag("--chart", "Add small pictures of text: sizes, steps, memory, goals, money."),
            options.OUT,
            options.FORCE,
        ),
    ),
    "compare": options.Verb(
        group="decide",
        summary="Each half on the other's fleet, or one axis at a time",
        help="""Show each half of SPEC on the other's fleet, in cost and latency.

        With --ladder one thing changes at a time: the network between nodes, how many nodes, how long a
        context, the size of the model, the number format of its weights, bare metal or virtual machines.
        """,
        answer="planning.compare",
        progress=watched_bar,
        parameters=(
            options.SPEC,
            options.option("--ladder", "Compare along one axis instead.", type=click.Choice(AXES)),
            options.JSON,
            *options.TABLES,
        ),
    ),
    "estimate": options.Verb(
        group="decide",
        summary="Answer one question without a spec",
        help="""Answer one question without a spec: a training step, a served load, a collective, a fleet, a
        roofline.

        MODEL is a name of the catalogue or the path of a config.json.
        """,
        questions=QUESTIONS,
    ),
    "explain": options.Verb(
        group="decide",
        summary="Show where a number of a plan comes from",
        help="""Print the derivation of PATH in PLAN, a file that `twofold plan SPEC --out PLAN` wrote.

        PATH reads like training.pretrain.step_s; a part of the plan lists what is below it.
        """,
        answer="planning.explain",
        parameters=(
            click.argument("plan", type=options.FILE),
            click.argument("path", default=""),
            options.JSON,
        ),
    ),
    "diff": options.Verb(
        group="decide",
        summary="Show what changed between two plans",
        help="Show what changed from plan OLD to plan NEW; exit 4 when anything did.",
        answer="planning.diff",
        parameters=(
            click.argument("old", type=options.FILE),
            click.argument("new", type=options.FILE),
            options.flag("--all", "Every change, not only the twenty that matter most.", "everything"),
            options.JSON,
            *options.TABLES,
        ),
    ),
    "catalog": options.Verb(
        group="decide",
        summary="List and filter the tables that plans are made from",
        help="""Print TABLE of the catalogue; without TABLE, the list of tables.

        `twofold catalog partitions GPU` lists what a device can be cut into, `twofold catalog kernels GPU`
        what each engine runs on it. `twofold catalog refresh-prices --folder catalog` writes the prices of
        today.
        """,
        answer="catalogue.catalog",
        progress=stage_bar,
        parameters=(
            click.argument("table", required=False, shell_complete=completed(tables)),
            click.argument("gpu", required=False, shell_complete=completed(accelerators)),
            options.words("--where", "Conditions, such as 'mem_gb >= 80 and vendor == nvidia'."),
            options.option(
                "--columns",
                "Columns to show, with commas between; `all` shows every one.",
                default="",
                type=options.NAMES,
            ),
            options.words("--fit", "With `partitions GPU`: must fit on one, such as '3x 1g.10gb + 4g.40gb'."),
            options.option("--folder", "A folder with rows of yours, as beside a spec.", type=options.FILE),
            options.JSON,
            *options.TABLES,
        ),
    ),
    "claims": options.Verb(
        group="decide",
        summary="Judge what circulates about infrastructure by the product itself",
        help="""Judge claims that circulate about training and inference infrastructure.

        Each verdict is computed from the catalogue and the models that plans use: it holds, it is
        conditional (true in some of its cases), it is contradicted, or nothing computable decides it. Every
        claim comes with its figures and with the command that shows one of them.
        """,
        answer="claiming.claims_or_value",
        progress=patient_bar,
        parameters=(
            options.option("--only", "These claims, such as S0-22,S2-13.", default="", type=options.NAMES),
            options.words("--topic", "Claims of one topic, such as power."),
            options.option("--verdict", "Show those with one verdict.", type=click.Choice(VERDICTS)),
            options.flag("--cases", "Show what every case came to."),
            options.words("--compute", "Print one quantity instead: \"catalog('L4').tdp_w\".", "expression"),
            options.option("--catalog", "A folder with rows of yours.", type=options.FILE),
            options.JSON,
            *options.TABLES,
        ),
    ),
    "report": options.Verb(
        group="decide",
        summary="Write a plan, a rehearsal or a run as one page to mail",
        help="""Write one page of SPEC, which is planned first, or of the JSON that `plan --out` (PLAN),
        `simulate --out` (SIMULATION) or `up --out` (RUN) wrote, or `validate --json` printed.

        The page is a single HTML file without script: decision, pictures, tables, and where each number
        comes from. With --md it is Markdown for a pull request. Of a plan, --xlsx writes a spreadsheet whose
        totals follow when a price changes, and --csv one of its tables.
        """,
        answer="reporting.write_report",
        gathered=_named_by_kind,
        progress=watched_bar,
        writes=("out",),
        parameters=(
            click.argument("source", type=options.FILE, metavar="SPEC|PLAN|SIMULATION|RUN"),
            options.option(
                "-o",
                "The file to write; report.html, .md, .xlsx or .csv otherwise.",
                "--out",
                "out",
                type=options.WRITTEN,
            ),
            options.flag("--md", "Markdown instead of HTML.", "as_markdown"),
            options.flag("--xlsx", "A spreadsheet with formulas (extra `xlsx`).", "as_workbook"),
            options.flag("--csv", "A table: the bill, or that of --table.", "as_table"),
            options.words("--table", "Which table; a wrong name lists them."),
            options.FORCE,
            options.JSON,
        ),
    ),
    "simulate": options.Verb(
        group="rehearse",
        summary="Rehearse a plan in the digital twin, under traffic and faults",
        help="""Rehearse SPEC, which is planned first, or PLAN, the JSON that `plan --out` wrote, in the
        digital twin.

        NAME:VARIANT is a scenario with what one of its variants changes. Exits 3 when a goal is missed.
        """,
        answer="simulating.simulate_or_sweep",
        progress=partial(watched_bar, "preparing"),
        epilog=_scenarios,
        writes=("requests", "timeline", "jobs"),
        parameters=(
            click.argument("source", type=options.FILE, metavar="SPEC|PLAN"),
            options.option(
                "--trace",
                "Replay this trace as the traffic of a class, of the first one by default.",
                "traces",
                multiple=True,
                metavar="[CLASS=]FILE",
            ),
            options.option("--only", "Send the requests of this class alone.", metavar="CLASS"),
            options.usual(
                "--scenario",
                "as-planned",
                "What happens meanwhile.",
                metavar="NAME|FILE",
                shell_complete=completed(scenarios, or_files=True),
            ),
            options.usual("--seed", 0, "Of every draw.", type=int),
            options.option("--compare", "Two scenarios under the same seeds, with intervals.", metavar="A,B"),
            options.option("--sweep", "One key of the scenario at several values.", metavar="KEY=A,B,…"),
            options.usual(
                "--engine",
                "processes",
                "Runs happen in `processes` of this machine, or on `ray` (extra `ray`).",
                type=click.Choice(["processes", "ray"]),
                metavar="NAME",
            ),
            options.flag("--chart", "Add pictures of text: goals, latencies and queues over time, jobs."),
            options.option("--requests", "Write every request to this CSV.", type=options.WRITTEN),
            options.option("--timeline", "Write the run over time to this CSV.", type=options.WRITTEN),
            options.option("--jobs", "Write every training job to this CSV.", type=options.WRITTEN),
            options.JSON,
            *options.TABLES,
            options.OUT,
            options.FORCE,
        ),
    ),
    "render": options.Verb(
        group="run",
        summary="Write the files with which a plan runs: scripts, jobs, manifests",
        help="""Write the files with which SPEC, which is planned first, or PLAN, the JSON that `plan --out`
        wrote, runs on a target. Behind each value stands the number of the plan that set it.
        """,
        answer="rendering.render",
        progress=watched_bar,
        fills=("out",),
        parameters=(
            click.argument("source", type=options.FILE, metavar="SPEC|PLAN"),
            options.usual("--target", "shell", "What starts them.", type=click.Choice(TARGETS)),
            options.flag("--disaggregated", "Prompts on workers of their own, where the plan weighed it."),
            options.option(
                "--out",
                "The folder to write to; without it they are printed.",
                type=options.FilePath(file_okay=False),
            ),
            options.flag("--force", "Replace files there that were edited, or that are of others."),
            options.JSON,
        ),
    ),
    "up": options.Verb(
        group="run",
        summary="Train, serve and measure on this machine; planned beside measured",
        help="""Measure this machine, plan for it, train, serve, load, and compare.

        SPEC is a file, or a folder with a twofold.yaml, such as examples/laptop. The service goes on until
        `twofold down SPEC`; state lies in `.twofold` beside the spec. It may be stopped and called again.
        What serves comes out of the registry, `.twofold-registry` beside the spec; what a rule or the gate
        refuses is not served, exit 3. So is it where what `--try-releases` offers ends otherwise than it is
        to, or where steps that were repeated after the kill had other losses.

        `--prove` kills replicas and takes a quarter of an hour: it rehearses a steady load, a burst, a
        replica killed and a bad release, freezes what the twin says, runs each twice, and exits 3 where one
        did not come true.
        """,
        answer="looping.up_page",
        progress=stage_bar,
        parameters=(
            options.SPEC,
            options.usual("--port", 8700, "The gateway's.", type=options.Whole(1, 65535)),
            options.usual(
                "--host", "127.0.0.1", "Address the gateway listens at; others than loopback need keys."
            ),
            options.option("--certificate", "Serve by TLS: its certificate, in PEM form.", type=options.FILE),
            options.option("--private-key", "The certificate's key.", type=options.FILE),
            options.words("--load-for", "Put it under load, each load for so long; a new service gets 12 s."),
            options.words("--program", "The spec's engine, where it is not found by its name: a path."),
            options.flag("--try-releases", "Release it anew while it serves: once as good, once slower."),
            options.flag("--scale-out", "Start one replica more under load: what that takes, and the tail."),
            options.flag("--prove", "Rehearse, freeze, run for real, compare.", "as_proof"),
            options.option(
                "--requests",
                "Finished in each run of --prove, else 400; below 400: steady and killed alone.",
                type=options.Whole(20, 100_000),
            ),
            options.option("--seed", "Of --prove, else 0.", type=options.Whole(0)),
            options.JSON,
            *options.TABLES,
            options.OUT,
            options.FORCE,
        ),
    ),
    "status": options.Verb(
        group="run",
        summary="How the service that `up` started is, on one screen",
        help="""Show how the service of SPEC is: replicas, figures of the last minute, what happened last.

        Exits 3 unless every replica that is wanted serves and a controller looks after them.
        """,
        answer="operating.status",
        parameters=(options.SPEC, options.JSON, *options.TABLES),
    ),
    "top": options.Verb(
        group="run",
        summary="The same as a live view, with a row per replica",
        help="Show the service of SPEC anew every second, until Ctrl-C; once where nobody watches.",
        answer="operating.top",
        progress=watched_screen,
        parameters=(options.SPEC, options.JSON),
    ),
    "logs": options.Verb(
        group="run",
        summary="What the programs of a service said last",
        help="""Print the ends of the logs of SPEC's programs, or of ROLE's alone: controller, gateway,
        replica-0, train-NAME … Checks of health and metrics that went well are counted, not shown.

        With --verify read the gateway's log of requests instead, of SPEC or of a copy of its requests.jsonl:
        exit 2 with the first line that was changed, dropped or moved. A copy without its key is a chain that
        anybody could have written: that is said, and the rest is checked. Copy its .head too: without
        that nobody can tell whether lines are missing at an end, which is said, with exit 2.
        """,
        answer="operating.logs_or_check",
        progress=passed_on,
        parameters=(
            options.SPEC,
            click.argument("role", default=""),
            options.flag("--follow", "Go on with what they say, until Ctrl-C."),
            options.flag("--verify", "Check the chain and the seals of the log of requests."),
            options.JSON,
        ),
    ),
    "down": options.Verb(
        group="run",
        summary="Stop what `up` started, and remove its state",
        help="Stop every process that `up` started for SPEC and remove its state.",
        answer="looping.stop",
        parameters=(
            options.SPEC,
            options.flag("--keep", "Keep its files: device, checkpoints, artefacts, logs."),
            options.JSON,
        ),
    ),
    "keys": options.Verb(
        group="run",
        summary="Add, list and revoke the keys of a service",
        help="Say who may ask the service of a spec. Once there is a key, nobody is served without one.",
        questions={
            "add": options.Verb(
                help="Make a key for TENANT and print it once; a running gateway takes it within a second.",
                answer="keys.add_key",
                parameters=(options.SPEC, click.argument("tenant"), options.JSON),
            ),
            "list": options.Verb(
                help="List whose keys there are, by the beginnings of their digests.",
                answer="keys.list_keys",
                parameters=(options.SPEC, options.JSON),
            ),
            "revoke": options.Verb(
                help="Remove all keys of a tenant, or the one whose digest begins with NAME.",
                answer="keys.revoke_keys",
                parameters=(options.SPEC, click.argument("name"), options.JSON),
            ),
        },
    ),
    "registry": options.Verb(
        group="run",
        summary="Keep models by digest: push, evaluate, promote, roll back, verify, trace",
        help="Keep models by what they hold, say who released which when, and refuse what breaks a rule.",
        questions={**registry.QUESTIONS, **trust.QUESTIONS},
    ),
    "jobs": options.Verb(
        group="run",
        summary="Queue training runs and commands on this machine's slots",
        help="Run jobs of teams on the slots of this machine: gangs, priorities, shares, checkpoints.",
        questions={"submit": SUBMIT, "list": LIST, "cancel": CANCEL, "logs": LOGS},
    ),
    "measure": options.Verb(
        group="learn",
        summary="Measure this machine or your training for plans, or any service under load",
        help="Measure what plans are made from.",
        questions={
            "device": options.Verb(
                help="""Measure this machine as a device named `this-machine`, in about a minute.

                Writes `.twofold/device` beside the spec: its row, its node, and the constants of its
                kernels, links, training framework and serving engine, and tells the host's share of a
                decode step. `plan`, `estimate` and `compare` there use them.
                """,
                answer="measuring.measure_device",
                progress=stage_lines,
                parameters=(
                    options.option(
                        "--ranks",
                        "Equal shares of the machine; by default 2, or one per accelerator.",
                        type=int,
                    ),
                    options.option(
                        "--out",
                        "The folder of the spec; the working folder by default.",
                        type=options.FilePath(file_okay=False),
                    ),
                    options.JSON,
                    *options.TABLES,
                ),
            ),
            "serve": SERVE,
            "train": TRAIN,
            "import": IMPORT,
        },
    ),
    "calibrate": options.Verb(
        group="learn",
        summary="Fit a few factors to rows that you measured, for plans beside",
        help="""Calibrate with the CSV table MEASUREMENTS of your own runs, in the columns that `predict`
        reads.

        Three to six named factors per accelerator and software are fitted, with shrinkage: about ten rows
        do. `plan`, `estimate` and `compare` beside the file use them. Rows that cannot be true are refused.
        """,
        answer="measured_rows.calibrate",
        progress=partial(watched_bar, "fitting"),
        writes=("out",),
        parameters=(
            click.argument("measurements", type=options.FILE),
            options.option(
                "--out",
                "The file to write; by default `.twofold/calibration.json` in this folder.",
                type=options.WRITTEN,
                default=Path(".twofold", "calibration.json"),
            ),
            options.FORCE,
            options.JSON,
            *options.TABLES,
        ),
    ),
    "predict": options.Verb(
        group="learn",
        summary="Predict measured runs, row by row",
        help="""Predict every row of a table of training or inference runs, and append `pred_…` columns to
        it.

        Only what a user could know beforehand is read. A row that cannot be predicted says why in
        `pred_error`.
        """,
        answer="measured_rows.predict",
        progress=patient_bar,
        writes=("out",),
        parameters=(
            click.argument("half", type=click.Choice(HALVES)),
            options.option("--in", "A CSV table of runs.", "rows", required=True, type=options.FILE),
            options.option("--out", "Where it goes, with predictions.", required=True, type=options.WRITTEN),
            options.FORCE,
            options.JSON,
        ),
    ),
    "validate": options.Verb(
        group="learn",
        summary="Score predictions on measured runs, against the goals",
        help="""Score predictions on measured runs: goals first, then errors, order and ranges by group.

        Each row is predicted by constants that never saw its source. Without a half, all that there are.
        """,
        answer="measured_rows.validate_or_lint",
        progress=patient_bar,
        parameters=(
            click.argument("half", default="", metavar="[training|inference|kernels]"),
            options.option(
                "--data",
                "A table of measured runs, or a folder of them; the packaged sample by default.",
                type=options.FILE,
            ),
            options.usual("--by", "source", "source,gpu,framework,arch,phase: group by.", type=options.NAMES),
            options.option("--lint", "Only look for rows that cannot be true.", "table", type=options.FILE),
            options.flag("--gate", "Exit 3 when errors are worse than the committed figures."),
            options.JSON,
            *options.TABLES,
        ),
    ),
    "completion": options.Verb(
        group="shell",
        summary="Print the script by which bash, zsh or fish completes words",
        help="""Print the script by which SHELL completes verbs, options, files, and names of models,
        scenarios and tables.

        bash: `eval "$(twofold completion bash)"` in ~/.bashrc; zsh: the same in ~/.zshrc, behind compinit;
        fish: `twofold completion fish > ~/.config/fish/completions/twofold.fish`.
        """,
        answer="completing.completion",
        parameters=(click.argument("shell", type=click.Choice(SHELLS)), options.JSON),
    ),
}
