"""The differences between two plans that matter first: totals, what was asked, machines, promises, prices."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest

from twofold.planner import Change
from twofold.report.differences import count_line, difference_lines, difference_row, owner_of
from twofold.report.lines import table

SHOWN = 20
# What a group is about, the most telling first: patterns of the end of a path.
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "totals",
        (
            r"^first_year_usd", r"^portfolio\.usd", r"^money\.total_usd", r"cost_usd(_per_year)?",
            r"\.run\.total_s", r"\.run\.accelerator_h",
        ),
    ),
    (
        "asked",
        (
            r"\.model", r"\.tokens", r"\.rate_per_s", r"\.limit_s", r"\.deadline_s", r"\.precision",
            r"^budget_usd", r"\.regions\.\d+",
        ),
    ),
    (
        "machines",
        (
            r"\.machine\.accelerator", r"\.machine\.node_count", r"\.machine\.accelerator_count",
            r"\.machine\.node", r"\.machine\.fabric", r"^portfolio\.leases\..*\.(offer|units)",
        ),
    ),
    (
        "layouts",
        (
            r"\.layout\.text", r"\.replica\.text", r"\.replica_text", r"\.step_s", r"\.mfu_fraction",
            r"\.memory_bytes",
        ),
    ),
    ("replicas", (r"[^.]+\.replica_count", r"\.spare_count", r"\.zones", r"\.warm_pool_count")),
    (
        "SLOs",
        (
            r"\.slos\..*\.met", r"\.slos\..*\.predicted", r"\.holds_until_per_s",
        ),
    ),
    (
        "prices",
        (
            r"\.price\.usd_per_accelerator_h", r"\.price\.(provider|instance|region|term)",
            r"\.usd_per_1k_output_tokens", r"\.usd_per_mtok",
        ),
    ),
)  # fmt: skip


def telling_lines(changes: Sequence[Change]) -> list[str]:
    """At most twenty differences, by what they are about, and how many more there are."""
    if len(changes) <= SHOWN:
        return difference_lines(changes)
    chosen = list(_chosen(changes))[:SHOWN]
    if not chosen:
        return [*difference_lines(changes[:SHOWN])[:-1], _more(len(changes), SHOWN)]
    rows: list[tuple[str, ...]] = []
    # Groups in their order, and in each the runs and services in the plan's.
    chosen.sort(key=lambda each: (each[0], changes.index(each[1])))
    for (group, owner), found in groupby(chosen, lambda each: (each[0], owner_of(each[1].path))):
        rows.append((f"{GROUPS[group][0]} of {owner}" if owner else GROUPS[group][0], "", "", ""))
        rows += [difference_row(change, owner, "  ") for _, change in found]
    lines = table(("path", "old", "new", "change"), rows, numbers=(3,))
    return [*lines, _more(len(changes), len(chosen))]


def _more(count: int, shown: int) -> str:
    return f"{count_line(count)}, {count - shown} more: --all"


def _chosen(changes: Sequence[Change]) -> Iterator[tuple[int, Change]]:
    """One of each group in turn, so that no group hides another; each begins with what changed most."""
    by_group: list[list[tuple[int, float, Change]]] = [[] for _ in GROUPS]
    for change in changes:
        if change.relative_change_fraction == 0.0:
            continue  # its range alone differs
        for group, (_, patterns) in enumerate(GROUPS):
            rank = next((i for i, text in enumerate(patterns) if re.search(f"{text}$", change.path)), None)
            if rank is not None:
                by_group[group].append((rank, -abs(change.relative_change_fraction or 0.0), change))
                break
    sorted_groups = [
        [(group, change) for _, _, change in sorted(found, key=lambda each: each[:2])]
        for group, found in enumerate(by_group)
    ]
    for turn in zip_longest(*sorted_groups):
        yield from (each for each in turn if each is not None)
