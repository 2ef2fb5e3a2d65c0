"""The rows of the catalogue as frozen data, in SI units. What a row does not state is None, never 0.

Fields are filled by their names in schema.csv, which says what each column means and in which unit it is.
"""

from dataclasses import dataclass
from typing import Literal

Attention = Literal["mha", "gqa", "mqa", "mla", "sliding", "hybrid_linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """What every row says of itself: where its figures were read, under which terms, and of which kind."""

    source: str = ""
    licence: str = ""
    confidence: str = ""


@dataclass(frozen=True, slots=True)
class Accelerator(Sourced):
    """One device as one process sees it. FLOP/s are dense; links are one direction, all links together."""

    name: str
    vendor: str
    family: str  # volta turing ampere ada hopper blackwell blackwell-rtx rubin cdna2 cdna3 cdna4 tpu … cpu
    year: int
    form_factor: str
    memory_bytes: float
    memory_type: str
    memory_bytes_per_s: float
    fp32_flops_per_s: float | None
    tf32_flops_per_s: float | None
    bf16_flops_per_s: float | None
    fp16_flops_per_s: float | None
    fp8_flops_per_s: float | None
    int8_flops_per_s: float | None
    fp4_flops_per_s: float | None
    sm_count: int | None
    l2_bytes: float | None
    scaleup_name: str
    scaleup_bytes_per_s: float  # 0 when the device has no link but PCIe
    scaleup_domain_count: int
    pcie_generation: int | None
    tdp_w: float
    idle_w: float | None
    mig_slice_count: int
    confidential_computing: bool
    released: bool  # False: announced, left out of every search unless allowed
    memory_nominal_bytes: float = 0.0  # as the vendor names it; `memory_bytes` is what software sees
    notes: str = ""

    @property
    def works_alone(self) -> bool:
        """Whether it shares no model with others: slices by MIG and vGPUs have no links, AMD's parts have."""
        return ":" in self.name and self.vendor != "AMD"


@dataclass(frozen=True, slots=True)
class Node(Sourced):
    """A server or instance type. `nic_bytes_per_s` is the whole node's, one direction."""

    name: str
    provider: str
    accelerator: str
    accelerator_count: int
    cpu: str
    vcpu_count: int | None
    ram_bytes: float | None
    nvme_bytes: float | None
    nic_bytes_per_s: float
    nic_type: str
    fabric: str  # infiniband roce efa tcpx ethernet omnipath ici none: see fabrics.csv
    power_w_max: float | None
    rack_units: int | None
    virtualised: bool


@dataclass(frozen=True, slots=True)
class Fabric(Sourced):
    """A class of network between nodes."""

    name: str
    latency_s: float  # one message, one hop pair, host to host
    efficiency_fraction: float  # of line rate, large messages, one job alone
    jitter_fraction: float  # spread of one rank's communication time
    rdma: bool


@dataclass(frozen=True, slots=True)
class Price(Sourced):
    """What one instance costs. `age_days` is counted from `date` to the day of the plan by the caller."""

    provider: str
    instance: str
    accelerator: str
    accelerator_count: int
    region: str
    term: str  # on_demand spot reserved_1y reserved_3y community; contract where none lists it
    usd_per_h: float
    usd_per_accelerator_h: float
    date: str
    date_precision: str  # day month year


@dataclass(frozen=True, slots=True)
class Capacity(Sourced):
    """How much of an offer can be had, in accelerators. What was not found is None: not unlimited."""

    provider: str  # `any`: what is assumed by kind of offer
    family: str
    kind: str  # on_demand marketplace capacity_block instant_cluster reserved spot
    accelerators: str
    accelerators_max: int | None  # of one connected job, without talking to anybody
    replicas_max: int | None
    nodes_max: int | None
    accelerators_min: int | None
    term_min_d: float | None
    term_max_d: float | None
    ram_bytes: float | None
    vcpu_count: int | None
    fabric: str
    fabric_bytes_per_s: float | None  # of one accelerator
    date: str = ""
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Region(Sourced):
    provider: str
    name: str
    city: str
    country: str
    latitude_deg: float
    longitude_deg: float
    electricity_usd_per_kwh: float
    grid_gco2_per_kwh: float
    pue: float
    wue_l_per_kwh: float
    government: bool


@dataclass(frozen=True, slots=True)
class Storage(Sourced):
    name: str
    kind: str
    read_bytes_per_s_per_unit: float | None
    write_bytes_per_s_per_unit: float | None
    unit: str
    latency_s: float | None
    usd_per_tb_month: float | None


@dataclass(frozen=True, slots=True)
class Model(Sourced):
    """The shape of a model: enough to count its parameters, FLOPs and KV bytes. Counts are per model.

    MoE: `moe_layers` of the `layers` are expert layers; the others use `ffn_hidden`. `moe_ffn_hidden` is one
    expert's width; `shared_ffn_hidden` is the width of all shared experts together (0 without).
    Hybrid: `softmax_attention_layers` of the layers attend over the context, the others are linear or SSM.
    Sliding: `sliding_layers` of the attention layers see at most `sliding_window` tokens.
    Linear: each of `linear_layers` keeps linear_heads · linear_head_dim · linear_state numbers per sequence.
    """

    name: str
    family: str
    arch: Literal["dense", "moe", "hybrid", "encoder", "diffusion"]
    parameters: int
    parameters_active: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int  # 0 when every layer is an expert layer
    ffn_matrices: int  # 3 gated, 2 not
    vocab: int
    tied_embeddings: bool
    max_context_tokens: int
    attention: Attention
    native_format: str
    softmax_attention_layers: int
    sliding_window: int = 0
    sliding_layers: int = 0
    experts: int = 0
    experts_topk: int = 0
    moe_layers: int = 0
    moe_ffn_hidden: int = 0
    shared_ffn_hidden: int = 0
    expert_groups: int = 0  # that a token chooses `expert_groups_topk` of, before its experts; 0: any expert
    expert_groups_topk: int = 0
    mla_kv_rank: int = 0
    mla_q_rank: int = 0
    mla_qk_nope: int = 0
    mla_qk_rope: int = 0
    mla_v_head_dim: int = 0
    attention_gate: bool = False  # softmax attention has an output gate as wide as its queries
    moe_latent: int = 0  # routed experts work in a latent of this width; 0: in `hidden`
    linear_kind: Literal["", "gated_delta", "mamba1", "mamba2", "lightning", "kda"] = ""
    linear_layers: int = 0
    linear_heads: int = 0
    linear_key_heads: int = 0  # groups that share keys (B and C of Mamba-2)
    linear_head_dim: int = 0
    linear_state: int = 0
    notes: str = ""
    kv_format: str = ""  # of the cache that the checkpoint brings scales for, beside narrow weights
    mtp_layers: int = 0  # of a published head for further tokens, which may draft
    fp8_blocks: bool = False  # its own configuration says that weights have a scale for each block

    @property
    def served_format(self) -> str:
        """What its weights are served in when nobody says: as published, 32-bit weights in 16."""
        return "bf16" if self.native_format == "fp32" else self.native_format


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """What the configs of one `model_type` leave unsaid; the defaults are those of most families."""

    name: str
    tied: bool = False
    gated: bool = True
    four_times_hidden: bool = False  # an unstated MLP is four times as wide as the model
    output_gate: bool = False
    encoder: bool = False
    window_layers: Literal["", "alternate", "three_of_four", "pattern", "after_max_window_layers"] = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """One profile that a device can be cut into. `starts` lists the memory slices where it may begin."""

    accelerator: str
    kind: Literal["mig", "amd", "vgpu"]
    profile: str
    count_max: int
    compute_slices: int
    compute_slices_total: int
    core_count: int | None
    memory_slices: int
    memory_slices_total: int
    memory_bytes: float
    starts: str
    memory_modes: str
    source: str
    licence: str
    confidence: str
    notes: str = ""


@dataclass(frozen=True, slots=True)
class NetworkPart(Sourced):
    """A switch, network card, transceiver or cable. Rates are one direction."""

    name: str
    kind: str  # switch_ib switch_eth switch_nvlink switch_ocs nic transceiver cable
    port_count: int
    port_bytes_per_s: float
    bytes_per_s: float
    power_w: float | None
    power_w_max: float | None
    usd: float | None
    latency_s: float | None
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Observation(Sourced):
    """One figure that a fleet reported about its failures, in its own `unit`."""

    system: str
    metric: str
    cause: str
    value: float
    unit: str
    period_days: float | None
    accelerator_count: int | None
    notes: str = ""


@dataclass(frozen=True, slots=True)
class ApiPrice(Sourced):
    """What a provider asks for tokens of one model. Caches and lengths that a row does not state are None."""

    provider: str
    model_id: str
    model: str
    open_weights: bool
    input_usd_per_mtok: float
    output_usd_per_mtok: float
    cached_input_usd_per_mtok: float | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    date: str
    date_precision: str


@dataclass(frozen=True, slots=True)
class PriceRange(Sourced):
    """What a thing costs: the middle and ends of what was reported on a day."""

    name: str
    usd_low: float
    usd: float
    usd_high: float
    date: str


@dataclass(frozen=True, slots=True)
class HardwarePrice(PriceRange):
    """What buying one accelerator, server or rack costs."""

    kind: Literal["gpu", "server", "rack"]
    date_precision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Sourced):
    """One figure in its own `unit`; ends that the source does not state are None."""

    item: str
    value: float
    low: float | None
    high: float | None
    unit: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FacilityFigure(Figure):
    """About buildings."""

    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplianceFigure(Figure):
    """About logs, keys, transfers and spares."""

    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EconomicFigure(Figure):
    """About money that no offer states, with its 80 % range."""

    low: float
    high: float
    date: str


