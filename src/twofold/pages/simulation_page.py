"""A rehearsal as a page, HTML or Markdown: what was held and why not, then pictures, then every figure."""

from twofold.charts.of_simulation import charts_of_simulation
from twofold.contracts.goals import metric_text
from twofold.contracts.results import simulated
from twofold.core.display import format_seconds
from twofold.pages.sections import Derived, Linked, Page, Section, led
from twofold.pages.simulation_tables import goal_section, table_sections
from twofold.report.simulate import simulation_lines, unjudged_goals

REHEARSAL, VERDICT = "rehearsal", "verdict"


def simulation_page(made: simulated.Simulation) -> Page:
    """What its page shows."""
    return Page(
        f"{made.name}: rehearsal of {made.scenario}",
        f"{made.name}: {made.scenario}",
        Linked(" · ".join(_head(made)), REHEARSAL),
        (_verdict(made), goal_section(made)),
        _made_by(made),
        tuple(charts_of_simulation(made)),
        table_sections(made),
        tuple(simulation_lines(made)),
        (_rehearsal(made), Derived(VERDICT, "every goal's figure of the twin, held against its limit")),
    )


def _head(made: simulated.Simulation) -> list[str]:
    span_s = made.training.duration_s if made.training else made.horizon_s
    about = [made.about.rstrip(".")] if made.about else []
    return [*about, f"{format_seconds(span_s)} simulated, middle speeds, seed {made.seed}"]


def _rehearsal(made: simulated.Simulation) -> Derived:
    """What ran: every figure of the page is of this run."""
    arrived = sum(each.arrived_count for each in made.fleets)
    parts = [
        f"the scenario {made.scenario}, every draw of seed {made.seed}",
        f"requests arrive for {format_seconds(made.horizon_s)}; the first {format_seconds(made.warm_up_s)} "
        "are left out of figures",
        f"{arrived:,} requests arrived, and the machines handled {made.event_count:,} events",
    ]
    parts += [f"{name}: {said}" for name, said in made.traffic.items()]
    return Derived(REHEARSAL, f"the plan of sha256 {made.plan_digest[:16]} in the digital twin", tuple(parts))


def _made_by(made: simulated.Simulation) -> str:
    policies = f" · policies: {', '.join(made.policies)}" if made.policies else ""
    return f"twofold {made.twofold} · of the plan of sha256 {made.plan_digest[:16]}{policies}"


def _verdict(made: simulated.Simulation) -> Section:
    """Held or missed, each goal that was missed, and what broke first."""
    training = made.training
    missed = [f"{one.name} {metric_text(goal)}" for one in made.classes for goal in one.missed]
    missed += training.missed if training else ()
    unjudged = not made.slos_met and not missed
    open_goals = unjudged_goals(made.classes)
    held = "every goal that is judged is held" if open_goals else "every goal is held"
    said = [f"✗ {each}" for each in missed] or ["not judged: no request came" if unjudged else held]
    said += [] if unjudged else [f"not judged: {each}" for each in open_goals]
    said.append(f"broke first: {made.broke_first}" if made.broke_first else "every limit held")
    said += [f"fleet {each.pool}: waits for {each.waits_for}" for each in made.fleets if each.waits_for]
    said += training.alarms if training else ()
    title = "Not judged" if unjudged else "Missed" if missed else "Held"
    return Section(title, sentences=led(VERDICT, *dict.fromkeys(said)))
