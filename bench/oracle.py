"""What the product says, word for word: frozen before its insides move, and asked again after.

    python -m bench.oracle freeze                           write bench/oracle.csv and the answers to .oracle/
    python -m bench.oracle check [--quick] [--only REGEX]   ask again; exit 4 where an answer differs

An answer is the exit code, stdout, stderr and what `--out` wrote. Two digests of each are kept: of its exact
bytes, and of its text with numbers to nine digits and without digests of inputs, which another processor or
a moved table leaves as it is. Answers lie in .oracle/, or where ORACLE_KEPT says, so that a difference can be
shown. Only `twofold.cli.main` is called, from the root of the repository; a `.twofold/` there would be read.
"""

import argparse
import contextlib
import csv
import difflib
import hashlib
import io
import json
import multiprocessing
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))  # this checkout's, whatever is installed

from twofold.cli import main as twofold  # noqa: E402

FROZEN = ROOT / "bench" / "oracle.csv"
KEPT = ROOT / os.environ.get("ORACLE_KEPT", ".oracle")
DAY = "1795219200"  # 2026-11-21: prices do not age
FOLDER = "FOLDER/"  # of one job, which its later commands read from
DIFFERENT = 4
QUICK_EVERY = 25  # of the catalogue's models, in `--quick`
PROGRESS = re.compile(r"^\[ *\d+ s\] ", re.M)
INPUT_DIGEST = re.compile(r"(?<!\.)\b(?=\d*[a-f])[0-9a-f]{12,64}\b")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
SPECS = "tests/requirements/specs"
CHAT, SHORT = f"{SPECS}/chat.yaml", f"{SPECS}/short.yaml"

TRAIN = "estimate train {} --on 64x8xH100-SXM --batch '512 seq'"
LORA = "estimate train {} --on 2x8xA100-80GB --batch '64 seq' --sequence '1024 tok' --kind lora"
SERVE = "estimate serve {} --on 8xH200 --input 1155 --output 211 --concurrency 64"
SERVE_SHORT = "estimate serve {} --on 2x8xB200 --input 100 --output 20 --rate '10 /s'"
BY_MODEL = (
    *(TRAIN, f"{TRAIN} --json", f"{LORA} --tokens '2 Gtok' --json"),
    *(SERVE, f"{SERVE} --json", f"{SERVE_SHORT} --layouts --formats --switches --json"),
)
PLANNED_MODELS = ("gpt2", "qwen3-32b", "mixtral-8x7b", "deepseek-v3", "llama-3.1-405b", "gemma-2-9b")
EXAMPLES = {  # with a run and a service of each
    "portfolio": ("base", "assistant"),
    "assistant": ("pretrain", "serve"),
    "moe": ("pretrain", "serve"),
    "federal": ("refresh", "counsel"),
    "finetune": ("finetune", "serve"),
    "laptop": ("tiny", "serve"),
    "recommender": ("ranker", "rank"),
}
EXPLAINED = (
    *("training", "training.{}.step_s", "training.{}.memory_bytes", "training.{}.mfu_fraction"),
    *("training.{}.cost_usd", "serving", "serving.{}.cost_usd_per_year", "serving.{}.cold_start_s"),
    *("serving.{}.output_tokens_per_s_per_accelerator", "serving.{}.network_bytes_per_token", "money"),
    *("building.power", "portfolio", "compliance", "first_year_usd", "no.such.path"),
)
SCENARIOS = (
    *("as-planned", "bad-canary", "batching", "black-friday", "cold-start", "good-canary", "link-cut"),
    *(
        "noisy-tenant",
        "overload",
        "replica-crash",
        "retry-storm",
        "shared-prefix",
        "slow-replica",
        "zone-loss",
    ),
)
CLUSTER_SCENARIOS = (
    "training-week",
    "train-by-night",
    "team-quotas",
    "two-gangs",
    "preemption-storm",
    "run-alone",
)
LADDERS = ("fabric", "nodes", "context", "size", "format", "tenancy")
VERBS = (
    *("init", "check", "plan", "compare", "estimate", "estimate train", "estimate serve", "explain", "diff"),
    *("catalog", "claims", "simulate", "up", "down", "measure", "calibrate", "predict", "validate"),
)


