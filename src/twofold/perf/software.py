"""Serving engines, each once: a new one is a row here. Further names that people have for it: aliases.csv."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from twofold.catalog.catalog import Catalog
from twofold.perf.formats import bytes_per_weight

DEFAULT_ENGINE = "vllm"
DEFAULT_FRAMEWORK = "megatron-core"  # of training
NARROW_FLOATS = ("fp8", "fp8_block", "fp4", "nvfp4")
TWO_HALVES = "two-batch-overlap"
"""The word beside an engine's release that says so; `tbo` and vLLM's `dbo` do too."""
HALVES = re.compile(rf"\b({TWO_HALVES}|dual-batch-overlap|tbo|dbo)\b")


@dataclass(frozen=True, slots=True)
class EngineSoftware:
    """What is known of one engine beside its fitted constants."""

    name: str  # in tables and constants
    spec_name: str = ""  # in specs, where they call it otherwise
    newest_release: str | None = None  # that plans take; None: no era was measured
    # Where its step changed by more than its noise: scheduler rewrites, graphs, asynchronous output.
    # First version of each era, oldest first; an unreadable version is taken for the newest.
    eras: tuple[tuple[tuple[int, int], str], ...] = ()
    # Software known by its year alone was rarely tuned: an era of its own where that shows.
    era_by_year: Mapping[str, str] = field(default_factory=dict)
    usual_batch: float = 1024.0  # sequences that benchmarks let it decode together
    packs_prompts: bool = False  # one attention call over all sequences, padded to no length
    block_tokens: int = 16  # of its cache
    watermark_fraction: float = 0.01  # of the cache that admission leaves free, for those that grow
    prefills_first: bool = False  # no step carries prompts beside what decodes
    reserves_answer: bool = False  # room for the longest answer from the start: nothing is evicted
    narrow_cache: bool = False  # 8 bits beside `NARROW_FLOATS`, whatever the checkpoint brings
    # Tokens of a rank, decoding and prefilling, from which a step may run as two halves; None: it cannot.
    halves_tokens: tuple[float, float] | None = None

    def cache_format(self, weights_format: str, brought: str = "") -> str:
        """The format of the KV cache when nobody says.

        `brought` is that of the cache that the checkpoint holds scales for: engines' `auto` takes it, and the
        published nvfp4 checkpoints hold those of 8 bits. Without one the cache has 16 bits, or the 32 of the
        weights.

        >>> ENGINES["vllm"].cache_format("fp8"), ENGINES["vllm"].cache_format("fp8", "fp8")
        ('bf16', 'fp8')
        >>> ENGINES["trtllm"].cache_format("nvfp4"), ENGINES["trtllm"].cache_format("mxfp4")
        ('fp8', 'bf16')
        >>> ENGINES["sglang"].cache_format("nvfp4")
        'fp8'
        """
        if weights_format == "nvfp4":
            return "fp8"
        if bytes_per_weight(weights_format) > 2.0:
            return "fp32"
        if brought and bytes_per_weight(weights_format) < 2.0:
            return brought
        return "fp8" if self.narrow_cache and weights_format in NARROW_FLOATS else "bf16"

    def halves_in(self, words: str | None) -> bool:
        """Whether what stands beside its name says that its steps run as two halves; untold they never do.

        >>> ENGINES["sglang"].halves_in("0.5.5 two-batch-overlap"), ENGINES["trtllm"].halves_in("1.2 tbo")
        (True, False)
        """
        return self.halves_tokens is not None and HALVES.search(words or "") is not None

    def era_of(self, version: str | None) -> str:
        """The era of `version`, the newest when it cannot be told, "" for an engine without eras.

        >>> vllm, trtllm, sglang = (engine_software(name) for name in ("vllm", "trtllm", "sglang"))
        >>> vllm.era_of("0.15.1"), vllm.era_of("2024, unstated"), trtllm.era_of("1.2.0rc6")
        ('0.12+', '2024', '1.1+')
        >>> vllm.era_of("0.2-0.3 era, modified"), vllm.era_of(None), sglang.era_of("main")
        ('0.3-', '0.12+', '0.5+')
        """
        text = (version or "").strip()
        year = re.match(r"20\d\d", text)
        if year:
            return self.era_by_year.get(year.group(), "")
        number = re.match(r"v?(\d+)\.(\d+)", text)
        if not number:
            return self.eras[-1][1] if self.eras else ""
        release = (int(number.group(1)), int(number.group(2)))
        return next((era for first, era in reversed(self.eras) if release >= first), "")


ENGINES: Mapping[str, EngineSoftware] = {
    each.name: each
    for each in (
        # Blocks of 16, the youngest recomputed, prompts kept for others as long as nobody needs their room.
        EngineSoftware(
            "vllm",
            newest_release="0.15.0",
            eras=(((0, 0), "0.3-"), ((0, 4), "0.4+"), ((0, 12), "0.12+")),
            era_by_year={"2024": "2024", "2025": "0.4+"},
            halves_tokens=(32.0, 512.0),  # defaults of its `--dbo-…-token-threshold`
        ),
        # A radix tree over single tokens.
        EngineSoftware(
            "sglang",
            newest_release="0.5.5",
            eras=(((0, 0), "0.4-"), ((0, 5), "0.5+")),
            usual_batch=2048.0,
            block_tokens=1,
            watermark_fraction=0.0,
            prefills_first=True,
            halves_tokens=(2.0, 2.0),  # whatever can be halved is
        ),
        EngineSoftware(
            "trtllm",
            spec_name="tensorrt-llm",
            newest_release="1.2.0",
            eras=(((0, 0), "0.9-"), ((0, 10), "0.10+"), ((1, 1), "1.1+")),
            era_by_year={"2024": "0.9-", "2025": "0.10+"},
            usual_batch=2048.0,
            block_tokens=32,
            watermark_fraction=0.0,
            reserves_answer=True,
            narrow_cache=True,
        ),
        EngineSoftware("transformers", packs_prompts=True),
        # Slots of equal length, each with its own share of the cache from the start.
        EngineSoftware("llama.cpp", packs_prompts=True, block_tokens=1, reserves_answer=True),
    )
}
CONTAINERS = MappingProxyType({"nim": "trtllm"})
"""Products that run an engine under another name, with releases of their own."""
SPEC_ENGINES = tuple(each.spec_name or each.name for each in ENGINES.values())


def engine_called(text: str, catalog: Catalog) -> str:
    """The short name of an engine by what it is called here or in a spec, else by the catalogue's aliases."""
    own = {name: each.name for each in ENGINES.values() for name in (each.spec_name or each.name, each.name)}
    return own.get(text) or catalog.framework(text)


def engine_software(name: str) -> EngineSoftware:
    """What is known of an engine; of an unknown one what holds for most."""
    return ENGINES.get(name, EngineSoftware(name))
