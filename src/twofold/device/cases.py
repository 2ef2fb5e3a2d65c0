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
# Of which operation runs in which format: new tokens by phase, and the width on a processor, an accelerator.
KERNEL, PHASES, FORMAT_WIDTHS = "kernel", {"prompts": 512, "decode": 32}, (512, 4096)
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
Product = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of one kind of machine: large enough to fill it, small enough for a minute."""

    formats: tuple[str, ...]  # of products; the first is that of attention, training and serving too
    squares: tuple[Product, ...]
    wide_rows: tuple[Product, ...]
    decode_rows: tuple[Product, ...]
    few: tuple[Product, ...]  # of those, in the other formats
    copies_bytes: tuple[int, ...]
    prefills: tuple[tuple[int, int, int], ...]
    decodes: tuple[tuple[int, int], ...]
    heads: int  # of decoding
    kv_heads: int
    head_dim: int
    stacks: tuple[Stack, ...]
    services: tuple[Service, ...]
    kv_block_count: int  # of an engine

    @property
    def format(self) -> str:
        """Of attention, of training and of what is served."""
        return self.formats[0]

    @property
    def products(self) -> tuple[Product, ...]:
        """All products in the first format."""
        return (*self.squares, *self.wide_rows, *self.decode_rows)


PROCESSOR = Suite(
    ("fp32", "bf16"),
    SQUARES,
    WIDE_ROWS,
    DECODE_ROWS,
    HALF_SHAPES,
    COPIES_BYTES,
    PREFILLS,
    DECODES,
    ATTENTION_HEADS,
    ATTENTION_KV_HEADS,
    HEAD_DIM,
    STACKS,
    SERVICES,
    kv_block_count=256,
)
ACCELERATOR = Suite(
    ("bf16", "fp32", "fp8"),
    squares=tuple((size, size, size) for size in (1024, 4096, 8192)),
    wide_rows=(
        (8192, 2048, 2048),
        (8192, 8192, 2048),
        (4096, 4096, 14336),
        (512, 4096, 4096),
        (8192, 32768, 512),
    ),
    decode_rows=tuple((rows, size, size) for rows in (1, 16, 128) for size in (2048, 4096, 8192)),
    few=((4096, 4096, 4096), (8192, 8192, 2048), (16, 8192, 8192), (128, 4096, 4096)),
    copies_bytes=(2**20, 2**26, 2**30),
    prefills=((1, 1024, 32), (1, 4096, 32), (8, 2048, 16), (1, 16384, 8)),
    decodes=((1, 1024), (8, 1024), (64, 1024), (8, 8192), (64, 4096)),
    heads=32,
    kv_heads=8,
    head_dim=128,
    stacks=(
        Stack(2, 1024, 8192, 4, 1024),
        Stack(8, 1024, 8192, 4, 1024),
        Stack(2, 4096, 8192, 4, 2048),
        Stack(6, 2048, 8192, 4, 2048),
        Stack(2, 1024, 65536, 4, 1024),
    ),
    services=(
        Service(4, 2048, 1, 128),
        Service(4, 2048, 16, 128),
        Service(4, 2048, 16, 448),
        Service(16, 2048, 1, 128),
        Service(16, 2048, 16, 128),
    ),
    kv_block_count=1024,
)


def suite_for(family: str) -> Suite:
    """The cases of an accelerator's family, or of the processor's."""
    return PROCESSOR if family == "cpu" else ACCELERATOR


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