@dataclass(frozen=True, slots=True)
class Job:
    """Commands that run one after another in a folder of their own."""

    quick: bool
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A command and all that came of it."""

    command: str
    code: int
    text: str

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Of oracle.csv: the command, its exit code, and both digests."""
        rounded = NUMBER.sub(lambda found: f"{float(found[0]):.9g}", INPUT_DIGEST.sub("<digest>", self.text))
        return (self.command, str(self.code), _digest(self.text), _digest(rounded))


def jobs() -> Iterator[Job]:
    """All that is asked, what takes longest first."""
    yield from _of_examples()
    yield from _of_simulations()
    yield Job(False, ("claims --cases",))
    yield Job(True, ("claims --json", "claims --topic power", "claims --verdict contradicted"))
    yield from _of_measurements()
    yield from _of_specs()
    yield from _of_tables()
    for number, name in enumerate(_names("models")):
        yield Job(number % QUICK_EVERY == 0, tuple(each.format(name) for each in BY_MODEL))


def _of_examples() -> Iterator[Job]:
    """The plan of every example, what explains it, and what compares its halves."""
    for name, (run, service) in EXAMPLES.items():
        spec, plan = f"examples/{name}", f"{FOLDER}{name}.json"
        explained = [
            f"explain {plan} {path.format(service if 'serv' in path else run)}" for path in EXPLAINED
        ]
        yield Job(
            name in {"finetune", "laptop"}, (f"plan {spec} --out {plan}", f"explain {plan}", *explained)
        )
        yield Job(name == "finetune", (f"compare {spec}", f"compare {spec} --json"))
    for name in ("assistant", "moe", "finetune"):
        lines = [f"compare examples/{name} --ladder {axis}" for axis in LADDERS]
        yield Job(name == "finetune", (*lines, *(f"{line} --json" for line in lines)))
    for flags in ("--details --json", "--money", "--show-defaults", "--details --money --show-defaults"):
        yield Job("--json" not in flags, (f"plan examples/finetune {flags}", f"plan examples/moe {flags}"))
    yield Job(False, ("plan examples/portfolio --money --details", "plan examples/federal --money"))
    yield Job(False, ("plan examples/finetune --rehearse",))
    yield Job(False, ("plan examples/recommender --rehearse",))
    old, new = f"{FOLDER}old.json", f"{FOLDER}new.json"
    made = (f"plan examples/federal/without.yaml --out {old}", f"plan examples/federal --out {new}")
    yield Job(False, (*made, *(f"diff {old} {new}{flag}" for flag in ("", " --all", " --json"))))


def _of_simulations() -> Iterator[Job]:
    """Rehearsals of examples and of small fleets, under faults and under traffic of several kinds."""
    for name in ("assistant", "portfolio", "moe", "federal", "recommender", "finetune", "laptop"):
        scenario = f" --scenario {SHORT}" if name in {"assistant", "finetune"} else ""
        if name != "portfolio":  # two services over a year's peak take as long as all others
            yield Job(False, (f"simulate examples/{name}{scenario} --out {FOLDER}run.json",))
    for each in SCENARIOS:
        out = f"--out {FOLDER}run.json --requests {FOLDER}requests.csv --timeline {FOLDER}timeline.csv"
        quick = each in {"replica-crash", "noisy-tenant"}
        yield Job(quick, (f"simulate {CHAT} --scenario {each} {out}",))
    for each in CLUSTER_SCENARIOS:
        line = f"simulate examples/finetune --scenario {each} --out {FOLDER}run.json --jobs {FOLDER}jobs.csv"
        yield Job(each == "preemption-storm", (line,))
    heap = f"{SPECS}/heap.yaml"
    yield Job(False, (f"simulate {SPECS}/kinds.yaml --compare {heap},{heap}:split --out {FOLDER}run.json",))
    yield Job(False, (f"simulate {CHAT} --scenario {SPECS}/storm.yaml:calm --seed 3 --out {FOLDER}run.json",))
    made = f"plan {CHAT} --out {FOLDER}chat.json"
    yield Job(True, (made, f"simulate {FOLDER}chat.json --scenario {SHORT} --seed 7 --json"))


