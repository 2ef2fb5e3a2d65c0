"""What the gate of a service that runs is to believe, once it was calibrated: as its spec plans it now."""

import sqlite3
from dataclasses import replace
from datetime import date
from pathlib import Path

from twofold.app.gates import served_gate
from twofold.app.sources import SPEC_FILE
from twofold.core.errors import TwofoldError
from twofold.gating.build import BuiltGate
from twofold.live.control import trials

SLOTS_MAX = 1 << 20  # of a machine that holds what it holds already


def tell_service(state: Path, today: date | None) -> str:
    """Write down what the gate of a state's service is to believe, and say so; its controller tells it.

    All else stays as `up` last had it, and what the plan has changed beyond that is said. A spec that cannot
    be planned any more changes nothing.
    """
    spec = state.parent / SPEC_FILE
    try:
        wanted = trials.wanted_service(state)
        if wanted is None or not spec.is_file():
            return ""
        built = served_gate(spec, SLOTS_MAX, today or date.today()).built
    except (TwofoldError, sqlite3.Error) as error:
        return f"the service beside it believes what it did: {str(error).splitlines()[0]}"
    beliefs = built.beliefs
    limits = tuple((each.name, each.in_flight_limit) for each in wanted.pools)
    serves = BuiltGate(wanted.gate, beliefs, limits or (("", wanted.in_flight_limit),))
    told = replace(
        wanted,
        input_token_s=beliefs.input_token_s,
        output_token_s=beliefs.output_token_s,
        first_token_s=beliefs.first_token_s,
        gate_digest=serves.digest,
    )
    if told.beliefs == wanted.beliefs:
        return "the service beside it believes that already"
    if not trials.want_beliefs(state, wanted, told):
        return "the service beside it was changed meanwhile: calibrate again, or call `up`"
    more = "" if serves.digest == built.digest else "; the rest of its plan comes with the next `up`"
    return f"the gate of the service beside it is told{more}"
