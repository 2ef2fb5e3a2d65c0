"""The way to a gateway's second server: where it is, and one look for screens and for `up`."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONFIG = "gateway/config.json"
TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class AdminAddress:
    """Where it is, and its key."""

    url: str
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """What every request to it is sent with."""
        return bearer(self.key)


def bearer(key: str) -> dict[str, str]:
    """A key as a header."""
    return {"authorization": f"Bearer {key}"}


def admin_address(state: Path) -> AdminAddress | None:
    """As the gateway's own file has it; None while there is none."""
    try:
        admin = json.loads((state / CONFIG).read_text("utf-8"))["admin"]
        return AdminAddress(f"http://127.0.0.1:{admin['port']}", admin["key"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def gateway_state(state: Path) -> dict[str, Any] | None:
    """What the gateway says of itself; None when it does not."""
    address = admin_address(state)
    if address is None:
        return None
    asked = urllib.request.Request(f"{address.url}/state", headers=address.headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            asked, timeout=TIMEOUT_S
        ) as answer:
            data = json.loads(answer.read())
            return data if isinstance(data, dict) else None
    except (urllib.error.URLError, OSError, ValueError):
        return None
