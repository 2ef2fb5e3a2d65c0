"""The block BUILDING and its tables: within 100 columns, a dozen lines, and every number from the plan."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

NAMES = ("assistant", "moe", "portfolio")


def block(text: str) -> list[str]:
    """From the heading to the empty line behind it."""
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("BUILDING"))
    last = next(index for index in range(first, len(lines)) if not lines[index].strip())
    return lines[first:last]


@pytest.mark.parametrize("name", NAMES)
def test_the_block_is_short_and_narrow(name: str, ask: Callable[[str], Any]) -> None:
    lines = block(ask(f"twofold plan examples/{name} --details").text)
    assert 5 <= len(lines) <= 11
    assert all(len(line) <= 100 for line in lines)
    assert re.match(r"BUILDING   for the fleets above, [\d,]+ servers?: ", lines[0])
    heads = [line[:12].strip() for line in lines if line[:12].strip()]
    assert {"year", "sites"} <= set(heads)


def test_details_have_every_table_within_100_columns(ask: Callable[[str], Any]) -> None:
    text = ask("twofold plan examples/assistant --details").text
    for title in ("RACKS", "HEAT", "COOLING", "SERVERS", "NETWORK", "STORAGE", "POWER", "CAPPING", "CARBON"):
        assert f"\n{title} " in text or f"\n{title}\n" in text, title
    for title in ("SITES", "USERS", "PROVIDER"):
        assert f"\n{title} " in text, title
    assert all(len(line) <= 100 for line in text.splitlines())


def test_what_the_block_says_stands_in_the_data(ask: Callable[[str], Any]) -> None:
    whole = ask("twofold plan examples/assistant --details").text
    text = " ".join(" ".join(block(whole)).split())
    data = json.loads(ask("twofold plan examples/assistant --json").out)["building"]
    assert f"{len(data['heat'])} racks" in text
    for group in data["racks"]:
        assert f"{group['name']} {group['node_count']} × {group['node']} {group['rack_count']}" in text
    feed = max(data["power"]["feeds"], key=lambda each: each["rack_w"])
    assert f"{round(100 * feed['load_alone_fraction'])} % with one side lost" in whole
    for head in ("heat", "network", "storage", "power", "year"):
        assert f"\n  {head} " in whole[whole.index("MORE BUILDING") :]
