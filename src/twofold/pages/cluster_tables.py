"""The tables of a rehearsed cluster on a rehearsal's page: runs, the cluster, failures, teams, places."""

from twofold.contracts.results import simulated
from twofold.core.display import format_seconds, format_si
from twofold.pages.sections import Derived, Section, led, range_of
from twofold.report.figures import percent

PLACEMENTS_MOST = 200  # rows of who stands where
CLUSTER, RUNS, TEAMS, PLACES = "cluster", "cluster.runs", "cluster.teams", "cluster.placement"


def cluster_sections(training: simulated.TrainingFigures, seed: int) -> tuple[Section, ...]:
    """What the cluster did, part by part."""
    return (
        _runs(training),
        _cluster(training, seed),
        _causes(training, seed),
        _teams(training),
        _places(training),
    )


def _runs(training: simulated.TrainingFigures) -> Section:
    rows = [
        (
            run.name,
            run.state,
            *led(
                RUNS,
                format_seconds(run.waited_s),
                "–" if run.train_s is None else format_seconds(run.train_s),
                "–" if run.completion_s is None else format_seconds(run.completion_s),
                "–" if run.tokens_per_s is None else format_si(run.tokens_per_s, "tok/s"),
                "–" if run.samples_per_s is None else format_si(run.samples_per_s, "1/s"),
            ),
        )
        for run in training.runs
    ]
    times = ("run", "at the end", "waited", "trained in", "complete after", "tokens", "samples")
    parts = (
        "waited: until the first start; trained in: from there to the end; complete after: from submission",
        "tokens and samples: trained on, over the time from the first start to the end",
    )
    derived = (Derived(RUNS, "read off the twin's clock, run by run", parts),) if rows else ()
    return Section("The plan's own runs", times, tuple(rows), range_of(2, 7), derived=derived)


def _cluster(training: simulated.TrainingFigures, seed: int) -> Section:
    figures = [
        ("accelerators", f"{training.accelerator_count:,} on {training.node_count:,} nodes"),
        ("jobs", ", ".join(f"{name} {count:,}" for name, count in training.outcomes.items() if count)),
        ("goodput", f"{percent(training.goodput_fraction)} of the time that jobs held accelerators"),
        ("in use", percent(training.utilisation_fraction)),
        ("failures", f"{training.failure_count:,}, back after {format_seconds(training.recovery_s_mean)}"),
        ("checkpoints", f"{training.checkpoint_count:,} of {format_seconds(training.checkpoint_s_mean)}"),
        ("preempted", f"{training.preempted_count:,}"),
    ]
    hours = sum(training.accelerator_h.values())
    parts = (
        f"measured by the twin over {format_seconds(training.duration_s)}, seed {seed}",
        f"jobs: all {training.submitted_count:,} that were submitted, by how they ended or stood at the end",
        "goodput: work that was kept / time that jobs held accelerators",
        f"in use: training or serving / the cluster's {hours:,.0f} accelerator-h",
        "failures: that hit a running job, and the mean time until it went on; checkpoints: the mean write",
    )
    rows = tuple((name, *led(CLUSTER, said)) for name, said in figures)
    derived = (Derived(CLUSTER, "the whole cluster over the whole run", parts),)
    return Section("The cluster", ("", ""), rows, derived=derived)


def _causes(training: simulated.TrainingFigures, seed: int) -> Section:
    path = f"{CLUSTER}.failures_by_cause"
    rows = tuple((name, *led(path, f"{count:,}")) for name, count in training.failures_by_cause.items())
    parts = (f"of nodes, and of jobs where these stay; counted by the twin, seed {seed}",)
    derived = (Derived(path, "failures by what caused them", parts),) if rows else ()
    return Section("Failures by cause", ("cause", "times"), rows, (1,), derived=derived)


def _teams(training: simulated.TrainingFigures) -> Section:
    rows = [
        (
            team.name or "–",
            *led(
                TEAMS,
                f"{team.accelerator_h:,.0f}",
                "–" if team.quota_fraction is None else percent(team.quota_fraction),
                "–" if team.share_fraction is None else percent(team.share_fraction),
                format_seconds(team.queue_s_p95),
            ),
        )
        for team in training.teams
    ]
    parts = (
        "accelerator-h: that its jobs held; queue p95: 95 of 100 of its jobs waited no longer to start",
        "promised: of what all teams with a quota are; had: while all of them waited",
    )
    heads = ("team", "accelerator-h", "promised", "had", "queue p95")
    derived = (Derived(TEAMS, "jobs by whose they are", parts),) if rows else ()
    return Section("Teams", heads, tuple(rows), range_of(1, 5), derived=derived)


def _places(training: simulated.TrainingFigures) -> Section:
    stands = list(training.placement.items())
    more = len(stands) - PLACEMENTS_MOST
    said = (f"{more:,} more jobs are left out",) if more > 0 else ()
    rows = tuple((job, *led(PLACES, place)) for job, place in stands[:PLACEMENTS_MOST])
    derived = (Derived(PLACES, "nodes by number, and how many accelerators of each"),) if rows else ()
    heads = ("job", "node:accelerators")
    return Section("Who stands where at the end", heads, rows, (), said, derived)
