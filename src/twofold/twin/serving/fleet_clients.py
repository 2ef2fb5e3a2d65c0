"""How clients behave: when one asks again, when it stops waiting, and how a session goes on."""

from math import inf

from twofold.core.errors import ValueRefusedError
from twofold.policy.gate import events
from twofold.twin.heap import Heap
from twofold.twin.serving.fleet_state import Kind, Purpose, Visit, unit
from twofold.twin.serving.fleet_types import Arrival, ClientModel, FleetWorld, Retry
from twofold.twin.serving.metrics import Metrics

RETRY_S_MIN = 0.001  # even the most naive client takes time to notice
RETRY_AFTER_S_MIN = 1.0  # the header counts whole seconds


class Clients:
    """All clients. Mutable: counts what is still to end."""

    def __init__(self, world: FleetWorld, heap: Heap, metrics: Metrics) -> None:
        self.open_count = 0  # visits, and turns to come
        self.given_count = 0
        self.progress_s = 0.0  # when a visit last began or ended
        self._world, self._heap, self._metrics = world, heap, metrics
        self._class_numbers = {model.name: number for number, model in enumerate(world.classes)}
        self._limits_tokens = [model.output_limit_tokens for model in world.classes]
        patient = (inf, inf)
        self._may_leave = [
            (model.client.patience_s, model.client.answer_patience_s) != patient for model in world.classes
        ]

    def arrived(self, arrival: Arrival, now_s: float) -> Visit:
        """A client wants something. Raises ValueRefusedError for a class that there is not."""
        number = self._class_numbers.get(arrival.class_name)
        if number is None:
            raise ValueRefusedError(
                f"request {self.given_count + 1} is of class `{arrival.class_name}`, which there is not",
                hint=f"classes: {', '.join(name or '(no name)' for name in self._class_numbers)}",
            )
        turns = iter(arrival.turns) if arrival.turns else None
        self.given_count += 1
        asked_tokens = arrival.output_limit_tokens or self._limits_tokens[number]
        if asked_tokens < arrival.output_tokens:
            asked_tokens = arrival.output_tokens
        visit = Visit(self.given_count, arrival, number, asked_tokens, turns)
        self.open_count += 1
        self.progress_s = now_s
        self._metrics.arrived_at(visit)
        if self._may_leave[number]:
            self.patience_ends(visit, -inf)
        return visit

    def next_turn(self, visit: Visit, now_s: float) -> Visit | None:
        """A session goes on after this visit; None: not any more."""
        turn = visit.next_turn
        assert turn is not None
        self.open_count -= 1  # as a turn to come
        if now_s >= self._world.horizon_s:
            return None
        arrival = visit.arrival._replace(
            arrival_s=now_s,
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            prefix_blocks=turn.prefix_blocks,
            turns=visit.turns if visit.turns is not None else (),
            answer_key="",
        )
        return self.arrived(arrival, now_s)

    def finished(self, visit: Visit, output_tokens: int, now_s: float) -> None:
        """It has its whole answer, and may ask on when it has thought."""
        visit.waits = False
        self.open_count -= 1
        self.progress_s = now_s
        self._metrics.finished_at(visit, output_tokens, now_s)
        if visit.next_turn is not None:
            self.open_count += 1
            self._heap.push(now_s + visit.next_turn.think_s, Kind.TURN, visit)

    def refused(self, visit: Visit, effect: events.Refuse, now_s: float) -> None:
        """A request of it was refused; it may ask again."""
        self._metrics.timeline.at(now_s).refused += 1
        self.again_or_never(visit, f"refused: {effect.reason.value}", effect.retry_after_s, now_s)

    def again_or_never(self, visit: Visit, outcome: str, retry_after_s: float | None, now_s: float) -> None:
        """A request of it ended badly: it asks again later, or gives in."""
        client = self._world.classes[visit.class_number].client
        if client.retry is not Retry.NEVER:
            in_s = retry_in_s(client, visit, retry_after_s, self._world.seed, 2.0 * self._world.network_s)
            if in_s is not None:
                self._heap.push(now_s + in_s, Kind.RETRY, visit)
                return
        self.ends(visit, outcome, now_s)

    def again(self, visit: Visit, now_s: float) -> bool:
        """Whether a client that waited after a bad end is still there, and asks anew.

        One whose answer had begun is as patient with the new answer as it was with the first.
        """
        if not visit.waits:
            return False
        self._metrics.retries += 1
        if visit.begun_s is not None:
            visit.begun_s, visit.patient_from_s = None, now_s
            self.patience_ends(visit, -inf)
        return True

    def patience_ends(self, visit: Visit, now_s: float) -> bool:
        """Whether the client has left by now; if it leaves later, it is looked at again then."""
        if not visit.waits:
            return False
        client = self._world.classes[visit.class_number].client
        leaves_s = visit.arrival_s + client.answer_patience_s
        if visit.begun_s is None:
            leaves_s = min(visit.patient_from_s + client.patience_s, leaves_s)
        if leaves_s > now_s and leaves_s < inf:
            self._heap.push(leaves_s, Kind.PATIENCE, visit)
        return leaves_s <= now_s

    def ends(self, visit: Visit, outcome: str, now_s: float) -> None:
        """Without its whole answer."""
        visit.waits = False
        self.open_count -= 1
        self.progress_s = now_s
        self._metrics.ended_at(visit, outcome, now_s)


def retry_in_s(
    client: ClientModel, visit: Visit, retry_after_s: float | None, seed: int, round_trip_s: float
) -> float | None:
    """Seconds until the client asks again; None: it does not.

    Formula  backoff: max(Retry-After, min(base · 2^(tries-1), most)) · (1 + u/2), u uniform in (0, 1)
    Why      jitter after a wait that all were told keeps clients from coming back together.
    """
    if client.retry is Retry.NEVER or visit.tries >= client.attempts_max:
        return None
    least_s = max(RETRY_S_MIN, round_trip_s)
    if client.retry is Retry.IMMEDIATE:
        return least_s
    wait_s = min(client.backoff_s * 2.0 ** min(visit.tries - 1, 60), client.backoff_s_max)
    if retry_after_s is not None:
        wait_s = max(wait_s, RETRY_AFTER_S_MIN, float(-(-retry_after_s // 1)))
    return least_s + wait_s * (1.0 + 0.5 * unit(seed, Purpose.BACKOFF, visit.number, visit.tries))
