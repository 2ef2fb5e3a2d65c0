"""How much of what a process holds is free inside it: held for itself by the allocator, and in no use."""

import ctypes
from functools import cache
from typing import Any


class MallInfo2(ctypes.Structure):
    """As `mallinfo2(3)` of the GNU C library has it."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@cache
def _mallinfo2() -> Any:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):  # another C library, or one before 2.33
        return None
    function.restype = MallInfo2
    return function


def fragmented_fraction() -> float | None:
    """Free bytes of the C library's heap over all that it holds, with mapped blocks; None: it does not say.

    Limits   what it got by other ways, such as an accelerator's memory, is not in it.
    """
    function = _mallinfo2()
    if function is None:
        return None
    told = function()
    held = int(told.arena) + int(told.hblkhd)
    return int(told.fordblks) / held if held else 0.0
