"""The file of a calibration, schema `twofold/calibration/1`: what a user's rows say of one stack or more.

Nothing here computes. Written by `twofold calibrate`, read by plans beside it, refused when it was altered.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Self

from twofold.core.data import from_data, to_data
from twofold.core.errors import AlteredError, FileError, unread

FILE_LIMIT_BYTES = 4 * 2**20
AGAIN = "calibrate again with `twofold calibrate`"


@dataclass(frozen=True, slots=True)
class CalibratedFactor:
    """One named factor: its median after the rows with an 80 % range, and the range before them."""

    name: str  # compute, memory_bandwidth, host …
    value: float  # above 1: better than modelled; `memory_use` above 1: more is held
    low: float
    high: float
    low_before: float
    high_before: float


@dataclass(frozen=True, slots=True)
class CalibratedFigure:
    """How well one figure is predicted, before and after; errors are |predicted / measured − 1|."""

    name: str  # step_time_s peak_mem_gib ttft_mean_ms tpot_mean_ms output_tok_s …
    rows: int
    error_before: float  # median
    error_fitted: float  # median, on the rows that were fitted
    error_after: float  # median, each row by factors that never saw it
    range_before_log: float  # half of the width of the 80 % range, in logarithms
    range_after_log: float
    worse_lines: tuple[int, ...] = ()  # of the file, where the factors predict worse; none: they do not


@dataclass(frozen=True, slots=True)
class CalibratedStack:
    """One accelerator under one software."""

    half: str  # training or inference
    accelerator: str  # catalogue name
    software: str  # family of training frameworks, or engine
    era: str  # of an engine's releases; "" holds for all
    version: str  # as the rows say it
    kinds: tuple[str, ...]  # dense moe mla: the models that were measured
    rows: int
    factors: tuple[CalibratedFactor, ...]
    log_covariance: tuple[tuple[float, ...], ...]  # of the factors' logarithms, in their order
    figures: tuple[CalibratedFigure, ...]


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that was not used."""

    line: int  # of the file; its header is line 1
    reason: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """What `calibration.json` says."""

    schema: ClassVar[str] = "twofold/calibration/1"
    measurements: str  # name of the file of rows
    calibrated_on: date
    constants_version: int  # of ours, which the factors multiply
    constants_digest: str
    stacks: tuple[CalibratedStack, ...]
    refused: tuple[RefusedRow, ...]
    digest: str = ""  # of all of the above

    @property
    def rows(self) -> int:
        """Rows that were used."""
        return sum(stack.rows for stack in self.stacks)

    def as_data(self) -> dict[str, Any]:
        """As JSON holds it, with the digest of what it says."""
        data: dict[str, Any] = to_data(self)
        return data | {"digest": _digest(data)}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises FileError for a file that is none, AlteredError where its digest is not its own."""
        try:
            with path.open("rb") as handle:
                content = handle.read(FILE_LIMIT_BYTES + 1)
            data = json.loads(content[:FILE_LIMIT_BYTES])
            if not isinstance(data, dict) or data.pop("schema", None) != cls.schema:
                raise ValueError(f"its schema is not {cls.schema}")
            if "digest" not in data:
                raise ValueError("it lacks `digest`")
            calibration = from_data(cls, data, more=True)
        except OSError as error:
            raise unread(path, error, AGAIN) from error
        except (ValueError, RecursionError) as error:
            raise FileError(f"`{path}` is not a calibration: {error}", hint=AGAIN) from error
        if calibration.digest != _digest(data):
            raise AlteredError(f"`{path}` is not what was calibrated: its digest differs", hint=AGAIN)
        return calibration


def _digest(data: dict[str, Any]) -> str:
    told = json.dumps({key: value for key, value in data.items() if key != "digest"}, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()
