"""Which replica gets a request: first who may take it, then who takes it best.

Who may: healthy replicas of the request's pool, model and version, in its own zone while that has places.
Who: the rule of the settings (`Routing`). A repeat goes where it did not fail. All rules look at every
candidate at most once or twice, and none remembers more than its settings say.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from twofold.policy.gate.chance import mixed
from twofold.policy.gate.fleet_view import FleetView, Replica, Request
from twofold.policy.gate.prefix_index import PrefixIndex
from twofold.policy.gate.settings import Beliefs, Routing, RoutingSettings, pools_for

Rule = Callable[[FleetView, Request, "Group"], Replica | None]

TIERS_MAX = 256  # remembered sets of candidates: clients name models and zones as they like


@dataclass(slots=True)
class Group:
    """Replicas to choose from, in order of their ids. Mutable: the turn of the round robin."""

    replicas: list[Replica]
    by_id: dict[str, Replica] = field(init=False)
    turn_count: int = 0

    def __post_init__(self) -> None:
        self.by_id = {replica.replica_id: replica for replica in self.replicas}


@dataclass(frozen=True, slots=True)
class Tier:
    """Who may take a kind of request: all of them, and those of each zone."""

    everywhere: Group
    by_zone: dict[str, Group]


@dataclass(slots=True)
class Router:
    """Routes by one rule. Mutable: it keeps candidates until `fleet_changed`, sessions, and who cached what.

    `trial_versions` are releases under trial and those rolled back: only requests that are to try a release
    find its replicas.
    """

    rule: Routing
    settings: RoutingSettings
    trial_versions: Collection[str] = ()
    prefixes: PrefixIndex | None = None
    homes: OrderedDict[str, str] = field(default_factory=OrderedDict)  # session -> replica, oldest first
    _tiers: dict[tuple[str, str, str | None], tuple[Tier, ...]] = field(default_factory=dict)
    _choose: Rule = field(init=False)

    def __post_init__(self) -> None:
        self._choose = {
            Routing.LEAST_WORK: lambda view, _, group: least_work(group.replicas, view.beliefs),
            Routing.ROUND_ROBIN: self._in_turn,
            Routing.RANDOM: lambda _, request, group: _first_with_room(group.replicas, self._draw(request)),
            Routing.POWER_OF_TWO: self._less_of_two,
            Routing.PREFIX: self._least_left,
            Routing.SESSION: self._at_home,
        }[self.rule]
        if self.rule is Routing.PREFIX and self.prefixes is None:
            self.prefixes = PrefixIndex(self.settings.prefix_blocks_per_replica_count)

    def fleet_changed(self, gone_id: str | None = None) -> None:
        """A replica came, went, or its health changed; `gone_id`: its cache is lost."""
        self._tiers.clear()
        if gone_id is not None and self.prefixes is not None:
            self.prefixes.forget(gone_id)

    def route(self, view: FleetView, request: Request, now_s: float) -> Replica | None:  # noqa: ARG002 (all decisions look alike)
        """The replica for the request's next attempt; None: nobody who may take it has a place."""
        # HOT: per arrival: bench/routing.py
        tiers = self._tiers.get(("", request.model, request.version)) if self.settings.pools is None else None
        if tiers is not None and len(tiers) == 1 and not request.arrival.zone:
            replica = self._chosen(view, request, tiers[0].everywhere)
        else:
            replica = self._routed(view, request)
        if replica is None and request.version is not None:
            # The release has no place left, or no replica yet: what runs takes its requests.
            request.version = None
            replica = self._routed(view, request)
        return replica

    def _routed(self, view: FleetView, request: Request) -> Replica | None:
        rules, zone = self.settings.pools, request.arrival.zone
        pools = (("", 1.0),) if rules is None else pools_for(rules, request.arrival.class_name)
        for pool, full_fraction in pools:
            tiers = self._tiers_of(view, pool, request.model, request.version)
            if full_fraction < 1:  # in flight over the limits, of who may take the request; 1 if nobody may
                fit = [replica for tier in tiers for replica in tier.everywhere.replicas]
                limit_count = sum(replica.in_flight_limit for replica in fit)
                in_flight_count = sum(replica.in_flight_count for replica in fit)
                if (in_flight_count / limit_count if limit_count else 1.0) > full_fraction:
                    continue
            for tier in tiers:
                near = tier.by_zone.get(zone) if zone and len(tier.by_zone) > 1 else None
                chosen = None if near is None else self._chosen(view, request, near)
                spill = self.settings.zone_spill_fraction
                if chosen is None or chosen.in_flight_count >= spill * chosen.in_flight_limit:
                    chosen = self._chosen(view, request, tier.everywhere)
                if chosen is not None:
                    return chosen
        return None

    def placed(self, request: Request, replica: Replica) -> None:
        """The request was sent there: its session lives there, and its prompt will be cached there."""
        if self.prefixes is not None and request.arrival.prefix_blocks:
            self.prefixes.insert(replica.replica_id, request.arrival.prefix_blocks)
        if self.rule is Routing.SESSION and request.arrival.session_id:
            homes = self.homes
            # A spilled request does not move its session; one whose home is gone does.
            if request.arrival.session_id not in homes:
                homes[request.arrival.session_id] = replica.replica_id
            homes.move_to_end(request.arrival.session_id)
            if len(homes) > self.settings.session_limit_count:
                homes.popitem(last=False)

    def _chosen(self, view: FleetView, request: Request, group: Group) -> Replica | None:
        request.hit_tokens = 0
        if request.sent_count:
            return _elsewhere(group.replicas, request.attempt.replica.replica_id, view.beliefs)
        return self._choose(view, request, group)

    def _in_turn(self, _view: FleetView, _request: Request, group: Group) -> Replica | None:
        group.turn_count += 1
        return _first_with_room(group.replicas, group.turn_count - 1)

    def _draw(self, request: Request) -> int:
        return mixed(self.settings.seed, request.request_id)

    def _less_of_two(self, view: FleetView, request: Request, group: Group) -> Replica | None:
        """The one with less work of two drawn ones; if both are full, any with a place."""
        fit, draw = group.replicas, self._draw(request)
        count = len(fit)
        if count < 2:
            return least_work(fit, view.beliefs)
        first = draw % count
        second = (first + 1 + (draw >> 32) % (count - 1)) % count
        pair = [fit[first], fit[second]] if first < second else [fit[second], fit[first]]
        return least_work(pair, view.beliefs) or least_work(fit, view.beliefs)

    def _least_left(self, view: FleetView, request: Request, group: Group) -> Replica | None:
        """Least predicted seconds until the answer begins and of what shares its steps.

        Formula  (unread + input - hit) · input_token_s + output_limit / in_flight_limit · output_token_s
        Why      prefills run one after the other; answers run `in_flight_limit` at a time, so each token that
                 is still to be written delays the others by that part of a step.
        """
        assert self.prefixes is not None
        beliefs = view.beliefs
        input_s, output_s = beliefs.input_token_s, beliefs.output_token_s
        best: Replica | None = None
        best_s = 0.0
        # HOT: per arrival and replica; asking the hits for each was 1.4 times slower: bench/routing.py
        for replica in group.replicas:
            limit = replica.in_flight_limit
            if replica.in_flight_count < limit:
                left_s = (
                    replica.unread_input_tokens * input_s + replica.output_limit_tokens * output_s / limit
                )
                if best is None or left_s < best_s:
                    best, best_s = replica, left_s
        if best is None or not request.arrival.prefix_blocks:
            return best
        # The last token of a prompt is always computed: from it comes the first token of the answer.
        most_tokens = max(request.input_tokens - 1, 0)
        by_id, block_tokens = group.by_id, self.settings.prefix_block_tokens
        for replica_id, depth in self.prefixes.hits(request.arrival.prefix_blocks).items():
            holder = by_id.get(replica_id)
            if holder is None:
                continue
            limit = holder.in_flight_limit
            if holder.in_flight_count >= limit:
                continue
            hit_tokens = depth * block_tokens
            if hit_tokens > most_tokens:
                hit_tokens = most_tokens
            unread_tokens = holder.unread_input_tokens - hit_tokens
            left_s = unread_tokens * input_s + holder.output_limit_tokens * output_s / limit
            if left_s < best_s or holder is best:
                best, best_s, request.hit_tokens = holder, left_s, hit_tokens
        return best

    def _at_home(self, view: FleetView, request: Request, group: Group) -> Replica | None:
        home_id = self.homes.get(request.arrival.session_id) if request.arrival.session_id else None
        if home_id is None:
            return least_work(group.replicas, view.beliefs)
        known = view.replicas.get(home_id)
        if known is None or not known.healthy:
            del self.homes[request.arrival.session_id]
        elif home_id in group.by_id and known.has_room:
            busy_count = sum([replica.in_flight_count for replica in group.replicas])
            mean = busy_count / len(group.replicas)
            if known.in_flight_count <= self.settings.session_spill_ratio * mean + 1:
                return known
        return least_work(group.replicas, view.beliefs)

    def _tiers_of(self, view: FleetView, pool: str, model: str, version: str | None) -> tuple[Tier, ...]:
        """Who may take such requests: first who holds the model, then who names none.

        A smaller model is asked by its name alone, and by every pool.
        """
        key = (pool, model, version)
        tiers = self._tiers.get(key)
        if tiers is None:
            if len(self._tiers) >= TIERS_MAX:
                self._tiers.clear()
            fit = [
                replica
                for _, replica in sorted(view.replicas.items())
                if replica.healthy
                and (self.settings.pools is None or replica.added.pool == pool or view.is_smaller(replica))
                and (version is not None or replica.added.version not in self.trial_versions)
                and version in (None, replica.added.version)
            ]
            parts = [[r for r in fit if r.added.model == each] for each in (model, "")]
            if not model:
                parts = [[r for r in fit if not view.is_smaller(r)]]
            tiers = self._tiers[key] = tuple(_tier(part) for part in parts if part)
        return tiers


