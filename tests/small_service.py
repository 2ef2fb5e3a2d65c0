"""A small service, planned once: its pool is ready for the twin, its gate for a gateway."""

from functools import cache

from twofold.answer.context import Context
from twofold.answer.serving_choice import choose_serving
from twofold.answer.serving_plan import service_plan
from twofold.answer.uncertainty import draw_factors
from twofold.catalog.catalog import load_catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.supply import Supply
from twofold.perf.constants import load_constants
from twofold.rehearse.pools import RehearsalTables
from twofold.rehearse.run import PoolTask, RehearsalSettings, pool_tasks
from twofold.rehearse.traffic import DrawnTraffic
from twofold.twin.serving.traffic import TrafficModel

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 2 /s, input: 100 tok, output: {mean: 20 tok, p95: 50 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""


@cache
def planned() -> PoolTask:
    catalog, constants = load_catalog(), load_constants()
    context = Context(parse_spec(SPEC, "s.yaml"), catalog, constants, draw_factors(constants, 8, 0), None)
    plan = service_plan(choose_serving(context.spec.services[0], context), context)
    [task] = pool_tasks(
        plan, RehearsalSettings(), RehearsalTables(catalog, constants, Supply(), catalog.model)
    )
    return task


def requests() -> TrafficModel:
    """How its one class asks."""
    [part] = planned().traffic.parts
    assert isinstance(part, DrawnTraffic)
    return part.model
