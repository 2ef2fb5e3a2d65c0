"""How long the page of each example takes beside its plan, and how large it is: goals 1 s and 1 MB."""

import time
from pathlib import Path

from twofold.app.planning import ready
from twofold.charts.of_plan import charts_of_plan
from twofold.charts.svg import svg_of
from twofold.pages.plan_page import plan_page

EXAMPLES = ("assistant", "finetune", "laptop", "moe", "portfolio", "recommender")


def main() -> None:
    """Each example once: its plan in full, its pictures, its page."""
    print(f"{'example':<14}{'plan':>9}{'pictures':>12}{'page':>11}{'size':>9}")
    for name in EXAMPLES:
        start = time.perf_counter()
        plan = ready(str(Path("examples", name, "twofold.yaml")), None).planned().plan
        planned = time.perf_counter()
        charts = charts_of_plan(plan)
        drawn = sum(len(svg_of(each)) for each in charts)
        pictured = time.perf_counter()
        page = plan_page(plan, "0" * 64)
        done = time.perf_counter()
        assert drawn
        print(
            f"{name:<14}{planned - start:>7.1f} s{1e3 * (pictured - planned):>6.0f} ms /{len(charts):>2}"
            f"{1e3 * (done - pictured):>8.0f} ms{len(page.encode()) / 1e3:>6.0f} kB"
        )


if __name__ == "__main__":
    main()
