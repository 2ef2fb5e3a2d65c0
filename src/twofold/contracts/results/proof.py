"""What a rehearsal that was frozen, then run live, came to, schema `twofold/proof/1`: `up --prove --json`.

Nothing here computes. Figures are of requests that somebody sent at the very same times in the twin and live;
seconds and counts. A number that nobody measured is None.
"""

from dataclasses import dataclass

from twofold.core.estimate import Estimate

PROOF_SCHEMA = "twofold/proof/1"


@dataclass(frozen=True, slots=True)
class MachineUse:
    """What a machine did beside the service while something was measured."""

    load_average_before: float  # of one minute, as it began
    load_average_after: float
    others_cores: float  # that programs other than ours kept busy, on average


@dataclass(frozen=True, slots=True)
class ProofRun:
    """One live run of a scenario, as its clients counted it."""

    scenario: str
    seed: int
    sent: int
    finished: int
    refused: int
    lost: int  # answered with an error, or never
    use: MachineUse


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One figure of one scenario: what the plan said, what the twin did, and what two live runs came to."""

    scenario: str  # steady, burst, killed, release
    name: str  # TTFT p50, refused, capacity back …
    unit: str  # s; "" of counts
    planned: Estimate | None  # None: the plan has no such number
    twin: Estimate | None  # at the arrivals of the live runs, with the 80 % range over other arrivals
    live: tuple[float | None, ...]  # of the two runs
    apart: float | None  # the difference of the two over their mean
    inside: bool | None  # None: there is no goal for it
    why: str  # by how much it is outside; "" inside


@dataclass(frozen=True, slots=True)
class ProofFinding:
    """Something that lies outside, and its likely cause."""

    scenario: str
    what: str
    cause: str


@dataclass(frozen=True, slots=True)
class Learned:
    """One figure of the plan beside what was measured: the factor that its next plan is put right by."""

    name: str  # TPOT p50
    ratio: float  # measured over planned


@dataclass(frozen=True, slots=True)
class Proof:
    """The page that `up --prove` ends with."""

    name: str  # of the spec
    machine: str  # in words
    seed: int
    spec_digest: str
    plan_digest: str
    device_digest: str
    twin_gate_digest: str
    live_gate_digest: str
    frozen_sha256: str  # of the twin's answer, written before any of it was run live
    frozen_at: str  # UTC
    rate_per_s: float  # of the steady scenario
    knee_per_s: float  # that the calibration found
    replica_count: int
    calibration: MachineUse
    differs: tuple[str, ...]  # between twin and live, by necessity
    rows: tuple[ProofRow, ...]
    runs: tuple[ProofRun, ...]
    findings: tuple[ProofFinding, ...]
    learned: tuple[Learned, ...]
    notes: tuple[str, ...]

    @property
    def is_inside(self) -> bool:
        """Whether every figure that has a goal keeps it, one has, and one gate decided in twin and live."""
        judged = [row.inside for row in self.rows if row.inside is not None]
        return bool(judged) and all(judged) and self.twin_gate_digest == self.live_gate_digest
