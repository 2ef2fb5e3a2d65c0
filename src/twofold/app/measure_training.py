"""`measure train`: short real runs of the user's own model on this machine become figures and rows."""

import csv
import json
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from twofold.app.local_tables import local_tables
from twofold.app.sources import device_folder, whole_file
from twofold.app.words import counts_in
from twofold.catalog.catalog import load_catalog
from twofold.catalog.model_config import read_model_config
from twofold.contracts.results import trained
from twofold.core.errors import FileError, RunError, TwofoldError, UsageError, ValueRefusedError
from twofold.core.estimate import Estimate
from twofold.core.extras import require_extra
from twofold.core.quantity import Dimension, parse_quantity
from twofold.live.loads.meters import Meters
from twofold.live.loads.thermals import Thermals
from twofold.live.processes import python_module, stop_all
from twofold.live.training.checkpoints import step_of
from twofold.live.training.train_job import COMPUTES, PRECISIONS, TrainJob, run_training
from twofold.live.training.training_record import read_events, slowest_collective
from twofold.measure.doctor import diagnose
from twofold.measure.planned_runs import planned_steps
from twofold.measure.trained_rows import Ran, table_of
from twofold.report.answers import Held
from twofold.report.trained import trained_lines

READ_S = 1.0  # that readers read
ZERO_STAGE = 3
CHECKPOINTS = 4  # of a run
KILL_AFTER_FRACTION = 0.6  # of the steps of the first run with several ranks
LOSS_LIMIT_FRACTION = 0.001  # how far runs of the same number format may end apart: sums in another order
FORMATS_LIMIT_FRACTION = 0.02  # of other formats: R-001


@dataclass(frozen=True, slots=True)
class TrainWanted:
    """What to run, in words."""

    ranks: str = "1,2"
    precisions: str = "fp32,bf16"
    computes: str = "eager,compiled"
    steps: int = 24
    batch: str = "8 seq"
    sequence: str = "128 tok"
    micro_batch: int = 0
    recompute: str = "none"
    data: str = ""
    column: str = "text"
    workers: int = 2
    device: str = "cpu"
    gpu: str = ""
    seed: int = 1
    branch: bool = False


@dataclass(frozen=True, slots=True)
class TrainedShown(Held[trained.TrainedPage]):
    """What the runs came to."""

    schema = trained.TRAINED_SCHEMA

    @property
    def lines(self) -> list[str]:
        """Steps and their parts, ratios, checkpoints, readers, power, what the doctor saw."""
        return trained_lines(self.data)


