"""What is predicted, then run, on one GPU: cases as data, with no import: it runs where torch alone is."""

from dataclasses import dataclass

MODELS = {  # layers, hidden, heads, kv heads, head size, feed-forward, vocabulary, tied embeddings
    "qwen2.5-0.5b": (24, 896, 14, 2, 64, 4864, 151936, True),
    "llama-3.2-1b": (16, 2048, 32, 8, 64, 8192, 128256, True),
    "llama-3.2-3b": (28, 3072, 24, 8, 128, 8192, 128256, True),
    "llama-3.1-8b": (32, 4096, 32, 8, 128, 14336, 128256, False),
}

# Products (rows, outputs, inner).
SQUARES = tuple((size, size, size) for size in (1024, 2048, 4096, 8192))
TRAINING_PRODUCTS = (
    (8192, 2048, 2048),
    (8192, 8192, 2048),
    (8192, 2048, 8192),
    (4096, 28672, 4096),
    (4096, 4096, 14336),
    (8192, 128256, 2048),
)
DECODE_PRODUCTS = tuple(
    (rows, n, k)
    for rows in (1, 8, 32, 128)
    for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
)
NARROW_PRODUCTS = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 28672, 4096), (32, 28672, 4096))  # fp8
# Causal attention of whole prompts: sequences, tokens, heads, kv heads, head size.
PREFILLS = (
    (1, 1024, 32, 8, 128),
    (1, 4096, 32, 8, 128),
    (1, 16384, 32, 8, 128),
    (4, 4096, 32, 8, 64),
    (8, 2048, 32, 8, 64),
)
DECODES = tuple((batch, context, 32, 8, 128) for batch in (1, 8, 32, 128) for context in (512, 4096))
# Passes over memory: name, rows, columns, values of 16 bits read and written per entry.
PASSES = (
    ("copy", 8192, 4096, 2),
    ("copy", 65536, 16384, 2),
    ("add", 65536, 16384, 3),
    ("rms_norm", 8192, 4096, 2),
    ("silu", 8192, 14336, 2),
    ("multiply", 8192, 14336, 3),
    ("copy", 32, 4096, 2),
)


@dataclass(frozen=True, slots=True)
class Training:
    """One training step: bf16 products, fp32 weights and AdamW states, sharded over one rank."""

    model: str
    sequences: int
    tokens: int
    recompute: str  # none, full
    compiled: bool = False

    @property
    def id(self) -> str:
        """A name without blanks."""
        how = "compiled" if self.compiled else "eager"
        return f"{self.model}-{self.sequences}x{self.tokens}-{self.recompute}-{how}"


_EAGER = (
    Training("qwen2.5-0.5b", 4, 2048, "none"),
    Training("qwen2.5-0.5b", 2, 4096, "none"),
    Training("qwen2.5-0.5b", 4, 2048, "full"),
    Training("llama-3.2-1b", 4, 2048, "none"),
    Training("llama-3.2-1b", 2, 4096, "none"),
    Training("llama-3.2-1b", 4, 2048, "full"),
    Training("llama-3.2-3b", 1, 2048, "none"),
    Training("llama-3.2-3b", 2, 2048, "full"),
    Training("llama-3.2-3b", 1, 4096, "full"),
)
TRAINING = (
    *_EAGER,
    Training("qwen2.5-0.5b", 4, 2048, "none", True),
    Training("llama-3.2-1b", 4, 2048, "none", True),
    Training("llama-3.2-3b", 2, 2048, "full", True),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of inference: a prompt of `tokens` where `batch` is 0, else one token each at a context."""

    model: str
    batch: int
    tokens: int

    @property
    def id(self) -> str:
        """A name without blanks."""
        step = f"decode-{self.batch}x{self.tokens}" if self.batch else f"prefill-{self.tokens}"
        return f"{self.model}-{step}"


SERVED_MODELS = ("llama-3.2-1b", "llama-3.1-8b")
STEPS = tuple(
    Step(model, batch, tokens)
    for model in SERVED_MODELS
    for batch, tokens in (
        *((0, tokens) for tokens in (1024, 4096, 16384)),
        *((batch, context) for batch in (1, 8, 32, 128) for context in (512, 4096)),
    )
)
# A service of `transformers serve`: clients of a closed loop, prompt and answer in tokens.
SERVED = ("llama-3.2-1b", 256, 64, (1, 4, 16, 32))
