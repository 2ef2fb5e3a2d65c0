"""Runs the plan for real on this machine: trainer, artefacts, engines, gateway, load generator.

Below this door are child processes and the code that starts, watches and measures them. Heavy libraries are
imported by the children, or inside functions.
"""

from twofold.live.artefact import publish, verify
from twofold.live.checkpoints import newest_complete
from twofold.live.engines import BLOCK_TOKENS, EngineSettings, engine_name, kv_capacity_tokens
from twofold.live.gate_log import GateHistory, GateRun, read_gate_log
from twofold.live.gateway_config import (
    GatewayConfig,
    GatewayKey,
    GatewayLimits,
    GatewayReplica,
    read_gateway_config,
    write_gateway_config,
)
from twofold.live.loader import Prompt, closed_loop, open_loop
from twofold.live.processes import (
    free_port,
    log_path,
    need_free_port,
    running,
    start,
    stop_all,
    wait_until_open,
)
from twofold.live.prompts import prompts_of
from twofold.live.supervisor import Service, ServiceSettings, bring_up, need_gateway_port
from twofold.live.train_job import TrainJob, published_artefact, run_training

__all__ = [
    "BLOCK_TOKENS",
    "EngineSettings",
    "GateHistory",
    "GateRun",
    "GatewayConfig",
    "GatewayKey",
    "GatewayLimits",
    "GatewayReplica",
    "Prompt",
    "Service",
    "ServiceSettings",
    "TrainJob",
    "bring_up",
    "closed_loop",
    "engine_name",
    "free_port",
    "kv_capacity_tokens",
    "log_path",
    "need_free_port",
    "need_gateway_port",
    "newest_complete",
    "open_loop",
    "prompts_of",
    "publish",
    "published_artefact",
    "read_gate_log",
    "read_gateway_config",
    "run_training",
    "running",
    "start",
    "stop_all",
    "verify",
    "wait_until_open",
    "write_gateway_config",
]
