"""What sampled requests teach: sets to train and to test on, a watch over answers, what answers came from."""

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from twofold.app.model_workers import asked_worker
from twofold.core.data import to_data
from twofold.core.errors import FileError, Place, ValueRefusedError
from twofold.core.extras import require_extra
from twofold.live.registry import sample_worker
from twofold.live.registry.attributions import Attributed, attributed_of
from twofold.live.registry.registry import Registry
from twofold.live.registry.sampled import Curated, Sample, curated, read_samples
from twofold.live.training.artefact import write_whole
from twofold.policy.release.watch import DriftWatch, Scored, WatchSettings, WindowEnded
from twofold.report.answers import Shown
from twofold.report.feedback import attributed_lines, curated_lines, watched_lines

WORKER = "twofold.live.registry.sample_worker"
SCORED_MOST = 2000  # answers after the reference, the newest
CURATED = CANDIDATES, REGRESSION, FAILURES = "candidates.jsonl", "regression.jsonl", "failures.jsonl"


@dataclass(frozen=True, slots=True)
class ShownCurated(Shown):
    """What samples came to, and where it was written."""

    schema = "twofold/curated/1"
    folder: Path
    found: Curated

    @property
    def lines(self) -> list[str]:
        """Files, then slices that fail."""
        return curated_lines(self.folder, self.found)

    @property
    def as_data(self) -> dict[str, Any]:
        """Counts and slices; texts are in the files."""
        found = self.found
        return {
            "folder": str(self.folder),
            "candidates": len(found.candidates),
            "regression": len(found.regression),
            "failures": len(found.failures),
            "repeated": found.repeated_count,
            "hosted": found.hosted_count,
            "slices": to_data(found.slices),
        }


@dataclass(frozen=True, slots=True)
class ShownWatch(Shown):
    """Windows of answers after a release. Exits 3 where one is worse."""

    schema = "twofold/watch/1"
    version: str
    answer_count: int
    other_count: int  # answers of other versions since then, which are left out
    windows: tuple[WindowEnded, ...]
    settings: WatchSettings

    @property
    def lines(self) -> list[str]:
        """A line for each."""
        return watched_lines(self.version, self.answer_count, self.other_count, self.windows, self.settings)

    @property
    def exit_code(self) -> int:
        return 3 if any(each.alert for each in self.windows) else 0


@dataclass(frozen=True, slots=True)
class ShownAttribution(Shown):
    """What sampled answers came from. Exits 3 where shares do not sum up."""

    schema = "twofold/attribution/1"
    told: Attributed
    samples: tuple[Sample, ...]

    @property
    def lines(self) -> list[str]:
        """Each answer, then whether shares are complete, then the cost."""
        return attributed_lines(self.told, self.samples)

    @property
    def as_data(self) -> dict[str, Any]:
        """With the decision about each request."""
        names = ("request_id", "at", "model", "class_name", "replica", "attempts", "outcome")
        decisions = [{name: getattr(each, name) for name in names} for each in self.samples]
        return {**to_data(self.told), "decisions": decisions}

    @property
    def exit_code(self) -> int:
        return 0 if self.told.same and all(each.complete for each in self.told.found) else 3


def curate_samples(samples: Path, out: Path, force: bool = False) -> ShownCurated:
    """Sort sampled requests into sets to train and to test on, and failures by slice; texts go into `out`.

    With `force` the files of an earlier call are replaced, once all new ones are written: who reads meanwhile
    finds each of them old or new, and whole, and a prompt is on the same side in both.
    Raises FileError for what is no sample, for a folder that is there, and for one with other files in it.
    """
    found = curated(read_samples(samples))
    _check_replaced(out, force)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as beside:
        made = Path(beside)  # which nobody else can read
        for name, rows in zip(CURATED, (found.candidates, found.regression, found.failures), strict=True):
            write_whole(made / name, "".join(f"{json.dumps(row)}\n" for row in rows))
            (made / name).chmod(0o600)
        out.mkdir(mode=0o700, exist_ok=force)
        for name in CURATED:
            (made / name).replace(out / name)
    return ShownCurated(out, found)