@dataclass(frozen=True, slots=True)
class Regime(Sourced):
    """What a spec's `compliance` stands for."""

    name: str
    title: str
    baseline: Literal["moderate", "high"]
    rented: bool  # machines may be rented where somebody is authorised
    closed: bool  # no connection to other networks
    dedicated: bool  # machines are not shared with other tenants
    hsm_per: Literal["site", "enclave"]
    retention_months: float
    online_months: float
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Authorisation(Sourced):
    """One region of one provider that is authorised for one regime."""

    provider: str
    region: str
    regime: str
    since: str  # "" where not known
    conditions: str


@dataclass(frozen=True, slots=True)
class CostItem(PriceRange):
    """One thing that a regime makes one pay for: `count` units for each of its `driver`."""

    category: str
    regimes: str  # names with spaces between
    place: Literal["any", "rented", "owned"]
    driver: str  # system site enclave node spare_node user admin hsm offline_hsm tb_log tb_online tb_archive
    count: float
    unit: str
    recurs: Literal["once", "year"]
    provider: str = ""  # who alone charges it; "" whoever rents
    notes: str = ""


@dataclass(frozen=True, slots=True)
class KeyPoint(Sourced):
    """One place where a key is used, and how often a module works for it."""

    name: str
    half: Literal["any", "training", "serving"]
    regimes: str  # names with spaces between
    per: str  # year day enclave_s release transfer node_start checkpoint_node request
    operations: float
    protects: str
    standard: str
    evidence: str