def _of_measurements() -> Iterator[Job]:
    """Predictions, scores and factors of the packaged rows, which `rows` copies to the folder of a job."""
    yield Job(True, ("validate", "validate inference --by gpu"))
    yield Job(False, ("validate --json", "validate kernels", "validate training --by arch --json"))
    for half in ("training", "inference"):
        rows = f"{FOLDER}{half}.csv"
        predict = f"predict {half} --in {rows} --out {FOLDER}predicted.csv"
        yield Job(True, (predict, f"calibrate {rows} --out {FOLDER}factors.json", f"validate --lint {rows}"))
        yield Job(False, (f"calibrate {rows} --out {FOLDER}factors.json --json",))


def _of_specs() -> Iterator[Job]:
    """Plans of the specs of the requirements, of what is no spec, and of a few models of the catalogue."""
    paths = sorted((ROOT / SPECS).glob("*.yaml")) + sorted((ROOT / SPECS).glob("*/twofold.yaml"))
    for number, path in enumerate(paths):
        spec = path.relative_to(ROOT).as_posix()
        yield Job(number % 4 == 0, (f"plan {spec} --out {FOLDER}plan.json", f"check {spec}"))
    for name in PLANNED_MODELS:
        said = f"plan {FOLDER}{name}.yaml --out {FOLDER}plan.json --details"
        yield Job(name == "mixtral-8x7b", (said, f"check {FOLDER}{name}.yaml --json"))


def _of_tables() -> Iterator[Job]:
    """The tables of the catalogue, single questions, and what every verb says of itself."""
    tables = _names("")
    yield Job(True, tuple(f"catalog {name} --columns all --json" for name in tables))
    yield Job(True, ("catalog", "--help", "--version", "nothing", *(f"{verb} --help" for verb in VERBS)))
    yield Job(True, tuple(f"init --kind {kind} --out -" for kind in ("chat", "train", "both")))
    parts = ("H100-SXM", "H200", "MI300X", "A100-80GB", "L40S", "B200")
    on = [f"--on 64x8x{part}" for part in parts]
    asked = [f"estimate compute {each} --for '95 d' --model llama-3.1-70b" for each in on]
    asked += [f"estimate roofline llama-3.1-70b {each}" for each in on]
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        asked += [f"estimate collective {operation} {each} --size '1 GB'" for each in on]
    cut = [f"catalog {table} {part}" for table in ("partitions", "kernels") for part in parts]
    lines = [*asked, *cut]
    yield Job(True, (*lines, *(f"{line} --json" for line in lines)))


def _names(table: str) -> list[str]:
    """The names in a table of the catalogue, or those of its tables."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        twofold(["catalog", table, "--json"] if table else ["catalog", "--json"])
    found = json.loads(out.getvalue())
    return [row["name"] for row in found["rows"]] if table else list(found["tables"])


def answered(job: Job) -> list[Answer]:
    """What comes of the commands of a job."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(ROOT):
        _provide(Path(folder), " ".join(job.commands))
        return [_answer(command, Path(folder)) for command in job.commands]


def _provide(folder: Path, commands: str) -> None:
    """Lay the files into a folder that commands name and none of them writes."""
    for half in ("training", "inference"):
        if f"{FOLDER}{half}.csv" in commands:
            found = [*sorted(ROOT.glob(f"src/**/sample/{half}.csv")), KEPT / f"{half}.csv"]
            shutil.copy(next(path for path in found if path.exists()), folder)
    for name in PLANNED_MODELS:
        spec = (ROOT / "examples/finetune/twofold.yaml").read_text("utf-8").replace("llama-3.1-8b", name)
        spec = spec.replace("1x8xH100-SXM", "64x8xH100-SXM").replace(
            "[L40S, L4, A10]", "[L40S, H200, MI300X]"
        )
        spec = spec.replace("sequence: 4096", "sequence: 1024").replace("p95: 2500", "p95: 950")
        (folder / f"{name}.yaml").write_text(spec, "utf-8")


def _answer(command: str, folder: Path) -> Answer:
    words = shlex.split(command.replace(FOLDER, f"{folder}/"))
    out, err = io.StringIO(), io.StringIO()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are told once a process, with the line of a file
        code = twofold(words)
    parts = [f"[exit {code}]\n", out.getvalue(), f"[stderr]\n{PROGRESS.sub('[<time>] ', err.getvalue())}"]
    for path in sorted(folder.iterdir()):
        if before.get(path) != path.stat().st_mtime_ns:
            parts.append(f"[{path.name}]\n{path.read_bytes().decode('utf-8')}")
    text = "".join(part.replace(f"{folder}/", FOLDER).replace(f"{ROOT}/", "") for part in parts)
    return Answer(command, code, text)


