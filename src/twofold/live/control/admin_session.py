"""The controller's connection to the gateway's second server, without waiting for what is silent."""

from pathlib import Path
from typing import Any

import aiohttp

from twofold.live.control.admin_client import TIMEOUT_S, admin_address


class AdminClient:
    """The same without waiting, for the controller. Mutable; lives in one event loop."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._session = aiohttp.ClientSession(trust_env=False)

    async def close(self) -> None:
        await self._session.close()

    async def get(self, path: str, timeout_s: float = TIMEOUT_S) -> Any:
        """What is answered; None when nothing is."""
        return await self._ask("GET", path, None, timeout_s)

    async def tell(self, told: list[dict[str, Any]]) -> bool:
        """Whether the gateway took these events."""
        return await self._ask("POST", "/events", {"events": told}, TIMEOUT_S) is not None

    async def _ask(self, method: str, path: str, data: Any, timeout_s: float) -> Any:
        address = admin_address(self._state)
        if address is None:
            return None
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            asked = self._session.request(
                method, address.url + path, json=data, headers=address.headers, timeout=limit
            )
            async with asked as answer:
                return await answer.json() if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
