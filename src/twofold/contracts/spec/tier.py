"""What a spec says about CPU servers that requests pass before an engine: tokenising, retrieval, lookups."""

import re
from typing import Annotated

from pydantic import Field, model_validator

from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, need_one, refusal
from twofold.contracts.spec.servers import PLAIN_URL

LOCAL_URL = re.compile(r"http://(?:localhost|127\.0\.0\.1):(\d{1,5})(?:/|$)")
USUAL_P95, GOAL_WORKS = 3.0, 5.0  # times the mean: what exponential work has, and room to wait beside it


class Tier(Part):
    """CPU servers that every request passes before an engine: tokenising, retrieval, lookups. One of `work`,
    `rate`. They have replicas, places and a goal of their own, as engines have. The key is `before`, which
    says where they stand: `stages` are those of a release, and what comes after an answer is not planned.
    """

    work_s: fields.Latency | None = Field(
        default=None, description="of one core that a request takes, the mean"
    )
    rate_per_s: fields.Rate | None = Field(
        default=None, description="instead of `work`: requests of one replica, all cores busy, as measured"
    )
    work_p95_s: fields.Latency | None = Field(
        default=None, description="95th percentile of `work`; three times the mean where it is not given"
    )
    cores: fields.PositiveCount = Field(default=1, description="of one replica")
    replicas: fields.PositiveCount | None = Field(
        default=None, description="how many; none: as many as `urls`, else as few as keep `p95` at the peak"
    )
    limit_count: fields.PositiveCount | None = Field(
        default=None, description="requests that one replica has at once; none: one for each core"
    )
    queue_count: fields.PositiveCount = Field(
        default=1000, description="requests that wait for a place; more are refused"
    )
    p95_s: fields.Latency | None = Field(
        default=None, description="goal, waiting and work; five times the mean work where it is not given"
    )
    on: fields.AcceleratorName | None = Field(
        default=None, description="a processor of the catalogue, by whose price its cores are priced"
    )
    urls: Annotated[tuple[fields.Text, ...], Listed] = Field(
        default=(), description="where `up` finds its replicas, one URL each; POST gets the request's body"
    )
    command: fields.Text | None = Field(
        default=None,
        description="that `up` starts each of `urls` with, `{port}` being the URL's; none: they run",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Tier":
        need_one("a tier", {"work": self.work_s, "rate": self.rate_per_s})
        for url in self.urls:
            if not PLAIN_URL.fullmatch(url):
                raise refusal("`urls` has what is no URL", "write scheme, host, port and path alone")
        if self.urls and self.replicas not in (None, len(self.urls)):
            what = f"`replicas: {self.replicas}`, and `urls` names {len(self.urls)}"
            raise refusal(what, "name a URL for each replica, or leave `replicas` out")
        if self.command is not None and not (self.urls and all(map(_is_local, self.urls))):
            hint = "write `urls` such as `http://127.0.0.1:9001/look-up`, one for each server"
            raise refusal("`command` starts servers on this machine, at the ports of `urls`", hint)
        if self.command is not None and "{port}" not in self.command:
            raise refusal("`command` does not say at which port", "write `{port}` where it takes it")
        if self.late_s < self.mean_s:
            raise refusal("`work_p95` is below the mean work of a request")
        if self.goal_s <= self.late_s:
            hint = "promise more, or say by `work_p95` that requests differ less"
            raise refusal("`p95` is no more than a request takes on a free core at that quantile", hint)
        return self

    @property
    def mean_s(self) -> float:
        """Seconds of one core that a request takes."""
        return self.work_s or self.cores / (self.rate_per_s or 1.0)

    @property
    def late_s(self) -> float:
        """The 95th percentile of the same."""
        return self.work_p95_s or USUAL_P95 * self.mean_s

    @property
    def goal_s(self) -> float:
        """Within which 95 % of the requests are through."""
        return self.p95_s or GOAL_WORKS * self.mean_s

    @property
    def limit(self) -> int:
        """Requests that one replica has at once."""
        return self.limit_count or self.cores


def _is_local(url: str) -> bool:
    found = LOCAL_URL.match(url)
    return found is not None and 0 < int(found[1]) < 2**16