def measure_train(
    model: Path,
    what: TrainWanted | None = None,
    out: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> TrainedShown:
    """Train `model`, a config.json or a folder with one, for a few steps in one way after another.

    The first run has the most ranks, the first precision, and runs eagerly; each other differs from it in one
    thing, and with `branch` goes on from a checkpoint of it. With several ranks one of them is killed once.
    With `gpu` each other run's step is planned as well, calibrated on the eager runs of the first precision
    but itself. `out` are rows of the eager runs. Raises MissingExtraError, FileError, UnknownNameError,
    ModelConfigError, ValueRefusedError for runs that cannot be, RunError for one that fails; nothing is left
    behind.
    """
    require_extra("train", "live")
    what = what or TrainWanted()
    config = model / "config.json" if model.is_dir() else model
    settings = list(_settings(what))
    if not config.is_file():
        raise FileError(f"`{config}` does not exist", hint="give a model's config.json, or a folder with one")
    # Minutes before anything is planned or written.
    if what.gpu:
        load_catalog(device_folder(Path())).benchmark_accelerator(what.gpu)
    if what.gpu or out is not None:
        _ran(config, what)
    folder = Path(tempfile.mkdtemp(prefix="twofold-measure-"))
    state = folder / "state"  # whose key lies beside it
    state.mkdir()
    try:
        base = _job(what, config, state)
        runs = [_run(base, settings[0], state, tell)]
        if what.branch:
            base = replace(base, branch_from=_earliest(state / "train" / runs[0].name / "checkpoints"))
        runs += [_run(base, each, state, tell) for each in settings[1:]]
        readings = tuple(_readings(state / "train" / runs[0].name, base, runs, tell))
    finally:
        stop_all(state)
        shutil.rmtree(folder, ignore_errors=True)
    planned, unplanned = _planned(runs, config, what)
    page = trained.TrainedPage(
        model=config.parent.name if config.name == "config.json" else config.stem,
        machine=f"{platform.machine()}, {platform.system()} {platform.release()}",
        runs=tuple(runs),
        ratios=tuple(_ratios(runs, planned)),
        readings=readings,
        accumulation=_accumulation(what.device),
        findings=tuple(diagnose([runs[0].measured], [])),
        notes=(*_notes(runs, what), *unplanned),
    )
    return TrainedShown(_kept(page, config, what, out))


def _earliest(checkpoints: Path) -> str:
    """The earliest checkpoint that a run has kept: what branches off has the most steps of its own."""
    return str(min(checkpoints.glob("step-*"), key=step_of))


def _settings(what: TrainWanted) -> Iterator[trained.RunSettings]:
    """The first run, and the others, each with one thing changed."""
    ranks = sorted(counts_in(what.ranks), reverse=True)
    precisions, computes = _words(what.precisions, PRECISIONS), _words(what.computes, COMPUTES)
    if not ranks:
        raise UsageError("no ranks to run with", hint="`--ranks 1,2`")
    batch = _batch(what)
    micro = what.micro_batch or max(1, batch // ranks[0])
    first = trained.RunSettings(ranks[0], precisions[0], computes[0], micro, what.recompute)
    yield first
    for count in ranks[1:]:
        # As many sequences at once, or as few as a rank has.
        yield replace(first, ranks=count, micro_batch=min(micro, batch // max(1, count)))
    yield from (replace(first, precision=each) for each in precisions[1:])
    yield from (replace(first, compute=each) for each in computes[1:])


def _words(text: str, known: Sequence[str]) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found:
        if word not in known:
            raise ValueRefusedError(f"`{word}` cannot be run here", hint="one of " + ", ".join(known))
    if not found:
        raise UsageError("nothing to run", hint=f"some of {', '.join(known)}")
    return list(dict.fromkeys(found))


def _batch(what: TrainWanted) -> int:
    return round(parse_quantity(what.batch, Dimension.SEQUENCES))


def _job(what: TrainWanted, config: Path, state: Path) -> TrainJob:
    return TrainJob(
        name="base",
        folder=state / "train" / "base",
        model_config=config,
        rank_count=1,
        steps=what.steps,
        sequence_tokens=round(parse_quantity(what.sequence, Dimension.TOKENS)),
        global_batch_sequences=_batch(what),
        zero_stage=ZERO_STAGE,
        device=what.device,
        checkpoint_every_steps=max(1, what.steps // CHECKPOINTS),
        seed=what.seed,
        warm_up_steps=max(1, what.steps // 10),
        data=what.data,
        data_column=what.column,
        data_workers=what.workers,
        evaluate_every_steps=what.steps,
    )


def name_of(settings: trained.RunSettings) -> str:
    """What a run is called: 2-ranks-fp32-eager."""
    ranks = f"{settings.ranks}-rank{'s' if settings.ranks > 1 else ''}"
    return f"{ranks}-{settings.precision}-{settings.compute}"


def _run(
    base: TrainJob, settings: trained.RunSettings, state: Path, tell: Callable[[str], None]
) -> trained.TrainedRun:
    name = name_of(settings)
    tell(f"train {name}")
    job = replace(
        base,
        name=name,
        folder=state / "train" / name,
        rank_count=settings.ranks,
        precision=settings.precision,
        compute=settings.compute,
        micro_batch_sequences=settings.micro_batch,
        recompute=settings.recompute,
    )
    # The first run with several ranks is the first of all: what a kill costs is measured once.
    if settings.ranks > 1 and not (state / "killed").exists():
        (state / "killed").touch()
        job = replace(job, kill_rank=1, kill_after_step=int(KILL_AFTER_FRACTION * job.steps))
    with Meters(reads_energy=True) as meters, Thermals.of(job.device) as thermals:
        measured = run_training(job, state, lambda line: tell(f"{name}: {line}"))
    evaluated = read_events(job.folder, "evaluated")
    branched = read_events(job.folder, "branched")
    missing = read_events(job.folder, "not-compiled")
    if missing:
        settings = replace(settings, compute="eager")
    return trained.TrainedRun(
        name=name,
        settings=settings,
        measured=measured,
        held_out_loss=float.fromhex(evaluated[-1]["loss"]) if evaluated else None,
        slowest_collective=slowest_collective(job.folder),
        conditions=_conditions(meters, thermals, measured.steps * measured.tokens_per_step, job.device),
        branched_from_step=int(branched[-1]["step"]) if branched else None,
        branched_from_sha256=str(branched[-1]["sha256"]) if branched else "",
    )


def _conditions(meters: Meters, thermals: Thermals, tokens: int, device: str) -> trained.Conditions:
    energy_j, clocks = meters.energy_j, thermals.clocks_hz
    return trained.Conditions(
        energy_j=energy_j,
        energy_source=meters.energy_source,
        tokens_per_j=tokens / energy_j if energy_j else None,
        clock_hz_mean=sum(clocks) / len(clocks) if clocks else None,
        clock_hz_min=min(clocks, default=None),
        temperature_c_max=thermals.temperature_c_max,
        throttled_fraction=thermals.throttled_fraction,
        clock_of="cores" if device == "cpu" else "accelerators",
    )


def _readings(
    run: Path, job: TrainJob, runs: Sequence[trained.TrainedRun], tell: Callable[[str], None]
) -> Iterator[trained.Reading]:
    """One reader, then as many as the most ranks, beside what a rank of the fastest run consumes."""
    needed = max(
        each.measured.tokens_per_step / each.measured.step_s_p50 / each.settings.ranks for each in runs
    )
    for count in sorted({1, max(each.settings.ranks for each in runs)}):
        tell(f"read with {count} readers")
        rates = read_at_once(run, count, job.sequence_tokens)
        slowest = min(rate["tokens_per_s"] for rate in rates)
        each = tuple(rate["bytes_per_s"] for rate in rates)
        yield trained.Reading(count, each, slowest, slowest / needed)


def read_at_once(run: Path, count: int, sequence_tokens: int) -> list[dict[str, float]]:
    """What so many readers of a run's staged text say of their rates, all reading at once."""
    words = [str(run), str(READ_S)]
    module = "twofold.live.training.reading_rate"
    readers = [
        subprocess.Popen(
            python_module(module, *words, str(seed), str(sequence_tokens)), stdout=subprocess.PIPE, text=True
        )
        for seed in range(count)
    ]
    said = [reader.communicate()[0] for reader in readers]
    if any(reader.returncode for reader in readers):
        raise RunError("a reader of the staged text failed", hint="its message stands above")
    return [json.loads(each) for each in said]


def _accumulation(device: str) -> trained.Accumulation:
    command = python_module("twofold.live.training.accumulation", device)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"sums could not be measured:\n{done.stderr[-400:]}")
    said = json.loads(done.stdout)
    return trained.Accumulation(said["device"], said["fp32"], said["bf16"])


def _planned(
    runs: Sequence[trained.TrainedRun], config: Path, what: TrainWanted
) -> tuple[dict[str, Estimate], list[str]]:
    """The step of each other run by its name, and what to know where none is planned."""
    if not what.gpu:
        return {}, []
    device = device_folder(Path())
    try:
        tables = load_catalog(device), local_tables(device, None).constants
        return planned_steps(runs, _ran(config, what), *tables), []
    except TwofoldError as error:
        return {}, [f"nothing is planned beside these runs: {error.message}"]


def _ratios(
    runs: Sequence[trained.TrainedRun], planned: Mapping[str, Estimate] = MappingProxyType({})
) -> Iterator[trained.Ratio]:
    """Each run against the first; one that could not be compiled is the first again, and has none."""
    first, base = runs[0], runs[0].measured
    for run in runs[1:]:
        if run.settings == first.settings:
            continue
        limit = LOSS_LIMIT_FRACTION
        if run.settings.compute != first.settings.compute:
            what = f"{run.settings.compute} over {first.settings.compute}"
        elif run.settings.precision != first.settings.precision:
            what, limit = f"{run.settings.precision} over {first.settings.precision}", FORMATS_LIMIT_FRACTION
        else:
            what = f"{run.settings.ranks} over {first.settings.ranks} ranks"
        distance = abs(run.measured.last_loss / base.last_loss - 1)
        step = planned.get(run.name)
        ratio = step.times(1 / base.step_s_p50, "ratio") if step else None
        yield trained.Ratio(what, run.measured.step_s_p50 / base.step_s_p50, distance, limit, ratio)


def _notes(runs: Sequence[trained.TrainedRun], what: TrainWanted) -> Iterator[str]:
    if "compiled" in what.computes and all(run.settings.compute == "eager" for run in runs):
        yield "nothing could be compiled here: compiled runs ran eagerly"
    if not any(run.conditions.energy_j for run in runs):
        yield "this machine tells no power: tokens per joule unknown"
    if not any(run.conditions.clock_hz_mean or run.conditions.temperature_c_max for run in runs):
        yield "this machine tells neither clocks nor temperatures"
    if all(run.held_out_loss is None for run in runs):
        yield "the text is too short to hold some out"
    busy = max(run.measured.off_core_fraction or 0.0 for run in runs)
    if busy > 0.1:
        yield f"ranks waited for cores up to {busy:.0%} of their computing: step times are of a busy machine"
    if not what.gpu:
        yield "rows do not say `--gpu`: `predict` and `calibrate` need it, and what is planned beside a run"


def _kept(
    page: trained.TrainedPage, config: Path, what: TrainWanted, out: Path | None
) -> trained.TrainedPage:
    if out is None:
        return page
    with whole_file(out) as handle:
        csv.writer(handle, lineterminator="\n").writerows(table_of(page.runs, _ran(config, what)))
    return replace(page, rows_file=str(out))


def _ran(config: Path, what: TrainWanted) -> Ran:
    sequence = round(parse_quantity(what.sequence, Dimension.TOKENS))
    return Ran(read_model_config(config), what.gpu, sequence, ZERO_STAGE)