@dataclass(frozen=True, slots=True)
class ControlRow(Sourced):
    """One control of NIST SP 800-53 rev 5: who implements it, and how much of it is there."""

    id: str
    family: str
    title: str
    baseline: Literal["moderate", "high"]
    implementer: Literal["product", "platform", "organisation"]
    status: Literal["whole", "partial", "gap", "inherited", "yours"]
    evidence: str  # a file or command of the product; "" where another implements it
    gap: str


@dataclass(frozen=True, slots=True)
class MandateRow(Sourced):
    """One law, order, memorandum or standard; empty dates and names: none."""

    name: str
    title: str
    kind: str  # law order memorandum rule standard guidance
    date: str
    revoked_on: str
    revoked_by: str
    replaced_by: str
    rests_on: str
    bears_on: str
    notes: str = ""


# What the rows of a table are; the other tables are read as cells.
RECORDS: dict[str, type] = {
    "accelerators": Accelerator,
    "api_prices": ApiPrice,
    "authorisations": Authorisation,
    "capacity": Capacity,
    "compliance_figures": ComplianceFigure,
    "compliance_items": CostItem,
    "controls": ControlRow,
    "economics": EconomicFigure,
    "fabrics": Fabric,
    "facility": FacilityFigure,
    "families": ModelFamily,
    "hardware_prices": HardwarePrice,
    "key_uses": KeyPoint,
    "mandates": MandateRow,
    "models": Model,
    "network": NetworkPart,
    "nodes": Node,
    "partitions": Partition,
    "prices": Price,
    "regimes": Regime,
    "regions": Region,
    "reliability": Observation,
    "storage": Storage,
}
TABLE_OF = {kind: table for table, kind in RECORDS.items()}
