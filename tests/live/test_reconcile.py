"""Laws of the controller's decisions, on worlds drawn at random."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from twofold.live.control import reconcile as r

NAMES = ("a", "b", "c")
DIGESTS = ("old", "new")
SEEN = st.builds(
    r.SeenReplica,
    replica_id=st.sampled_from((*NAMES, "stray")),
    digest=st.sampled_from(DIGESTS),
    has_process=st.booleans(),
    has_remains=st.booleans(),
    answers=st.booleans(),
    trouble=st.sampled_from(("", "silent")),
    in_gateway=st.booleans(),
    in_flight_count=st.sampled_from((0, 3)),
    draining_s=st.sampled_from((0.0, 100.0)),
)
WORLD = st.lists(SEEN, unique_by=lambda each: each.replica_id)
WANTED = st.lists(
    st.builds(r.WantedReplica, st.sampled_from(NAMES), st.just("new"), st.booleans()),
    unique_by=lambda each: each.replica_id,
)
GATEWAY = st.builds(
    r.SeenGateway,
    has_process=st.booleans(),
    digest=st.sampled_from(DIGESTS),
    answers=st.booleans(),
    trouble=st.sampled_from(("", "stopped")),
)
WELL = r.SeenReplica("a", "new", has_process=True, answers=True, in_gateway=True)
THERE = r.SeenGateway(has_process=True, digest="new", answers=True)


def asked(wanted: list[r.WantedReplica], seen: list[r.SeenReplica], gateway: r.SeenGateway) -> list[r.Action]:
    return r.actions_of(wanted, seen, "new", gateway, now_s=0.0)


@given(WANTED, WORLD, GATEWAY)
def test_nothing_is_started_and_ended_at_once_nor_started_twice(
    wanted: list[r.WantedReplica], seen: list[r.SeenReplica], gateway: r.SeenGateway
) -> None:
    actions = asked(wanted, seen, gateway)
    changed = [each.replica_id for each in actions if isinstance(each, r.StartReplica | r.EndReplica)]
    assert len(changed) == len(set(changed))
    assert sum(isinstance(each, r.StartGateway | r.EndGateway) for each in actions) <= 1
    there = {each.replica_id for each in seen if each.has_process}
    assert not there & {each.replica_id for each in actions if isinstance(each, r.StartReplica)}


@given(WANTED, WORLD, GATEWAY)
def test_nothing_that_serves_is_ended_before_it_is_withdrawn_and_drained(
    wanted: list[r.WantedReplica], seen: list[r.SeenReplica], gateway: r.SeenGateway
) -> None:
    known = {each.replica_id for each in wanted}
    ended = {each.replica_id for each in asked(wanted, seen, gateway) if isinstance(each, r.EndReplica)}
    for each in seen:
        if each.replica_id in ended & known and each.has_process and not each.trouble:
            assert not each.in_gateway and (not each.in_flight_count or each.draining_s > r.DRAIN_S)


@given(WORLD)
def test_a_new_version_takes_at_most_one_serving_replica_at_a_time(seen: list[r.SeenReplica]) -> None:
    wanted = [r.WantedReplica(name, "new") for name in NAMES]
    serving = {each.replica_id for each in seen if r._serves(each)} & set(NAMES)
    out = {each.replica_id for each in asked(wanted, seen, THERE) if isinstance(each, r.Withdraw)}
    assert len(out & serving) <= 1
    if out & serving:
        assert serving == set(NAMES)


def test_what_is_as_it_should_be_is_left_alone() -> None:
    assert asked([r.WantedReplica("a", "new")], [WELL], THERE) == []


@given(WANTED, WORLD, GATEWAY)
def test_every_world_comes_to_what_is_wanted(
    wanted: list[r.WantedReplica], seen: list[r.SeenReplica], gateway: r.SeenGateway
) -> None:
    """A toy machine that does what it is told: whatever it looked like, it ends as wanted, and stays so."""
    world = {each.replica_id: each for each in seen}
    want = {each.replica_id: each for each in wanted}
    for _ in range(40):
        for name, each in world.items():  # time passes: requests end, engines come up
            later = 0.0 if each.in_gateway else 100.0
            up = each.answers or (each.has_process and not each.trouble)
            world[name] = replace(each, draining_s=later, answers=up)
        actions = asked(list(want.values()), list(world.values()), gateway)
        if not actions:
            break
        for action in actions:
            gateway = done(action, want, world, gateway)
    else:
        raise AssertionError((want, world, gateway))
    staying = {name for name, each in want.items() if not each.leaving}
    assert {name for name, each in world.items() if each.has_process or each.in_gateway} == staying
    assert all(r._serves(world[name]) and world[name].digest == "new" for name in staying)
    assert gateway.has_process and gateway.digest == "new" and not gateway.trouble


def done(
    action: r.Action,
    want: dict[str, r.WantedReplica],
    world: dict[str, r.SeenReplica],
    gateway: r.SeenGateway,
) -> r.SeenGateway:
    if isinstance(action, r.StartGateway):
        return r.SeenGateway(has_process=True, digest="new", answers=True)
    if isinstance(action, r.EndGateway):
        world |= {name: replace(each, in_gateway=False) for name, each in world.items()}
        return r.SeenGateway()
    name = action.replica_id
    here = world.get(name, r.SeenReplica(name))
    match action:
        case r.StartReplica():
            here = r.SeenReplica(name, "new", has_process=True, answers=True)
        case r.EndReplica():
            here = replace(here, has_process=False, has_remains=False, answers=False, trouble="")
        case r.Announce():
            here = replace(here, in_gateway=True, in_flight_count=0, draining_s=0.0)
        case r.Withdraw():
            here = replace(here, in_gateway=False, draining_s=100.0)
        case r.Forget():
            del want[name]
    world[name] = here
    return gateway


def test_the_first_restart_is_at_once_and_pauses_double_up_to_a_minute_until_it_has_served() -> None:
    count, pauses = 0, []
    for _ in range(12):
        count, at_s = r.next_failure(count, served_s=0.0, now_s=100.0)
        pauses.append(at_s - 100.0)
    assert pauses[:4] == [0.0, 1.0, 2.0, 4.0]
    assert pauses[-1] == r.BACKOFF_S_MAX
    assert r.next_failure(count, served_s=r.STEADY_S, now_s=0.0) == (1, 0.0)


@given(WANTED, WORLD, GATEWAY)
def test_a_gateway_that_ends_is_left_until_it_has(
    wanted: list[r.WantedReplica], seen: list[r.SeenReplica], gateway: r.SeenGateway
) -> None:
    actions = asked(wanted, seen, replace(gateway, is_ending=True))
    assert not any(isinstance(each, r.StartGateway | r.EndGateway) for each in actions)
