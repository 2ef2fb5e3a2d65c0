"""Who is served next of those that the gate holds. Mutable; bounded by what is held, and by its settings.

Between priorities   The first that waits, but each later one gets `lower_share` of the tokens meanwhile.
Between classes      of one priority: shares of the tokens by their weights.
Between tenants      of one class: equal shares of the tokens, however many requests each of them has.
Within a tenant      First come, first served; but who waits for a model that has no room keeps nobody waiting
                     who asked for another.

Shares are kept by start-time fair queueing: next is what began earliest on a clock that runs by tokens.

Source  Goyal, Vin & Cheng 1996, "Start-time fair queueing": over any time two backlogged flows' tokens per
        weight differ by at most one largest request of each.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from twofold.policy.gate.settings import ClassSettings, QueueSettings

SWEEP_COUNT_MIN = 64  # flows or stale ends below which tidying is not worth its time
SERVED_MEMORY_COUNT = 200  # requests over which shares of priorities are averaged


@dataclass(slots=True)
class Waiting:
    """One request that is held."""

    key: int
    tokens: int
    start_tokens: float  # on its class's clock
    expires_s: float
    line: "Line"
    flow: "Flow"
    model: str


@dataclass(slots=True)
class Flow:
    """One tenant's requests in one class."""

    waiting: OrderedDict[int, Waiting] = field(default_factory=OrderedDict)  # in order of arrival
    finish_tokens: float = 0.0  # on the class's clock: where its next request begins
    listed: bool = False  # among the class's heads


@dataclass(slots=True)
class Line:
    """One class: its tenants' flows, and its own place among the classes of its priority."""

    settings: ClassSettings
    level: "Level"
    count: int = 0
    tokens: int = 0
    busy_flows: int = 0
    clock_tokens: float = 0.0
    start_tokens: float = 0.0  # of its first request, on its level's clock
    finish_tokens: float = 0.0
    flows: dict[str, Flow] = field(default_factory=dict)
    heads: list[tuple[float, int, Flow]] = field(default_factory=list)
    models: dict[str, int] = field(default_factory=dict)  # requests that wait, by the model that they name
    sweep_count: int = SWEEP_COUNT_MIN


@dataclass(slots=True)
class Level:
    """One priority."""

    lines: list[Line] = field(default_factory=list)
    count: int = 0
    tokens: int = 0
    clock_tokens: float = 0.0
    credit_tokens: float = 0.0  # that it may be served although earlier priorities wait
    served_share: float = 0.0  # of the tokens lately served


