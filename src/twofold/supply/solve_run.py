"""One call of HiGHS for a programme. Nothing here knows what its columns mean."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from twofold.supply.solve_matrix import Floats, Programme


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """One run of the solver; `values` None: there is no answer, or none was found in time."""

    values: Floats | None
    usd: float
    bound_usd: float
    finished: bool
    infeasible: bool


def run(
    programme: Programme,
    gap_fraction: float,
    limit_s: float,
    *,
    relaxed: Any = (),
    start: Floats | None = None,
    nodes: int | None = None,
) -> Solved:
    """One call of HiGHS, on one thread and with a fixed seed: equal programmes give equal answers."""
    import highspy

    solver = highspy.Highs()
    settings = {
        "output_flag": False,
        "threads": 1,
        "random_seed": 1,
        "mip_rel_gap": gap_fraction,
        "mip_heuristic_run_feasibility_jump": False,  # a tenth of the time, and finds nothing here
        "time_limit": max(limit_s, 0.05),
    }
    if nodes is not None:
        settings["mip_max_nodes"] = nodes
    for name, value in settings.items():
        solver.setOptionValue(name, value)
    solver.passModel(_lp(programme, relaxed))
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        solver.setSolution(solution)
    solver.run()
    status = solver.getModelStatus()
    kinds = highspy.HighsModelStatus
    info = solver.getInfo()
    feasible = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    values = np.array(solver.getSolution().col_value) if feasible else None
    whole = bool(np.any(programme.integer)) and len(relaxed) < int(programme.integer.sum())
    bound = info.mip_dual_bound if whole else info.objective_function_value
    return Solved(
        values,
        float(info.objective_function_value) if feasible else np.inf,
        float(bound),
        status == kinds.kOptimal,
        status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible),
    )


def _lp(programme: Programme, relaxed: Any) -> Any:
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(programme.cost_usd), len(programme.row_lower)
    model.col_cost_, model.col_lower_, model.col_upper_ = (
        programme.cost_usd,
        programme.lower,
        _infinite(programme.upper),
    )
    model.row_lower_, model.row_upper_ = _infinite(programme.row_lower), _infinite(programme.row_upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = programme.row_starts.astype(np.int32)
    model.a_matrix_.index_ = programme.columns.astype(np.int32)
    model.a_matrix_.value_ = programme.values
    whole = programme.integer.copy()
    whole[np.asarray(relaxed, int)] = False
    if np.any(whole):
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in whole]
    return model


def _infinite(values: Floats) -> Floats:
    import highspy

    bounded = values.copy()
    bounded[np.isposinf(values)], bounded[np.isneginf(values)] = highspy.kHighsInf, -highspy.kHighsInf
    return bounded


def breaks(programme: Programme, values: Floats) -> bool:
    """Whether values leave some row of a programme."""
    products = programme.values * values[programme.columns]
    sums = np.add.reduceat(np.append(products, 0.0), programme.row_starts[:-1])
    sums = np.where(np.diff(programme.row_starts) > 0, sums, 0.0)
    room = 1e-5 * (1.0 + np.abs(sums))
    return bool(np.any(sums > programme.row_upper + room) or np.any(sums < programme.row_lower - room))
