"""Tokens of many documents in one folder that never changes: what training text becomes, whatever it was.

`tokens.npy` holds the documents one after another, each with its end token; `ends.npy` says where each one
ends. Both are read through memory maps, so that a shard may be larger than memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOKENS, ENDS = "tokens.npy", "ends.npy"
LARGEST_SHORT_VOCABULARY = 2**16  # tokens of a larger one take four bytes, not two


@dataclass(frozen=True, slots=True)
class Shard:
    """One opened shard. Document `i` is `tokens[ends[i - 1]:ends[i]]`."""

    tokens: NDArray[np.integer]
    ends: NDArray[np.int64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each document begins."""
        return np.concatenate(([0], self.ends[:-1])).astype(np.int64)


def open_shard(folder: Path) -> Shard:
    """A shard that `write_shard` wrote; raises OSError or ValueError for a folder that is none."""
    return Shard(np.load(folder / TOKENS, mmap_mode="r"), np.load(folder / ENDS))


def write_shard(folder: Path, documents: Iterable[Sequence[int]], vocabulary_tokens: int) -> int:
    """Write documents as they come, none of them kept in memory; returns how many tokens they have.

    The array's header is written anew at the end, when its length is known: numpy leaves room for that.
    """
    short = vocabulary_tokens <= LARGEST_SHORT_VOCABULARY
    dtype = np.dtype(np.uint16 if short else np.uint32)
    ends: list[int] = []
    count = 0
    with (folder / TOKENS).open("wb") as file:
        _write_header(file, 0, dtype)
        for document in documents:
            file.write(np.asarray(document, dtype).tobytes())
            count += len(document)
            ends.append(count)
        file.seek(0)
        _write_header(file, count, dtype)
    np.save(folder / ENDS, np.array(ends, np.int64))
    return count


def _write_header(file: Any, count: int, dtype: Any) -> None:
    said = {"shape": (count,), "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
    np.lib.format.write_array_header_1_0(file, said)
