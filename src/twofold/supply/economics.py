"""Money per unit of work: per token, per query, per joule, and the price of a mix of tokens."""

from dataclasses import dataclass

from twofold.contracts.results import RatioRow
from twofold.core import J_PER_KWH

MTOK = 1e6


def usd_per_mtok(usd: float, tokens: float) -> float:
    """Money over what it buys, in millions of tokens.

    Formula  usd / tokens · 1e6
    Units    USD and tokens of the same time; USD per 1e6 tokens. $/1k tokens are a thousandth of it.
    Limits   no tokens: infinite.

    >>> usd_per_mtok(20.0, 10e6)
    2.0
    """
    return usd / tokens * MTOK if tokens > 0 else float("inf")


def usd_per_query(usd: float, queries: float) -> float:
    """Money over the queries that it answers; infinite without any.

    >>> usd_per_query(10.0, 4000.0)
    0.0025
    """
    return usd / queries if queries > 0 else float("inf")


def tokens_per_j(tokens: float, energy_j: float) -> float:
    """Tokens per joule, which is tokens/s per watt: both rates are over the same time."""
    return tokens / energy_j if energy_j > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class TokenMix:
    """What one query sends and gets; `cached_fraction` of the input is found in a prefix cache."""

    input_tokens: float
    output_tokens: float
    cached_fraction: float = 0.0

    @property
    def total_tokens(self) -> float:
        return self.input_tokens + self.output_tokens


def query_price_usd(
    mix: TokenMix,
    input_usd_per_mtok: float,
    output_usd_per_mtok: float,
    cached_input_usd_per_mtok: float | None = None,
) -> float:
    """What a hosted API asks for one query.

    Formula  (input · ((1 − c)·p_in + c·p_cached) + output · p_out) / 1e6
    Why      Providers bill input and output apart, and input that their cache holds at a price of its own.
    Units    tokens of one query; USD per 1e6 tokens.
    Limits   without a price for cached input it costs what other input costs.

    >>> query_price_usd(TokenMix(1000.0, 500.0), 1.0, 2.0)
    0.002
    """
    cached = input_usd_per_mtok if cached_input_usd_per_mtok is None else cached_input_usd_per_mtok
    share = mix.cached_fraction
    asked = (1.0 - share) * input_usd_per_mtok + share * cached
    return (mix.input_tokens * asked + mix.output_tokens * output_usd_per_mtok) / MTOK


def blended_usd_per_mtok(
    mix: TokenMix,
    input_usd_per_mtok: float,
    output_usd_per_mtok: float,
    cached_input_usd_per_mtok: float | None = None,
) -> float:
    """The same per 1e6 tokens of the mix, input and output together.

    >>> round(blended_usd_per_mtok(TokenMix(750.0, 250.0), 1.0, 2.0), 4)
    1.25
    """
    price = query_price_usd(mix, input_usd_per_mtok, output_usd_per_mtok, cached_input_usd_per_mtok)
    return usd_per_mtok(price, mix.total_tokens)


def energy_usd(energy_j: float, usd_per_kwh: float) -> float:
    """Money for energy at the meter."""
    return energy_j / J_PER_KWH * usd_per_kwh


def cost_ratio(
    name: str, training_usd: float, serving_usd: float, claimed: tuple[float, float], inputs: str
) -> RatioRow:
    """How many times the one is of the other, and whether that is within what is claimed (R-130).

    >>> cost_ratio("per GPU", 6.0, 2.0, (3.0, 5.0), "").verdict
    'within'
    """
    ratio = training_usd / serving_usd if serving_usd > 0 else float("inf")
    low, high = claimed
    verdict = "below" if ratio < low else "above" if ratio > high else "within"
    return RatioRow(name, training_usd, serving_usd, ratio, low, high, verdict, inputs)
