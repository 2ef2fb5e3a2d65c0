from twofold.policy.gate.events import (
    Cause,
    ReplicaAdded,
    RequestArrived,
    ResponseEnded,
    ResponseFailed,
    ResponseStarted,
    Send,
)
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, GateSettings


def test_a_replica_is_in_doubt_after_a_failure_until_it_begins_an_answer() -> None:
    gate = Gate(GateSettings(), Beliefs(0.001, 0.01))
    for name in ("a", "b", "c"):
        gate.handle(ReplicaAdded(name, 8), 0.0)

    def sent(event: RequestArrived | ResponseFailed) -> str:
        (effect,) = [each for each in gate.handle(event, 1.0) if isinstance(each, Send)]
        return effect.replica_id

    def answered(request_id: int, attempt: int) -> None:
        gate.handle(ResponseStarted(request_id, attempt), 1.0)
        gate.handle(ResponseEnded(request_id, 10, None, attempt), 1.0)

    assert sent(RequestArrived(10, 10)) == "a" and sent(ResponseFailed(1, Cause.ERROR)) == "b"
    answered(1, 2)
    assert [sent(RequestArrived(10, tokens)) for tokens in (10, 10, 500)] == ["a", "b", "c"]
    assert sent(ResponseFailed(3, Cause.ERROR)) == "c"  # though "a" has less to do
    answered(3, 2)
    answered(2, 1)
    assert [sent(RequestArrived(10, 10)) for _ in range(2)] == ["a", "b"]
    assert sent(ResponseFailed(6, Cause.ERROR)) == "a"
