"""What the driver's own tool tells of NVIDIA accelerators. A figure that it does not tell is None or none."""

import os
import subprocess

TOOL, TIMEOUT_S = "nvidia-smi", 5.0
VISIBLE = "CUDA_VISIBLE_DEVICES"
REASONS = (
    "clocks_event_reasons.active",
    "clocks_throttle_reasons.active",
)  # as drivers of today and before say
SLOWING = (
    0x04 | 0x08 | 0x20 | 0x40 | 0x80
)  # bits of them: a limit of power, the board, heat twice, its supply


def watts() -> float | None:
    """What all accelerators draw now."""
    drawn = told("power.draw")
    return sum(drawn) if drawn else None


def limit_w() -> float | None:
    """What one may draw: the least of all limits, where they differ."""
    return min(told("power.limit"), default=None)


def accelerator_count() -> int:
    """Accelerators that a process here sees."""
    return len(accelerators())


def accelerators() -> list[str]:
    """By number or name: those that the tool lists, unless the environment names fewer.

    An empty name hides all of them, and so does one that the driver does not know, as it does from CUDA.
    """
    listed = _lines("index")
    named = os.environ.get(VISIBLE)
    if named is None:
        return listed
    seen: list[str] = []
    for name in (each.strip() for each in named.split(",")):
        if not name or name.startswith("-") or (name.isdigit() and int(name) >= len(listed)):
            break  # CUDA stops at the first that is none
        seen.append(name)
    return seen[: len(listed)]


def numbers() -> frozenset[int] | None:
    """The numbers that the tool lists, whatever the environment names; None where it does not answer."""
    listed = told("index")
    return frozenset(map(int, listed)) if listed else None


def told(name: str, *words: str) -> list[float]:
    """A figure of every accelerator, or of those that more words of the tool choose; none where one of them
    does not tell it."""
    try:
        return [float(line) for line in _lines(name, *words)]
    except ValueError:
        return []


def of_seen() -> tuple[str, ...]:
    """The words of the tool that choose the accelerators which a process here sees."""
    return () if os.environ.get(VISIBLE) is None else (f"--id={','.join(accelerators())}",)


def is_slowed(*words: str) -> bool | None:
    """Whether heat or power slows one of them now; None where the driver does not tell why clocks are low."""
    lines = next(filter(None, (_lines(name, *words) for name in REASONS)), [])
    try:
        return any(int(line, 16) & SLOWING for line in lines) if lines else None
    except ValueError:
        return None


def _lines(name: str, *words: str) -> list[str]:
    command = [TOOL, *words, f"--query-gpu={name}", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in said.splitlines() if line.strip()]
