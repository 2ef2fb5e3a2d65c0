"""The questions of `twofold registry` about what served: what is learned from it, and what it came from."""

from pathlib import Path

import click

from twofold.cli.options import FILE, JSON, OUT, WRITTEN, Verb, Whole, flag, option, usual
from twofold.cli.progress import stage_lines
from twofold.cli.registry import ALIAS, REFERENCE, REGISTRY, SAID

SAMPLES = Path(".twofold", "gateway", "samples.jsonl")
ON = usual(
    "--on", SAMPLES, "What the gateway kept of requests: `samples: 5 %` of a service.", "samples", type=FILE
)

QUESTIONS = {
    "curate": Verb(
        help="""Sort sampled requests into the folder OUT: texts to train on, others to test on, and failures.

        A prompt is on one side for good. Shows which slices of requests fail more often than all do.
        """,
        answer="feedback.curate_samples",
        parameters=(
            click.argument("out", type=WRITTEN),
            ON,
            flag("--force", "Replace what an earlier `curate` wrote into OUT."),
            JSON,
        ),
    ),
    "watch": Verb(
        help=f"""Judge sampled answers since the release of a version, window by window; exit 3 with an alert.

        Each answer is scored by the version's own weights: what serves worse ones writes what they would not.
        {SAID}
        """,
        answer="feedback.watch_release",
        progress=stage_lines,
        parameters=(
            REFERENCE,
            ON,
            REGISTRY,
            ALIAS,
            usual("--margin", 0.2, "Nats per token that count as worse.", type=click.FloatRange(0.01, 10.0)),
            JSON,
        ),
    ),
    "attribute": Verb(
        help=f"""Show which tokens of sampled prompts their answers came from, and what telling it costs.

        Layer integrated gradients by Captum, in processes of their own; exit 3 where shares do not sum up.
        {SAID}
        """,
        answer="feedback.attribute_answers",
        progress=stage_lines,
        parameters=(
            REFERENCE,
            ON,
            REGISTRY,
            usual("--count", 4, "The newest answers, so many.", type=Whole(1, 1000)),
            JSON,
            OUT,
        ),
    ),
    "bundle": Verb(
        help=f"""Write all that a machine without a network needs into the new folder OUT.

        Wheels of Twofold and of what LOCK pins, the model of a version, documentation, digests, and an
        installer that checks them: `python3 OUT/install.py FOLDER`. {SAID}
        """,
        answer="bundling.bundle",
        progress=stage_lines,
        parameters=(
            REFERENCE,
            click.argument("out", type=WRITTEN),
            REGISTRY,
            option("--lock", "What is pinned; by default requirements.lock of this checkout.", type=FILE),
            option("--wheels", "A folder of wheels; without it pip downloads them.", type=FILE),
            option(
                "--extra",
                "Bundle an extra as well, of requirements-live.lock; to serve: `--extra live --extra train`.",
                "extras",
                multiple=True,
            ),
            JSON,
        ),
    ),
}