def _check_replaced(out: Path, force: bool) -> None:
    """Raise FileError unless a folder is not there, or holds what we wrote and `force` is said."""
    if not (out.exists() or out.is_symlink()):
        return
    if not force:
        hint = "name a folder that is not there, or add `--force` to replace what was curated there"
        raise FileError(f"`{out}` exists", hint=hint)
    hint = "name a folder that is not there"
    if out.is_symlink() or not out.is_dir():
        raise FileError(f"`{out}` is no folder that `curate` made", hint=hint)
    others = [path.name for path in out.iterdir() if path.name not in CURATED or not path.is_file()]
    if others:
        raise FileError(f"`{out}` holds `{min(others)}`, which `curate` did not write", hint=hint)


def learned_rows(folder: Path, most_bytes: int) -> list[dict[str, str]]:
    """Rows of a regression set that was curated into a folder, of each slice in turn, up to so many bytes of
    text; none where there is no such set. Raises FileError, with the line, for what is no row."""
    path, by_slice = folder / REGRESSION, dict[str, list[dict[str, str]]]()
    for number, line in enumerate(path.read_text("utf-8").splitlines() if path.is_file() else (), start=1):
        try:
            said = json.loads(line)
            row = {"slice": str(said["slice"]), "text": str(said["text"])}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FileError(
                "no row of a regression set", place=Place(str(path), number, 1), hint="curate it anew"
            ) from error
        by_slice.setdefault(row["slice"], []).append(row)
    found, left_bytes = list[dict[str, str]](), most_bytes
    for rows in zip_longest(*(by_slice[name] for name in sorted(by_slice))):
        for row in filter(None, rows):
            size_bytes = len(row["text"].encode())
            if size_bytes <= left_bytes:  # one that is too long takes nothing from the others
                left_bytes -= size_bytes
                found.append(row)
    return found


def watch_release(
    reference: str, samples: Path, registry: Path, alias: str, margin: float, tell: Callable[[str], None]
) -> ShownWatch:
    """Whether sampled answers since the release of a version are worse than the first ones were.

    Raises MissingExtraError without `train`, FileError for what is no sample.
    """
    require_extra("train")
    settings = WatchSettings(margin_nats=margin)
    opened = Registry(registry)
    version = opened.trusted(reference).version
    moves = [each.at for each in opened.tables.moves(version.name, alias) if each.version == version.version]
    since = datetime.fromisoformat(moves[-1]).timestamp() if moves else 0.0
    answered = [
        each
        for each in read_samples(samples)
        if each.is_answered and datetime.fromisoformat(each.at).timestamp() >= since
    ]
    told = [each for each in answered if each.is_of(version.digest)]
    first = settings.block_count * settings.reference_blocks_count
    told = [*told[:first], *told[first:][-SCORED_MOST:]]
    tell(f"score {len(told)} answers by {version.text}")
    said = _asked_of(opened, version.text, sample_worker.SCORE, told) if told else {"scores": []}
    watch, windows = DriftWatch(settings), []
    for score in said["scores"]:  # in the order of the samples; those without a token are left out
        event = Scored(score["score_nats"], score["input_tokens"], score["output_tokens"])
        windows += watch.handle(event, datetime.fromisoformat(told[score["number"]].at).timestamp())
    return ShownWatch(version.text, len(said["scores"]), len(answered) - len(told), tuple(windows), settings)


def attribute_answers(
    reference: str, samples: Path, registry: Path, count: int, tell: Callable[[str], None]
) -> ShownAttribution:
    """Which tokens of sampled prompts their answers came from, by a version, and what telling that costs.

    Raises MissingExtraError without `train` and `attribution`, FileError for what is no sample,
    ValueRefusedError where none was answered.
    """
    require_extra("train", "attribution")
    opened = Registry(registry)
    version = opened.trusted(reference).version
    answered = (each for each in read_samples(samples) if each.is_answered and each.is_of(version.digest))
    told = list(answered)[-count:]
    if not told:
        raise ValueRefusedError(
            f"no sample in `{samples}` was answered by {version.text}", hint="let it serve first"
        )
    tell(f"attribute {len(told)} answers of {version.text}")
    said = _asked_of(opened, version.text, sample_worker.ATTRIBUTE, told)
    return ShownAttribution(attributed_of(version.text, version.digest, said), tuple(told))


def _asked_of(opened: Registry, reference: str, what: str, samples: Iterable[Sample]) -> dict[str, Any]:
    texts = tuple(
        sample_worker.Text(each.request_id, each.asked, each.messages, each.answer) for each in samples
    )
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        opened.pull(reference, model)
        asked = sample_worker.Asked(what, str(model), texts)
        return asked_worker(
            WORKER,
            sample_worker.request_of(asked),
            "asked about its answers",
            "see `--on`: fewer samples, or shorter ones",
        )