def least_work(fit: list[Replica], beliefs: Beliefs) -> Replica | None:
    """The replica with a place and the least work; of equals the first, which has the smaller id."""
    # HOT: per arrival and replica; calling `has_room` and `work_s` was 2 times slower: bench/routing.py
    input_s, output_s = beliefs.input_token_s, beliefs.output_token_s
    best: Replica | None = None
    best_s = 0.0
    for replica in fit:
        if replica.in_flight_count < replica.in_flight_limit:
            work_s = replica.unread_input_tokens * input_s + replica.output_limit_tokens * output_s
            if best is None or work_s < best_s:
                best, best_s = replica, work_s
    return best


def _elsewhere(fit: list[Replica], failed_id: str, beliefs: Beliefs) -> Replica | None:
    """Where a request is repeated: never where it just failed, unless no other replica is healthy.

    The least doubted replica comes first, before the one with the least work: of two sick replicas and a
    sound one, the sick ones are idle, and would pass every request to each other.
    """
    others = [replica for replica in fit if replica.replica_id != failed_id]
    if others:
        with_room = (replica for replica in others if replica.has_room)
        return min(with_room, key=lambda r: (r.doubted_count, r.work_s(beliefs), r.replica_id), default=None)
    return next((replica for replica in fit if replica.has_room), None)


def _first_with_room(fit: list[Replica], start: int) -> Replica | None:
    """The first with a place from `start` on, around the circle."""
    count = len(fit)
    for step in range(count):
        replica = fit[(start + step) % count]
        if replica.in_flight_count < replica.in_flight_limit:
            return replica
    return None


def _tier(replicas: list[Replica]) -> Tier:
    zones: dict[str, list[Replica]] = {}
    for replica in replicas:
        zones.setdefault(replica.added.zone, []).append(replica)
    return Tier(Group(replicas), {zone: Group(part) for zone, part in zones.items()})
