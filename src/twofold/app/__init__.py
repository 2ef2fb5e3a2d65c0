"""One function per verb, typed, without printing; the command line calls them, `twofold` re-exports them.

The door is lazy, so that `check` does not wait for numpy: a module is imported when one of its names is asked
for. No module here has the name of a function: an imported module would hide it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twofold.app.calibrating import Calibrated, calibrate
    from twofold.app.catalogue import CatalogTable, catalog_columns, catalog_rows, catalog_tables
    from twofold.app.checking import Checked, check
    from twofold.app.claiming import Claims, claim_unit, claim_value, claims
    from twofold.app.comparing import Compared, compare
    from twofold.app.details import default_lines, detail_lines
    from twofold.app.estimating import Answer, Machines, estimate
    from twofold.app.figures import percent, ranged
    from twofold.app.files import whole_file
    from twofold.app.kernel_listing import Kernels, kernels
    from twofold.app.lines import field, heading, table
    from twofold.app.loop_page import loop_json
    from twofold.app.looping import alone, down, need_memory, state_of, up
    from twofold.app.measuring import MeasuredDevice, measure_device
    from twofold.app.partitioning import Profiles, partitions
    from twofold.app.planning import diff, explain, money_detailed, plan, rehearsed_plan
    from twofold.app.predicting import Predicted, predict
    from twofold.app.refreshing import RefreshedPrices, refresh_prices
    from twofold.app.screen import plan_lines
    from twofold.app.screen_loop import loop_lines
    from twofold.app.screen_money_details import detail_money_lines
    from twofold.app.searching import search_fleets, search_layouts
    from twofold.app.shown import Difference, Explanation, ShownPlan
    from twofold.app.simulating import Simulated, SimulateOptions, simulate, simulate_sweep
    from twofold.app.sources import CALIBRATION_FILE, Loaded, SpecSource, load
    from twofold.app.starting import infer, starter
    from twofold.app.sweeping import SweepAsked, Swept, parse_sweep
    from twofold.app.validating import Linted, Validated, lint_table, validate

__all__ = [
    "CALIBRATION_FILE",
    "Answer",
    "Calibrated",
    "CatalogTable",
    "Checked",
    "Claims",
    "Compared",
    "Difference",
    "Explanation",
    "Kernels",
    "Linted",
    "Loaded",
    "Machines",
    "MeasuredDevice",
    "Predicted",
    "Profiles",
    "RefreshedPrices",
    "ShownPlan",
    "SimulateOptions",
    "Simulated",
    "SpecSource",
    "SweepAsked",
    "Swept",
    "Validated",
    "alone",
    "calibrate",
    "catalog_columns",
    "catalog_rows",
    "catalog_tables",
    "check",
    "claim_unit",
    "claim_value",
    "claims",
    "compare",
    "default_lines",
    "detail_lines",
    "detail_money_lines",
    "diff",
    "down",
    "estimate",
    "explain",
    "field",
    "heading",
    "infer",
    "kernels",
    "lint_table",
    "load",
    "loop_json",
    "loop_lines",
    "measure_device",
    "money_detailed",
    "need_memory",
    "parse_sweep",
    "partitions",
    "percent",
    "plan",
    "plan_lines",
    "predict",
    "ranged",
    "refresh_prices",
    "rehearsed_plan",
    "search_fleets",
    "search_layouts",
    "simulate",
    "simulate_sweep",
    "starter",
    "state_of",
    "table",
    "up",
    "validate",
    "whole_file",
]

_MODULES = {
    "calibrating": ("Calibrated", "calibrate"),
    "catalogue": ("CatalogTable", "catalog_columns", "catalog_rows", "catalog_tables"),
    "checking": ("Checked", "check"),
    "claiming": ("Claims", "claim_unit", "claim_value", "claims"),
    "comparing": ("Compared", "compare"),
    "details": ("default_lines", "detail_lines"),
    "estimating": ("Answer", "Machines", "estimate"),
    "figures": ("percent", "ranged"),
    "files": ("whole_file",),
    "kernel_listing": ("Kernels", "kernels"),
    "lines": ("field", "heading", "table"),
    "loop_page": ("loop_json",),
    "looping": ("alone", "down", "need_memory", "state_of", "up"),
    "measuring": ("MeasuredDevice", "measure_device"),
    "partitioning": ("Profiles", "partitions"),
    "planning": ("diff", "explain", "money_detailed", "plan", "rehearsed_plan"),
    "predicting": ("Predicted", "predict"),
    "screen": ("plan_lines",),
    "screen_loop": ("loop_lines",),
    "screen_money_details": ("detail_money_lines",),
    "refreshing": ("RefreshedPrices", "refresh_prices"),
    "searching": ("search_fleets", "search_layouts"),
    "shown": ("Difference", "Explanation", "ShownPlan"),
    "simulating": ("SimulateOptions", "Simulated", "simulate", "simulate_sweep"),
    "sweeping": ("SweepAsked", "Swept", "parse_sweep"),
    "sources": ("CALIBRATION_FILE", "Loaded", "SpecSource", "load"),
    "starting": ("infer", "starter"),
    "validating": ("Linted", "Validated", "lint_table", "validate"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'twofold.app' has no attribute '{name}'")
    return getattr(import_module(f"twofold.app.{_HOME[name]}"), name)
