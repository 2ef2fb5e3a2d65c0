"""What a spec says about servers that run already: in place of a service's replicas, and beside them."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, Quantity, refusal
from twofold.contracts.spec.parts import Engine
from twofold.core.quantity import Dimension

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
PLAIN_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
SAFE_FOR_KEYS = re.compile(r"https://|http://(localhost|127\.0\.0\.1|\[::1\])[:/]")
Price = Annotated[float, Quantity(Dimension.MONEY, "$", highest=1e6)]


class Server(Part):
    """An OpenAI-compatible server that runs already."""

    url: fields.Text = Field(description="an OpenAI-compatible server, such as `https://api.example.com/v1`")
    model: fields.Text = Field(description="what it calls the model")
    engine: Engine | None = Field(
        default=None,
        description="what serves there, for requests with more than the protocol; none: the protocol alone",
    )
    key_env: fields.Text | None = Field(
        default=None, description="the environment variable that holds its key; a spec holds none"
    )
    ca: fields.FilePath | None = Field(
        default=None, description="certificates of whom to trust there, besides those that the machine does"
    )

    @model_validator(mode="after")
    def _holds_no_key(self) -> Self:
        """What may be a key is not shown."""
        if not PLAIN_URL.fullmatch(self.url):
            hint = "write scheme, host and path alone, and name the variable with the key by `key_env`"
            raise refusal("`url` is no URL, or has more in it than a server's address", hint)
        if self.key_env is not None and not VARIABLE.fullmatch(self.key_env):
            raise refusal("`key_env` names no environment variable", "write its name, never the key")
        if self.key_env is not None and not SAFE_FOR_KEYS.match(self.url):
            raise refusal("a key and what is asked would travel in clear text", "write `https://`")
        return self


class Overflow(Server):
    """A hosted API that takes the requests which a service has no room or no time for."""

    input_price_usd: Price = Field(description="dollars per million tokens of prompts")
    output_price_usd: Price = Field(description="dollars per million tokens of answers")
    ttft_s: fields.Latency = Field(default=1.0, description="that it takes to a first token, as it states")
    tpot_s: fields.Latency = Field(default=0.02, description="per further token, as it states")
    in_flight_count: fields.PositiveCount = Field(
        default=16, description="requests that it is sent at once: what bounds its bill"
    )
    classes: Annotated[tuple[fields.Name, ...], Listed, fields.Unsaid("all")] = Field(
        default=(), description="whose requests may go there; none: all"
    )
