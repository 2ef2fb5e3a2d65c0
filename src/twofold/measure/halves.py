"""The two halves of measurements, training and inference: what tells a table, what predicts its rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from twofold.catalog import Catalog
from twofold.core import TableError
from twofold.measure.predict_inference import predict_inference
from twofold.measure.predict_training import predict_training
from twofold.measure.truth import Row
from twofold.perf import Constants, Known


class Predict(Protocol):
    """Rows with `pred_…` columns; `known` is what the fit of these constants has seen."""

    def __call__(
        self, rows: Sequence[Row], catalog: Catalog, constants: Constants, known: Known | None = None
    ) -> list[Row]:
        """Each row once, in order."""


PREDICT: Mapping[str, Predict] = MappingProxyType(
    {"training": predict_training, "inference": predict_inference}
)
# A table without these columns has no row that says enough; the first half that it could be is meant.
NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"training": ("gpu", "gpus", "seq_len"), "inference": ("model", "gpu")}
)


def half_of(row: Row, path: Path, asked: str = "") -> str:
    """Which half a table belongs to, by its columns."""
    fitting = [half for half, columns in NEEDED.items() if all(name in row for name in columns)]
    if not fitting or (asked and asked not in fitting):
        half = asked if asked in NEEDED else "training"
        raise TableError(
            f"`{path.name}` is no table of {asked or 'training or inference'} runs",
            hint=f"a table of {half} runs needs at least {', '.join(NEEDED[half])}",
        )
    return asked or fitting[0]
