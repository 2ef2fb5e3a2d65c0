"""How many streams a second the load generator can hold, and what is left of a bare client's.

Two processes share this machine's cores: the stand-in of `bench.gateway`, which answers 16 events at once,
and the client: `live/loads/loader.py` with all that it does for a figure, then a bare protocol that only
waits for the end of each answer. Their ratio is what the loader's figures cost. Other work on the machine
stretches all times; the streams that a second of the loader's own CPU time holds are stretched least: a
core to itself is the load up to which it measures the service and not itself. That limit is the last line,
beside the streams a second that are wanted of it.
"""

import asyncio
import statistics
import time
from itertools import repeat

from bench.gateway import EVENT_COUNT, _open, load_s, run_process, serve_engine
from twofold.live.loads.loader import Prompt, bare_endpoint, hold_closed
from twofold.live.loads.loads import Outcome
from twofold.live.processes import free_port

CONCURRENCIES = (1, 16, 64, 256)
ROUNDS = 3
DURATION_S = 2.0
WANTED_PER_S = 5_000  # streams, of the loader and the stand-in on two cores


def loader_per_s(port: int, concurrency: int) -> tuple[float, float]:
    """Streams a second by the loader, and the share of a core that it took."""
    endpoint = bare_endpoint(f"http://127.0.0.1:{port}", "m")
    prompts = repeat(Prompt("x" * 400, 100))
    load = hold_closed(endpoint, prompts, concurrency, max_tokens=EVENT_COUNT, duration_s=DURATION_S)
    finished = sum(each.outcome is Outcome.FINISHED for each in load.answers)
    assert finished == len(load.answers), "an instant stand-in refuses nothing"
    return finished / load.wall_s, load.cpu_s / load.wall_s


def bare_per_s(port: int, concurrency: int) -> float:
    """Streams a second by a client that measures nothing but the whole answer."""
    import uvloop

    began_s = time.perf_counter()
    latencies_s = uvloop.run(load_s(port, concurrency, DURATION_S))
    return len(latencies_s) / (time.perf_counter() - began_s)


def verdict(best_per_s: float, limit_per_s: float) -> str:
    """The most streams a second that were held, by what a core of the client's could, and what was wanted."""
    held = "held" if best_per_s >= WANTED_PER_S else f"missed by {1 - best_per_s / WANTED_PER_S:.0%}"
    limit = f"limit: a core of the client's can {limit_per_s:,.0f}"
    return f"{best_per_s:,.0f} streams/s at most; {limit}; wanted: {WANTED_PER_S:,}, {held}"


def main() -> None:
    """Print both rates side by side, rounds in turn."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        print("needs the extra [live]")
        return
    port = free_port()
    engine = run_process(serve_engine, port)
    try:
        asyncio.run(_open(port))
        print(f"{EVENT_COUNT} events an answer, medians of {ROUNDS} rounds, taken in turn")
        print(f"{'clients':>8}{'loader/s':>10}{'bare/s':>9}{'ratio':>7}{'of a core':>11}  streams per CPU s")
        best_per_s = limit_per_s = 0.0
        for concurrency in CONCURRENCIES:
            rounds = [
                (*loader_per_s(port, concurrency), bare_per_s(port, concurrency)) for _ in range(ROUNDS)
            ]
            ours, share, bare = (statistics.median(each) for each in zip(*rounds, strict=True))
            figures = f"{ours:>10,.0f}{bare:>9,.0f}{ours / bare:>7.2f}{share:>11.0%}"
            print(f"{concurrency:>8}{figures}  {ours / share:,.0f}")
            best_per_s, limit_per_s = max(best_per_s, ours), max(limit_per_s, ours / share)
        print(verdict(best_per_s, limit_per_s))
    finally:
        engine.kill()
        engine.join()


if __name__ == "__main__":
    main()
