"""What clients say of a request reaches the gate; what they may not say is refused."""

from dataclasses import replace

import pytest

from twofold.live.gateway.gateway_config import GatewayLimits
from twofold.live.gateway.openai_requests import CHAT, COMPLETIONS, Caller, Problem, read_request
from twofold.live.gateway.request_facts import BLOCKS_MAX, RequestFacts
from twofold.policy.gate.events import RequestArrived
from twofold.policy.gate.settings import ClassSettings, GateSettings, Routing, RoutingSettings

CLASSES = (ClassSettings("chat"), ClassSettings("night"))
USUAL = GateSettings(classes=CLASSES)
PREFIX = GateSettings(routing=Routing.PREFIX, routes=RoutingSettings(prefix_block_tokens=4))
WHO = Caller("blue", 2)


def arrival(
    headers: dict[str, str], body: str = '{"prompt": "a"}', gate: GateSettings = USUAL
) -> RequestArrived | Problem:
    path = CHAT if "messages" in body else COMPLETIONS
    request = read_request(path, body.encode(), GatewayLimits())
    assert not isinstance(request, Problem)
    facts = RequestFacts(gate, 4.0)
    return facts.arrival(request, WHO, [(k.encode(), v.encode()) for k, v in headers.items()], 100.0)


def test_headers_say_class_session_zone_and_deadline() -> None:
    said = {"class": "night", "session": "s1", "zone": "east", "deadline": "2.5"}
    found = arrival({f"x-twofold-{name}": value for name, value in said.items()})
    assert isinstance(found, RequestArrived)
    assert (found.class_name, found.session_id, found.zone) == ("night", "s1", "east")
    assert (found.deadline_s, found.tenant, found.retry_count, found.model) == (102.5, "blue", 2, "")
    silent = arrival({"user-agent": "curl"})
    assert isinstance(silent, RequestArrived) and silent.prompt_digest
    said = replace(silent, prompt_digest="")
    assert said == RequestArrived(1, 256, "blue", retry_count=2)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("class", "moon", "has: chat, night"),
        ("class", "", "has: chat, night"),
        *(("deadline", each, "seconds from now") for each in ("soon", "0", "-1", "nan", "inf", "1e9", "")),
        ("session", "s" * 200, "at most 128 bytes"),
    ],
)
def test_what_a_header_may_not_say_is_refused_by_its_name(name: str, value: str, said: str) -> None:
    refused = arrival({f"x-twofold-{name}": value})
    assert isinstance(refused, Problem) and refused.status == 400
    assert refused.field == f"x-twofold-{name}" and said in refused.message


def blocks(body: str) -> tuple[int, ...]:
    found = arrival({}, body, PREFIX)
    assert isinstance(found, RequestArrived)
    return found.prefix_blocks


def test_prompts_share_as_many_blocks_as_they_begin_alike() -> None:
    """A block is four tokens, 16 bytes of text."""
    first, second = blocks(f'{{"prompt": "{"a" * 40}"}}'), blocks(f'{{"prompt": "{"a" * 33 + "b" * 40}"}}')
    assert (len(first), len(second)) == (2, 4) and first == second[:2]
    other = blocks(f'{{"prompt": "{"b" + "a" * 39}"}}')
    assert not set(first) & set(other)
    ids, more = blocks('{"prompt": [1, 2, 3, 4, 5]}'), blocks('{"prompt": [1, 2, 3, 4, 9, 9, 9, 9]}')
    assert len(ids) == 1 and ids == more[:1]
    turn = '{"role": "user", "content": "tell me a long story"}'
    once, twice = blocks(f'{{"messages": [{turn}]}}'), blocks(f'{{"messages": [{turn}, {turn}]}}')
    assert once and once == twice[: len(once)] and len(twice) > len(once)
    assert len(blocks(f'{{"prompt": "{"a" * 200_000}"}}')) == BLOCKS_MAX


def test_without_prefix_routing_nothing_is_hashed() -> None:
    found = arrival({}, f'{{"prompt": "{"a" * 400}"}}')
    assert isinstance(found, RequestArrived) and found.prefix_blocks == ()
