"""When answers get worse for the sake of being given at all, and when better again. Mutable, small."""

from dataclasses import dataclass
from enum import IntEnum

from twofold.policy.gate.settings import ClassKind, ClassSettings, DegradationSettings

MEMORY_COUNT = 50  # arrivals over which pressure is taken


class Level(IntEnum):
    """What is done at a level, besides all that is done at those below it."""

    NORMAL = 0
    NO_BULK = 1
    SHORTER = 2
    SMALLER = 3


@dataclass(slots=True)
class Ladder:
    """One level at a time, each after a lasting cause: one that flickers changes nothing."""

    settings: DegradationSettings
    level: int = 0
    pressed_fraction: float = 0.0  # of the arrivals lately: had to wait, or were refused
    pressed_since_s: float | None = None
    calm_since_s: float | None = None

    def arrived(self, pressed: bool) -> None:
        """A request that is not shed came."""
        self.pressed_fraction += (pressed - self.pressed_fraction) / MEMORY_COUNT

    def tick(self, held_count: int, in_flight_count: int, place_count: int, now_s: float) -> bool:
        """Whether the level changed; to be called every so often."""
        settings = self.settings
        calm = not held_count and in_flight_count < settings.calm_fraction * place_count
        pressed = not calm and self.pressed_fraction > settings.pressure_fraction
        self.calm_since_s = _since(self.calm_since_s, calm, now_s)
        self.pressed_since_s = _since(self.pressed_since_s, pressed, now_s)
        step = 0
        if self.pressed_since_s is not None and now_s - self.pressed_since_s >= settings.raise_after_s:
            step = 1 if self.level < settings.level_max else 0
        elif self.calm_since_s is not None and now_s - self.calm_since_s >= settings.lower_after_s:
            step = -1 if self.level else 0
        if not step:
            return False
        self.level += step
        self.pressed_since_s = self.calm_since_s = None  # what a step does must show before the next
        self.pressed_fraction = 0.0
        return True


def is_shed(level: int, each: ClassSettings) -> bool:
    """Whether requests of a class are refused at a level."""
    return level >= Level.NO_BULK and each.kind is ClassKind.BULK


def shortened_tokens(level: int, each: ClassSettings, output_limit_tokens: int) -> int:
    """The output limit that an answer keeps at a level; one token at least, where it had any."""
    if level < Level.SHORTER or each.output_fraction_min >= 1.0:
        return output_limit_tokens
    return min(output_limit_tokens, max(1, int(output_limit_tokens * each.output_fraction_min)))


def smaller_model(level: int, each: ClassSettings) -> str:
    """The model that may answer instead at a level; "": none."""
    return each.smaller_model if level >= Level.SMALLER else ""


def _since(since_s: float | None, holds: bool, now_s: float) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else since_s
