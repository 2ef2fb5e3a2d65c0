"""Every verb of `twofold --help` once, by the interpreter that runs this: `make core` has one without extras.

What needs an extra says which one and ends with 2, as bad input does. Nothing ends with 1, our bug.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from twofold.cli.running import twofold
from twofold.cli.verbs import VERBS

ROOT = Path(__file__).parents[1]
TRAINING, INFERENCE = (
    str(next(ROOT.glob(f"src/**/sample/{half}.csv"))) for half in ("training", "inference")
)
# A verb is told OUT, a folder of this run, and finds there what those above it wrote.
LINES = [
    "init --out OUT/twofold.yaml",
    "check OUT/twofold.yaml",
    "plan examples/assistant --out OUT/plan.json",
    "compare examples/laptop",
    "estimate collective all_reduce --size '1 GB' --on 64x8xH100-SXM",
    "estimate compute --on 64x8xH100-SXM --for '95 d'",
    "estimate roofline llama-3.1-70b --on 8xH200",
    "estimate serve llama-3.1-70b --on 4xH200 --input 1155 --output 211 --concurrency 64",
    "estimate train llama-3.1-70b --on 8x8xH100-SXM --batch '128 seq' --layout tp=8,pp=4,cp=1,mb=1",
    "explain OUT/plan.json training.pretrain.step_s",
    "diff OUT/plan.json OUT/plan.json",
    "catalog models",
    "claims --only S0-22",
    "report OUT/plan.json -o OUT/report.html",
    "simulate tests/requirements/specs/chat.yaml",
    "render OUT/plan.json --out OUT/files",
    "up examples/laptop",
    "status examples/laptop",
    "top examples/laptop",
    "logs examples/laptop",
    "down examples/laptop",
    "keys add OUT/twofold.yaml blue",
    "keys list OUT/twofold.yaml",
    "keys revoke OUT/twofold.yaml blue",
    "registry push tests/live/registry/tiny tiny --by ann --registry OUT/registry",
    "registry list --registry OUT/registry",
    "registry show tiny --registry OUT/registry",
    "registry pull tiny OUT/pulled --registry OUT/registry",
    "registry evaluate tiny --on README.md --registry OUT/registry",
    "registry quantise tiny --registry OUT/registry",
    "registry sign tiny --key OUT/key.pem --registry OUT/registry",
    "registry approve tiny --by bob --registry OUT/registry",
    "registry promote tiny --registry OUT/registry",
    "registry rollback tiny --registry OUT/registry",
    "registry verify --registry OUT/registry",
    "registry branch tiny other --registry OUT/registry",
    "registry rerun tiny --registry OUT/registry",
    "registry trace tiny --registry OUT/registry",
    "registry curate OUT/learned --on tests/live/registry/samples.jsonl",
    "registry watch tiny --on tests/live/registry/samples.jsonl --registry OUT/registry",
    "registry attribute tiny --on tests/live/registry/samples.jsonl --registry OUT/registry",
    "registry bundle tiny OUT/bundle --lock requirements.lock --wheels tests/live --registry OUT/registry",
    "jobs submit examples/laptop -- true",
    "jobs list examples/laptop",
    "jobs logs examples/laptop true-1",
    "jobs cancel examples/laptop true-1",
    "measure device --out OUT",
    "measure serve http://127.0.0.1:9",
    "measure train examples/laptop",
    "measure import tests/measure/vllm-result.json --out OUT/served.csv",
    f"calibrate {TRAINING} --out OUT/calibration.json",
    f"predict training --in {TRAINING} --out OUT/training.csv",
    f"predict inference --in {INFERENCE} --out OUT/inference.csv",
    "validate",
    "completion bash",
]
NEEDS = {
    "up": "train,live",
    "down": "live",
    "status": "live",
    "top": "live",
    "logs": "live",
    **dict.fromkeys(("jobs submit", "jobs list", "jobs logs", "jobs cancel"), "live"),
    "measure device": "train",
    "registry evaluate": "train",
    "registry quantise": "train",
    "registry rerun": "train,live",
    "registry sign": "sign",
    "registry watch": "train",
    "registry attribute": "train,attribution",
    "measure serve": "live",
    "measure train": "train,live",
}  # what they end with 2 for
# A model that was never evaluated, or never served; wheels that are not there.
REFUSED = {"registry promote": 3, "registry rollback": 2, "registry bundle": 2}


def verbs() -> list[str]:
    """As `--help` lists them; of a verb that is several, each."""
    found = []
    for name in VERBS:
        command = twofold.get_command(click.Context(twofold), name)
        inner = list(command.commands) if isinstance(command, click.Group) else []
        found += [f"{name} {each}" for each in inner] or [name]
    return found


def wrong(verb: str, line: str, out: str) -> str:
    """Why this line of the verb did not end as it should, or nothing."""
    words = shlex.split(line.replace("OUT", out))
    command = [sys.executable, "-m", "twofold", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    extra = NEEDS.get(verb)
    told = f"pip install 'twofold[{extra}]'" in done.stderr
    if (done.returncode, told) == (2 if extra else REFUSED.get(verb, 0), bool(extra)):
        return ""
    asked = f"2, naming the extra [{extra}]" if extra else "0"
    return f"twofold {line}: exit {done.returncode}, not {asked}\n{done.stderr}"


def main() -> int:
    lines_of = {verb: [line for line in LINES if re.match(rf"{verb}( |$)", line)] for verb in verbs()}
    failed = [f"twofold {verb}: no line runs it\n" for verb, lines in lines_of.items() if not lines]
    with tempfile.TemporaryDirectory() as out:
        failed += [
            text for verb, lines in lines_of.items() for line in lines if (text := wrong(verb, line, out))
        ]
    print(*failed, sep="", end="")
    print(f"{len(lines_of)} verbs by the core alone, {len(LINES)} lines, {len(failed)} not as they should")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
