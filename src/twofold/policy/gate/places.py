"""How many requests a replica takes at once, so that those who are let in are written to in time.

A replica announces as many places as it can hold. Under load that does not let up all of them are taken, and
each token waits for all the others': what was room for a burst becomes the usual state, and tokens come later
than promised. Their number is learnt, for each replica, from the answers that it gave.
"""

from twofold.policy.gate.fleet_view import FleetView, Replica

STEP_FRACTION = 0.02  # of the announced places, by which a slow answer lowers their number
LEAST_FRACTION = 0.25  # of them: fewer would starve a replica that is slow whatever it has


def learn(view: FleetView, replica: Replica, tpot_s: float, slo_s: float, attained_fraction: float) -> None:
    """An answer ended that took so long per token, where so much was promised.

    Formula  down by step · attained after a slow answer, up by step · (1 - attained) after any other
    Why      this stands still where just as many are in time as was promised (Robbins & Monro 1951).
    """
    step = (1.0 - attained_fraction) if tpot_s <= slo_s else -attained_fraction
    fraction = replica.places_fraction + STEP_FRACTION * step
    replica.places_fraction = min(max(fraction, LEAST_FRACTION), 1.0)
    limit = max(round(replica.places_fraction * replica.added.in_flight_limit), 1)
    if limit != replica.in_flight_limit:
        if replica.healthy:
            view.place_count += limit - replica.in_flight_limit
        replica.in_flight_limit = limit
