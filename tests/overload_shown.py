"""What an overload does to who is accepted and who shares: `python -m tests.overload_shown WHICH FOLDER`."""

import asyncio
import sys
from pathlib import Path

from twofold.core.errors import TwofoldError
from twofold.core.extras import require_extra

LOAD_S = 4.0


def main(which: str, folder: Path) -> None:
    """In a line: `beyond` is half as much again as the engine can do, `noisy` a tenant beside another."""
    try:
        require_extra("live")
    except TwofoldError as error:
        sys.stdout.write(f"{error}\n")
        return
    from tests.soak import overload as load

    if which == "beyond":
        found = asyncio.run(load.overloaded(folder, LOAD_S, (1.0, 1.5)))[1.5]
        first = f"first token p95 {found.ttft_s_p95:.2f} s of {load.TTFT_S:.2f}"
        sys.stdout.write(
            f"at 150 % {found.accepted_count} accepted, {first}, {found.refused_count} refused\n"
        )
        return
    alone, beside, noisy = asyncio.run(load.beside_a_noisy_one(folder, LOAD_S))
    moved = f"p95 {beside.e2e_s_p95 / alone.e2e_s_p95 - 1:+.1%}, {beside.refused_count} refused"
    sys.stdout.write(f"{moved}, beside one of whom {noisy.refused_count} were\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