class FairQueue:
    """Holds requests by their ids. `head` names the next, `serve` takes it out; `lines` are for reading."""

    def __init__(self, settings: QueueSettings, classes: Sequence[ClassSettings]) -> None:
        self._settings = settings
        self._waiting: dict[int, Waiting] = {}
        self._ends: list[tuple[float, int]] = []  # (expires_s, key); some are stale
        levels: dict[int, Level] = {}
        self.lines: dict[str, Line] = {}  # by class
        for each in classes:
            level = levels.setdefault(each.priority, Level())
            line = self.lines[each.name] = Line(each, level)
            level.lines.append(line)
        self._levels = [levels[priority] for priority in sorted(levels)]

    def goes_behind(self, class_name: str, model: str) -> bool:
        """Whether requests of the class wait that a place for this model would do for."""
        models = self.lines[class_name].models
        return bool(models) and (model in models or "" in models)

    def waits_for_others(self, class_name: str, models: Collection[str]) -> bool:
        """Whether requests of the class wait that name none of these models."""
        return any(model not in models for model in self.lines[class_name].models)

    def push(
        self, key: int, class_name: str, tenant: str, tokens: int, expires_s: float, model: str = ""
    ) -> None:
        """Hold a request; `tokens` is what it is expected to cost."""
        line = self.lines[class_name]
        flow = line.flows.get(tenant)
        if flow is None:
            if len(line.flows) >= line.sweep_count:
                self._sweep(line)
            flow = line.flows[tenant] = Flow()
        start = max(line.clock_tokens, flow.finish_tokens)
        flow.finish_tokens = start + tokens
        if not flow.waiting:
            line.busy_flows += 1
        waiting = Waiting(key, tokens, start, expires_s, line, flow, model)
        flow.waiting[key] = self._waiting[key] = waiting
        if not flow.listed:
            flow.listed = True
            heappush(line.heads, (start, key, flow))
        if line.count == 0:
            line.start_tokens = max(line.level.clock_tokens, line.finish_tokens)
        self._count(waiting, 1)
        heappush(self._ends, (expires_s, key))

    def head(self, blocked: Collection[str] = ()) -> tuple[str, int] | None:
        """Class and id of who is next, but for classes that cannot be served now."""
        best: Line | None = None
        for level in self._levels:
            if not level.count:
                continue
            line = _first_line(level, blocked)
            if line is None:
                continue
            if best is None:
                best = line
            elif level.credit_tokens >= _first(line).tokens:
                best = line
                break
        return None if best is None else (best.settings.name, _first(best).key)

    def head_of_those(
        self, class_name: str, may: Callable[[str], bool], but_models: Collection[str] = ()
    ) -> int | None:
        """Who of a class is next among the tenants that `may` be served, and asks for none of these models.

        None: nobody of them waits.
        """
        nexts = []
        for tenant, flow in self.lines[class_name].flows.items():
            waits = flow.waiting.values()
            first = next((each for each in waits if not but_models or each.model not in but_models), None)
            if first is not None and may(tenant):
                nexts.append((first.start_tokens, first.key))
        return min(nexts)[1] if nexts else None

    def waits(self, class_name: str, tenant: str) -> bool:
        """Whether requests of this tenant and class are held."""
        flow = self.lines[class_name].flows.get(tenant)
        return flow is not None and bool(flow.waiting)

    def serve(self, key: int) -> None:
        """Take out a request that `head` or `head_of_those` named, and charge it."""
        waiting = self._waiting[key]
        line, level = waiting.line, waiting.line.level
        line.clock_tokens = max(line.clock_tokens, waiting.start_tokens)
        level.clock_tokens = max(level.clock_tokens, line.start_tokens)
        line.finish_tokens = line.start_tokens + waiting.tokens / line.settings.weight
        line.start_tokens = line.finish_tokens
        self._take(waiting)
        for number, other in enumerate(self._levels):
            other.served_share += ((other is level) - other.served_share) / SERVED_MEMORY_COUNT
            if number and other.count:
                gained = self._settings.lower_share * waiting.tokens
                other.credit_tokens = min(other.credit_tokens + gained, float(other.tokens))
        level.credit_tokens = max(level.credit_tokens - waiting.tokens, 0.0)

    def remove(self, key: int) -> None:
        """Its client left, or it expired: it is not charged."""
        waiting = self._waiting[key]
        waiting.flow.finish_tokens -= waiting.tokens
        self._take(waiting)

    def settle(self, class_name: str, tenant: str, tokens: int) -> None:
        """An answer was so many tokens shorter than was charged."""
        flow = self.lines[class_name].flows.get(tenant)
        if flow is not None:
            flow.finish_tokens -= tokens

    def expired(self, now_s: float) -> list[int]:
        """Whose time is up, earliest first. They stay until they are removed."""
        keys = []
        while self._ends and self._ends[0][0] <= now_s:
            _, key = heappop(self._ends)
            if key in self._waiting:
                keys.append(key)
        return keys

    def next_expiry_s(self) -> float | None:
        """When the time of the next is up."""
        while self._ends and self._ends[0][1] not in self._waiting:
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def longest_but(self, class_name: str, tenant: str) -> int | None:
        """The last request of the tenant with most of them; None if it is this tenant that has its share."""
        line = self.lines[class_name]
        own = line.flows.get(tenant)
        if (len(own.waiting) + 1 if own else 1) * (line.busy_flows + (not own)) > line.count:
            return None
        longest = max(line.flows.values(), key=lambda flow: len(flow.waiting))
        return next(reversed(longest.waiting))

    def tokens_ahead(self, class_name: str, tenant: str) -> tuple[float, float]:
        """What would be served before a new request, and the share of the service that this may count on.

        Why     Its flow's clock is ahead of its class's by what the tenant already waits for; until the
                class's clock is there, every busy flow is served as much, or all that it has. Classes beside
                it get their weights' part of the same time. Later requests of earlier priorities go first:
                they are expected to ask for the share that they lately had.
        """
        line = self.lines[class_name]
        flow, level = line.flows.get(tenant), line.level
        ahead = max(0.0, flow.finish_tokens - line.clock_tokens) if flow else 0.0
        others = line.busy_flows - (1 if flow and flow.waiting else 0)
        ahead = min(float(line.tokens), ahead * (others + 1))
        if level.count > line.count:
            weights = sum(each.settings.weight for each in level.lines if each.count or each is line)
            ahead = min(ahead + level.tokens - line.tokens, ahead * weights / line.settings.weight)
        earlier_share = 0.0
        for earlier in self._levels:
            if earlier is level:
                break
            ahead += earlier.tokens
            earlier_share += earlier.served_share
        return ahead, max(1.0 - earlier_share, self._settings.lower_share, 1.0 / SERVED_MEMORY_COUNT)

    def _count(self, waiting: Waiting, sign: int) -> None:
        line, tokens = waiting.line, sign * waiting.tokens
        line.count += sign
        line.tokens += tokens
        line.level.count += sign
        line.level.tokens += tokens
        count = line.models.get(waiting.model, 0) + sign
        if count:
            line.models[waiting.model] = count
        else:
            del line.models[waiting.model]

    def _take(self, waiting: Waiting) -> None:
        line = waiting.line
        del self._waiting[waiting.key], waiting.flow.waiting[waiting.key]
        if not waiting.flow.waiting:
            line.busy_flows -= 1
        self._count(waiting, -1)
        if not line.count:  # nobody waits: who was served how much no longer matters
            line.flows.clear()
            line.heads.clear()
            line.clock_tokens, line.sweep_count = 0.0, SWEEP_COUNT_MIN
        if not line.level.count:
            line.level.clock_tokens = line.level.credit_tokens = 0.0
            for each in line.level.lines:
                each.start_tokens = each.finish_tokens = 0.0
        if len(self._ends) > 2 * len(self._waiting) + SWEEP_COUNT_MIN:
            self._ends = [(each.expires_s, each.key) for each in self._waiting.values()]
            heapify(self._ends)

    def _sweep(self, line: Line) -> None:
        """Forget idle tenants whose lead is used up; if there are still too many, all idle ones."""
        line.heads = [head for head in line.heads if head[2].waiting]
        heapify(line.heads)
        idle = [name for name, flow in line.flows.items() if not flow.waiting]
        led = [name for name in idle if line.flows[name].finish_tokens > line.clock_tokens]
        kept = set(led if len(led) <= self._settings.tenant_count_max else ())
        for name in idle:
            line.flows[name].listed = False
            if name not in kept:
                del line.flows[name]
        line.sweep_count = max(SWEEP_COUNT_MIN, 2 * len(line.flows))


def _first_line(level: Level, blocked: Collection[str]) -> Line | None:
    """The class of this priority that is next. HOT: once for each request that is sent."""
    best: Line | None = None
    for line in level.lines:
        if (
            line.count
            and (best is None or line.start_tokens < best.start_tokens)
            and not (blocked and line.settings.name in blocked)
        ):
            best = line
    return best


def _first(line: Line) -> Waiting:
    """The first request of the tenant that is next; heads that are gone are put right on the way."""
    heads = line.heads
    while True:
        _, key, flow = heads[0]
        if not flow.waiting:
            heappop(heads)
            flow.listed = False
            continue
        first = next(iter(flow.waiting.values()))
        if first.key == key:
            return first
        heapreplace(heads, (first.start_tokens, first.key, flow))
