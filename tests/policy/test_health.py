from twofold.policy import (
    Beliefs,
    Cause,
    Gate,
    GateSettings,
    ReplicaAdded,
    RequestArrived,
    ResponseEnded,
    ResponseFailed,
    ResponseStarted,
    Send,
)


def test_a_replica_is_in_doubt_after_a_failure_until_it_begins_an_answer() -> None:
    gate = Gate(GateSettings(), Beliefs(0.001, 0.01))
    for name in ("a", "b"):
        gate.handle(ReplicaAdded(name, 1), 0.0)

    def sent(event: RequestArrived | ResponseFailed) -> str:
        (effect,) = [each for each in gate.handle(event, 1.0) if isinstance(each, Send)]
        return effect.replica_id

    assert sent(RequestArrived(10, 10)) == "a"
    assert sent(ResponseFailed(1, Cause.ERROR)) == "b"
    gate.handle(ResponseStarted(1, 2), 1.0)
    gate.handle(ResponseEnded(1, 10, None, 2), 1.0)
    assert sent(RequestArrived(10, 10)) == "b"  # of two that are idle, the one without a doubt
    assert sent(RequestArrived(10, 10)) == "a"  # which is full
    gate.handle(ResponseStarted(3), 1.0)
    for request_id in (2, 3):
        gate.handle(ResponseEnded(request_id, 10), 1.0)
    assert sent(RequestArrived(10, 10)) == "a"
