"""How long the page of each example takes beside its plan, and how large it is: goals 1 s and 1 MB.

Seconds of this process's processor, so that others on the machine do not count. `report` is all that the verb
does with a plan's file: read and checked, drawn, written.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from twofold.app.planning import plan_to_json, ready
from twofold.app.reporting import write_page
from twofold.charts.of_plan import charts_of_plan
from twofold.charts.svg import svg_of
from twofold.pages.plan_page import plan_page

EXAMPLES = sorted(path.parent.name for path in Path("examples").glob("*/twofold.yaml"))
MOST_S, MOST_BYTES = 1.0, 1_000_000


def main() -> None:
    """Each example once: its plan in full, its pictures, its page, the verb on the plan's file."""
    print(f"{'example':<14}{'plan':>9}{'pictures':>12}{'page':>11}{'report':>11}{'size':>9}")
    slowest_s, largest = 0.0, 0
    with TemporaryDirectory() as scratch:
        for name in EXAMPLES:
            start = time.process_time()
            plan = ready(str(Path("examples", name, "twofold.yaml")), None).planned().plan
            planned = time.process_time()
            charts = charts_of_plan(plan)
            drawn = sum(len(svg_of(each)) for each in charts)
            pictured = time.process_time()
            page = plan_page(plan, "0" * 64)
            done = time.process_time()
            file = Path(scratch, f"{name}.json")
            file.write_text(plan_to_json(plan), "utf-8")
            began = time.process_time()
            write_page(file, Path(scratch, "page.html"))
            reported_s, size = time.process_time() - began, len(page.encode())
            slowest_s, largest = max(slowest_s, reported_s), max(largest, size)
            assert drawn
            print(
                f"{name:<14}{planned - start:>7.1f} s{1e3 * (pictured - planned):>6.0f} ms /{len(charts):>2}"
                f"{1e3 * (done - pictured):>8.0f} ms{1e3 * reported_s:>8.0f} ms{size / 1e3:>6.0f} kB"
            )
    for what, met in (
        (f"slowest report {slowest_s:.2f} s, goal {MOST_S:g} s", slowest_s <= MOST_S),
        (f"largest page {largest / 1e3:,.0f} kB, goal {MOST_BYTES / 1e3:,.0f} kB", largest <= MOST_BYTES),
    ):
        print(f"{'✓' if met else '✗'} {what}")


if __name__ == "__main__":
    main()
