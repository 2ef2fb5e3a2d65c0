"""How long a portfolio of 60 offers over 52 weeks and 24 kinds of hours takes, and how far it may be off.

python bench/portfolio.py
"""

import time

import numpy as np

from twofold.portfolio.check import violations
from twofold.portfolio.problem import (
    Batch,
    Campaign,
    CampaignOption,
    CapacityOffer,
    Demand,
    PortfolioProblem,
    ServingRate,
)
from twofold.portfolio.solve import solve

OFFERS, WEEKS = 60, 52
KINDS = {"A": (10.0, 30.0), "B": (16.0, 42.0), "C": (24.0, 60.0), "D": (4.0, 9.0)}  # speed, USD/h


def year() -> PortfolioProblem:
    """Hourly and one-year offers of four accelerators and seven providers, seasons by month, three runs."""
    random = np.random.default_rng(0)
    offers: list[CapacityOffer] = []
    rates: list[ServingRate] = []
    for index in range(OFFERS):
        kind = "ABCD"[index % 4]
        speed, usd = KINDS[kind]
        weeks = [0, 52, 0][index % 3]
        price = usd * (1 + 0.4 * random.random()) * (0.7 if weeks else 1.0)
        limit = [None, None, 12, 6][(index // 4) % 4]
        name = f"o{index}"
        offers.append(
            CapacityOffer(
                name, f"p{index % 7}", name, kind, 8, "", "on_demand", "virtual", price, weeks, limit,
                0.0, 0.0, 0.0, 0.0, "bench", "",
            )
        )  # fmt: skip
        shares = {"chat": 1.0, "documents": 0.5 + 0.1 * (index % 4), "nightly": 1.5}
        rates += [ServingRate(name, work, "", speed * share, 1.0) for work, share in shares.items()]
    hour = np.arange(24)
    season = np.repeat(1 + 0.3 * np.sin(np.arange(13) / 13 * 2 * np.pi), 4)[:, None]
    evening = 1 + 0.6 * np.cos((hour - 20) / 24 * 2 * np.pi)
    noon = 1 + 0.5 * np.cos((hour - 14) / 24 * 2 * np.pi)
    trains = [index for index in range(OFFERS) if index % 4 != 3]
    runs = [
        Campaign(
            f"run{number}",
            first,
            end,
            tuple(
                CampaignOption(f"o{index}", units, hours * (1 + 0.1 * (index % 4)))
                for index in trains
                for units, hours in ((8, 900.0), (16, 480.0))
            ),
        )
        for number, (first, end) in enumerate([(0, 8), (10, 20), (26, 40)])
    ]
    tunes = [
        Campaign(
            f"tune{number}",
            4 * number,
            4 * number + 4,
            tuple(CampaignOption(f"o{index}", 1, 20.0 * (1 + 0.1 * (index % 4))) for index in range(OFFERS)),
            dense=False,
        )
        for number in range(12)
    ]
    demands = (
        Demand("chat", 200 * season * evening, 1.5, 1.3),
        Demand("documents", 60 * season * noon, 1.5, 1.3),
    )
    nightly = (Batch("nightly", np.full(WEEKS, 4e6)),)
    return PortfolioProblem(tuple(offers), demands, nightly, (*runs, *tunes), tuple(rates))


def main() -> None:
    problem = year()
    began, spent = time.perf_counter(), time.process_time()
    answer = solve(problem, limit_s=60.0)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - spent
    assert answer is not None and violations(problem, answer) == ()
    print(f"{OFFERS} offers × {WEEKS} weeks × 24 hours: {wall_s:.1f} s wall, {cpu_s:.1f} s of processor")
    print(f"gap {100 * answer.gap_fraction:.2f} %, no requirement broken")


if __name__ == "__main__":
    main()