def _alone() -> None:
    """One process of several: simulations start none of their own."""
    os.environ["SOURCE_DATE_EPOCH"] = DAY
    for name in ("COLUMNS", "TWOFOLD_DEBUG"):
        os.environ.pop(name, None)
    os.sched_getaffinity = lambda _: {0}


def ask(asked: Sequence[Job], processes: int) -> Iterator[Answer]:
    """The answers of all jobs, in their order."""
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=forked, initializer=_alone) as pool:
        for done in pool.map(answered, asked):
            yield from done


def freeze(asked: Sequence[Job], processes: int) -> int:
    """Write the digests of all answers, and the answers."""
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    for path in ROOT.glob("src/**/sample/*.csv"):
        shutil.copy(path, KEPT)
    with FROZEN.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("command", "exit_code", "bytes_sha256", "nine_digits_sha256"))
        for answer in ask(asked, processes):
            table.writerow(answer.row)
            (KEPT / _file(answer.command)).write_bytes(answer.text.encode())
    return 0


def check(asked: Sequence[Job], told: argparse.Namespace) -> int:
    """Print every answer that is not the frozen one, and how it differs."""
    keep, whole = told.keep, not told.quick and not told.only
    with FROZEN.open(encoding="utf-8", newline="") as file:
        frozen = {row[0]: tuple(row) for row in list(csv.reader(file))[1:]}
    seen, differing = set(), 0
    for answer in ask(asked, told.jobs):
        seen.add(answer.command)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / _file(answer.command)).write_bytes(answer.text.encode())
        before = frozen.get(answer.command)
        if before == answer.row:
            continue
        differing += 1
        if before is None:
            print(f"NOT FROZEN  twofold {answer.command}")
            continue
        said = "bytes only" if before[3] == answer.row[3] else "differs in nine digits"
        print(f"DIFFERS     twofold {answer.command}\n            exit {before[1]} → {answer.code} · {said}")
        kept = KEPT / _file(answer.command)
        if kept.exists():
            _show(kept.read_bytes().decode("utf-8"), answer.text, told.lines)
        sys.stdout.flush()
    for command in frozen.keys() - seen if whole else ():
        differing += 1
        print(f"NOT ASKED   twofold {command}")
    print(f"{len(seen):,} commands asked of {len(frozen):,} that are frozen, {differing:,} differ")
    return DIFFERENT if differing else 0


def _show(old: str, new: str, lines: int) -> None:
    found = list(difflib.unified_diff(old.splitlines(), new.splitlines(), "frozen", "now", "", "", 0, ""))
    for line in found[2 : 2 + lines]:
        print(f"            {line[:140]}")
    if len(found) > 2 + lines:
        print(f"            … {len(found) - 2 - lines:,} lines more")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _file(command: str) -> str:
    return f"{_digest(command)}.txt"


def main(arguments: Sequence[str] = ("check",)) -> int:
    """Freeze, or check."""
    parser = argparse.ArgumentParser(prog="python -m bench.oracle")
    parser.add_argument("what", choices=("freeze", "check"))
    parser.add_argument("--quick", action="store_true", help="a few of every kind")
    parser.add_argument("--only", metavar="REGEX", default="", help="jobs with such a command")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="where the answers of a check go")
    parser.add_argument("--jobs", metavar="N", type=int, default=2, help="processes")
    parser.add_argument("--lines", metavar="N", type=int, default=12, help="of a difference that are shown")
    told = parser.parse_args(arguments)
    if told.what == "freeze" and (told.quick or told.only):
        parser.error("all is frozen, or nothing")
    start = time.perf_counter()
    _alone()
    wanted = re.compile(told.only)
    asked = [job for job in jobs() if (job.quick or not told.quick) and any(map(wanted.search, job.commands))]
    code = freeze(asked, told.jobs) if told.what == "freeze" else check(asked, told)
    print(f"{time.perf_counter() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
