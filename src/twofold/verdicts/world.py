"""What claims are judged against: the tables of the product, and what was computed from them so far."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twofold.catalog import Catalog
from twofold.perf import Constants

T = TypeVar("T")


@dataclass(slots=True)
class World:
    """A catalogue and a table of constants. Mutable only in its cache: many claims ask the same questions.

    Another catalogue, or other constants, is another world, in which verdicts may differ.
    """

    catalog: Catalog
    constants: Constants
    _cache: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` returns, computed when first asked for."""
        if key not in self._cache:
            self._cache[key] = compute()
        found: T = self._cache[key]
        return found
