"""What a gate is told at its start: its settings, and what it believes of the replicas' speed."""

import math
from dataclasses import dataclass, field

from twofold.policy.gate.request_settings import (
    AdmissionSettings,
    ClassSettings,
    DegradationSettings,
    HedgeSettings,
    LimitSettings,
    QueueSettings,
    RetryBudgetSettings,
)
from twofold.policy.gate.routing_settings import Routing, RoutingSettings
from twofold.policy.gate.scaling_settings import ScalingSettings
from twofold.policy.gate.steering_settings import (
    CanarySettings,
    OutlierSettings,
    RolloutSettings,
    ZoneSettings,
)
from twofold.policy.gate.warm import WarmSettings


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Limits and times of one gate; each may be set in the gateway's configuration. None: off."""

    attempt_limit: int = 2  # sends of one request, the first one counted
    failure_limit: int = 3  # failures within the window that open a circuit; a refused connection does alone
    failure_window_s: float = 10.0
    open_s: float = 1.0  # of the first opening; each further one lasts twice as long …
    open_s_max: float = 30.0  # … up to this
    probe_every_s: float = 0.25
    retry_after_s_max: float = 60.0  # the longest that a refused client is asked to wait
    routing: Routing = Routing.LEAST_WORK
    routes: RoutingSettings = field(default_factory=RoutingSettings)
    classes: tuple[ClassSettings, ...] = ()  # the first is that of requests without a known one
    limits: LimitSettings | None = None
    admission: AdmissionSettings | None = None
    queue: QueueSettings | None = None
    degradation: DegradationSettings | None = None
    retry_budget: RetryBudgetSettings | None = None
    hedge: HedgeSettings | None = None
    outliers: OutlierSettings | None = None
    zones: ZoneSettings | None = None
    scaling: ScalingSettings | None = None
    warm: WarmSettings | None = None  # matters only with `scaling`
    canary: CanarySettings | None = None
    rollout: RolloutSettings | None = None  # matters only with `canary`

    def __post_init__(self) -> None:
        assert self.attempt_limit >= 1 and self.failure_limit >= 1, self
        assert 0 < self.open_s <= self.open_s_max and self.failure_window_s > 0, self
        assert self.probe_every_s > 0 and self.retry_after_s_max > 0, self


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Predicted seconds per token on one replica; only the order and the rough size matter."""

    input_token_s: float
    output_token_s: float
    first_token_s: float = 0.0  # of an answer's first token, beyond the reading of its input

    def __post_init__(self) -> None:
        assert 0 <= self.input_token_s < math.inf and 0 <= self.output_token_s < math.inf, self
        assert 0 <= self.first_token_s < math.inf, self
