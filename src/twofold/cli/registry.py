"""The questions of `twofold registry`."""

from pathlib import Path

import click

from twofold.cli.options import FILE, JSON, TABLES, WRITTEN, Verb, Whole, option, usual, words
from twofold.cli.progress import stage_lines

REGISTRY = usual("--registry", Path(".twofold-registry"), "The registry's folder.", type=FILE)
BY = words("--by", "Who does it; by default whoever is logged in.")
WHY = words("--why", "The reason, kept in the log.")
ALIAS = usual("--alias", "serving", "The alias that moves.")
PUBLIC_KEY = option(
    "--public-key", "Refuse what is not signed by the private key of this one, a PEM file.", type=FILE
)
TASKS = option(
    "--tasks", "`own`, or a folder of lm-evaluation-harness's tasks; as often as needed.", multiple=True
)
BITS = click.Choice(("8", "4"))
REFERENCE = click.argument("reference", metavar="VERSION")
SAID = "VERSION reads NAME (its newest), NAME:3, NAME@serving, or sha256: and digits."

QUESTIONS = {
    "push": Verb(
        help="""Store FOLDER, a model as safetensors with config and tokenizer, as the next version of NAME.

        Pickles, code and links are refused. The same bytes are the same version. Of what a run exported,
        data, code, run and checkpoint are taken from its sealed lineage, unless --from says them.
        """,
        answer="registering.push_version",
        parameters=(
            click.argument("source", metavar="FOLDER", type=FILE),
            click.argument("name"),
            REGISTRY,
            BY,
            option(
                "--from",
                "KIND=DIGEST of its data, code, run, checkpoint, parent …; as often as needed.",
                "made_from",
                multiple=True,
            ),
            words("--tables", "Where a new registry's tables are: postgresql://… or mlflow+sqlite:///…"),
            option("--signature", "Of the folder's files, which --public-key must have made.", type=FILE),
            PUBLIC_KEY,
            JSON,
        ),
    ),
    "list": Verb(
        help="List all versions, or those of NAME.",
        answer="registering.list_versions",
        parameters=(click.argument("name", default=""), REGISTRY, JSON, *TABLES),
    ),
    "show": Verb(
        help=f"Show a version, what would refuse its release, and its log. {SAID}",
        answer="registering.show_version",
        parameters=(REFERENCE, REGISTRY, JSON),
    ),
    "pull": Verb(
        help=f"Write the files of a version into the new folder OUT, checked on the way. {SAID}",
        answer="registering.pull_version",
        parameters=(REFERENCE, click.argument("out", type=WRITTEN), REGISTRY, PUBLIC_KEY, JSON),
    ),
    "sign": Verb(
        help=f"Sign the files of a version by a key of your own, so that others can check them. {SAID}",
        answer="registering.sign_version",
        parameters=(
            REFERENCE,
            option("--key", "A PEM file with a private key, or pkcs11:… of a module's.", required=True),
            REGISTRY,
            BY,
            JSON,
        ),
    ),
    "evaluate": Verb(
        help="""Measure a version on held-out text, beside what serves now: loss, calibration, drift.

        The set is a text file, or JSONL with `text` and perhaps `slice` on each line. `--tasks own` asks
        questions that are made of it as well.
        """,
        answer="registering.evaluate_version",
        progress=stage_lines,
        parameters=(
            REFERENCE,
            option("--on", "The evaluation set.", "texts", type=FILE, required=True),
            REGISTRY,
            BY,
            ALIAS,
            TASKS,
            JSON,
        ),
    ),
    "quantise": Verb(
        help=f"""Keep a copy with 8-bit weights as the next version of the name. {SAID}

        Of linear layers, with a scale for each row; of 4 bits for each 32 weights. `evaluate` tells what it
        costs in perplexity.
        """,
        answer="registering.quantise_version",
        parameters=(
            REFERENCE,
            REGISTRY,
            BY,
            usual("--bits", "8", "How wide weights are.", type=BITS),
            JSON,
        ),
    ),
    "approve": Verb(
        help=f"Vouch for a version. {SAID}",
        answer="registering.approve_version",
        parameters=(REFERENCE, REGISTRY, BY, WHY, JSON),
    ),
    "promote": Verb(
        help=f"""Let `serving` mean a version, unless a rule refuses; exit 3 with every rule then.

        Where `up` serves the name from beside the registry, it is a candidate first, which the service's gate
        tries on a share of the requests. {SAID}
        """,
        answer="promoting.promote_version",
        progress=stage_lines,
        parameters=(
            REFERENCE,
            REGISTRY,
            BY,
            WHY,
            ALIAS,
            words("--loss-rise", "How much worse its loss may be, such as 1 %."),
            usual(
                "--approvals",
                1,
                "How many must vouch, besides who pushed it.",
                type=Whole(0, 9),
            ),
            PUBLIC_KEY,
            JSON,
        ),
    ),
    "rollback": Verb(
        help="Let `serving` mean what it meant before; a service beside the registry goes back with it.",
        answer="promoting.roll_back_version",
        parameters=(click.argument("name"), REGISTRY, BY, WHY, ALIAS, JSON),
    ),
    "verify": Verb(
        help=f"Read every byte, seal and line of the log; exit 2 with the first that is off. {SAID}",
        answer="registering.verify_versions",
        parameters=(
            click.argument("reference", metavar="[VERSION]", default=""),
            REGISTRY,
            PUBLIC_KEY,
            option(
                "--copy",
                "A folder that VERSION was pulled into, of any zone; as often as needed.",
                "copies",
                multiple=True,
                type=FILE,
            ),
            JSON,
        ),
    ),
    "branch": Verb(
        help=f"Let the bytes of a version be the first version of another NAME. {SAID}",
        answer="registering.branch_version",
        parameters=(REFERENCE, click.argument("name"), REGISTRY, BY, JSON),
    ),
    "rerun": Verb(
        help=f"""Train a version again from its lineage; exit 3 where its weights are other then.

        Where the lineage knows inputs by their digests alone, and they are not given, it is refused. {SAID}
        """,
        answer="rerunning.rerun_version",
        progress=stage_lines,
        parameters=(
            REFERENCE,
            REGISTRY,
            words(
                "--data", "The files that it read, as its spec had them; by default the standard library's."
            ),
            JSON,
        ),
    ),
    "trace": Verb(
        help=f"""Show where a version comes from, by digests, back to the first.

        And where a service beside the registry answers with it now, by which replicas. {SAID}
        """,
        answer="promoting.trace_version",
        parameters=(REFERENCE, REGISTRY, JSON),
    ),
}
