"""What is measured on a device: cases as data, shared by the processes that run them and by the fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

Number = float | int | str

# Products (rows, outputs, inner): large squares show the peak, then shapes of training and of decoding.
SQUARES = ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024))
WIDE_ROWS = ((512, 768, 256), (512, 256, 768), (256, 512, 512), (512, 4096, 256), (64, 512, 512))
DECODE_ROWS = tuple((rows, size, size) for rows in (1, 4, 16) for size in (256, 512, 1024))
HALF_SHAPES = (SQUARES[1], SQUARES[2], WIDE_ROWS[0], DECODE_ROWS[2], DECODE_ROWS[8])
PREFILLS = ((1, 64, 4), (4, 128, 4), (1, 512, 4), (2, 256, 8))  # sequences, tokens, heads
DECODES = ((1, 256), (4, 256), (16, 256), (4, 1024))  # sequences, context
ATTENTION_HEADS, ATTENTION_KV_HEADS, HEAD_DIM = 4, 2, 64
COPIES_BYTES = (2**16, 2**20, 2**26)
PAYLOAD_BYTES = (2**12, 2**16, 2**20, 2**22, 2**24)
STORED_BYTES = (2**12, 2**25)


@dataclass(frozen=True, slots=True)
class Stack:
    """A small Llama, and the batch of one rank that trains it."""

    layers: int
    hidden: int
    vocab: int
    sequences: int
    tokens: int  # of each sequence

    @property
    def intermediate(self) -> int:
        """Width of the gated feed-forward."""
        return 3 * self.hidden

    @property
    def heads(self) -> int:
        """Query heads of 64."""
        return max(2, self.hidden // HEAD_DIM)

    @property
    def kv_heads(self) -> int:
        """Key and value heads: half as many where that divides, else one."""
        return self.heads // 2 if self.heads % 2 == 0 else 1


@dataclass(frozen=True, slots=True)
class Service:
    """A small Llama that an engine serves, and a burst of equal requests to it."""

    layers: int
    hidden: int
    requests: int  # at once, to one replica
    prompt: int  # tokens


SERVED_VOCAB = 2048
# Two depths, two widths, two batches, two vocabularies: what each constant does shows in one difference.
STACKS = (
    Stack(2, 128, 1024, 2, 64),
    Stack(6, 128, 1024, 2, 64),
    Stack(2, 384, 1024, 2, 128),
    Stack(4, 384, 1024, 1, 128),
    Stack(2, 192, 8192, 4, 128),
)
SERVICES = (
    Service(2, 192, 1, 32),
    Service(2, 192, 8, 32),
    Service(2, 192, 8, 160),
    Service(8, 192, 1, 32),
    Service(8, 192, 8, 32),
)
SHORT_ANSWER_TOKENS, LONG_ANSWER_TOKENS = 4, 24


@dataclass(frozen=True, slots=True)
class Sample:
    """One case on one rank: its sizes, and seconds of each repeat."""

    group: str
    sizes: Mapping[str, Number]
    seconds: tuple[float, ...]


def pooled(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Samples of one case on all ranks as one, in the order in which cases came first."""
    groups: dict[object, list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.group, *sorted(sample.sizes.items())), []).append(sample)
    return tuple(
        Sample(same[0].group, same[0].sizes, tuple(chain.from_iterable(each.seconds for each in same)))
        for same in groups.values()
    )
