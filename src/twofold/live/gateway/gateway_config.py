"""What a gateway process is told: one JSON file, written by `up`, read once at the start."""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from twofold.core.data import from_data, to_json
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.gateway.engine_fields import ENGINE_FIELDS
from twofold.live.gateway.reach import is_loopback
from twofold.live.server_urls import base_of, key_in, trust
from twofold.policy.gate import settings as gates

HEALTH_PATH = "/health"  # a load balancer has no key, and learns no more than that somebody answers
MOST = 1e15  # of any limit: what is larger is a mistake, and no timer takes it
PLACES_MAX = 1 << 20  # of one replica
SHA256 = re.compile("[0-9a-f]{64}")
NEED_CONTROLLER = ("scaling", "warm")  # settings that start and stop replicas by themselves


@dataclass(frozen=True, slots=True)
class GatewayReplica:
    """One engine behind the gateway. `model` is what that engine calls the model: often its folder."""

    replica_id: str
    host: str
    port: int
    model: str
    in_flight_limit: int
    zone: str = ""
    pool: str = ""
    version: str = ""
    variant: str = ""  # the smaller model that it serves, by the name that classes permit; "": the service's
    tls: bool = False
    prefix: str = ""  # of its paths, before `/v1`
    key_variable: str = ""  # of the environment, that holds the key which it asks for; "": it asks for none
    authorities: str = (
        ""  # path of a PEM file of whom its certificate may be by, besides whom this machine trusts
    )
    engine: str = ""  # of `engine_fields.ENGINE_FIELDS`, what its requests may have; "": as the service's

    @property
    def base(self) -> str:
        """Its URL, without a path of the protocol."""
        return base_of(self.host, self.port, tls=self.tls, prefix=self.prefix)

    @property
    def unasked(self) -> str:
        """Why it cannot be asked: a key that is not there, certificates that cannot be read; "": it can."""
        try:
            key_in(self.key_variable)
            if self.tls:
                trust(self.authorities)
        except ValueRefusedError as error:
            return error.message
        return ""


@dataclass(frozen=True, slots=True)
class GatewayKey:
    """A key that clients send as `authorization: Bearer KEY`, and the tenant that they are by it."""

    tenant: str
    sha256: str  # of the key, in hex: the file holds no secret


@dataclass(frozen=True, slots=True)
class GatewayAdmin:
    """Where the controller talks to the gateway: a port of its own on loopback, and the key that it shows."""

    port: int
    key: str  # the file that holds it is its owner's alone

    @property
    def own_key(self) -> str:
        """By which whoever runs the service asks it as a tenant: this one stays on the admin's port."""
        return sha256(f"own door\0{self.key}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """What bounds every request, every connection and the log."""

    connection_limit_count: int = 4096  # of clients at once; beyond, 503
    body_limit_bytes: int = 4 << 20
    body_timeout_s: float = 30.0  # from the request's head to its last byte
    answer_limit_bytes: int = 32 << 20  # of an answer that is not streamed
    connect_timeout_s: float = 1.0
    # Of a class that promises nothing; any other is waited for as long as its goals and beliefs say.
    first_byte_timeout_s: float = 60.0  # from asking the replica to the first generated text
    between_bytes_timeout_s: float = 30.0
    whole_answer_timeout_s: float = 300.0  # of an answer that is not streamed: its first byte is its last
    probe_timeout_s: float = 0.25
    grace_s: float = 10.0  # what is in flight may finish in, after SIGTERM
    input_bytes_per_token: float = 4.0  # of prompt text; a guess of the work, not a bill
    output_tokens_max: int = 1 << 20  # that a request may ask for; it is work that the gate believes in
    answers_max: int = 128  # that one request may ask for, and prompts that it may have
    default_output_tokens: int = 256  # of a request that states no limit; the replica is told it too
    log_limit_bytes: int = 64 << 20  # of one file of the log …
    log_file_count: int = 4  # … and how many are kept


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All of it. `model_name` is what clients call the model; what engines call it they never see."""

    host: str
    port: int
    replicas: tuple[GatewayReplica, ...]
    beliefs: gates.Beliefs
    log: str  # path of the data log
    model_name: str = "default"
    gate: gates.GateSettings = field(default_factory=gates.GateSettings)
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    keys: tuple[GatewayKey, ...] = ()  # none: clients say in `x-tenant` for whom they ask, and are believed
    admin: GatewayAdmin | None = None  # None: the replicas are those of this file for good
    gate_digest: str = ""  # of the gate as it was built, for the twin and for this; "": written by hand
    keys_file: str = ""  # path of more of them, read again when it changes
    certificate: str = ""  # path of a PEM file: connections are by TLS
    private_key: str = ""  # path of its key
    engine: str = "openai"  # of `engine_fields.ENGINE_FIELDS`: what requests may have
    context_tokens: int = 0  # of the model: prompt and answer together; 0: not known
    cache_tokens: int = 0  # of a replica's KV cache; 0: not known
    tokenizer: str = ""  # path of the model's tokenizer.json, which counts what may not fit
    requests_log: str = ""  # path of the log of requests; "": there is none
    requests_key: str = ""  # path of the key that seals it, made if it is not there; "": none
    overflow: GatewayReplica | None = None  # the hosted API of `gate.overflow`
    samples_log: str = ""  # path of the text of some requests, redacted …
    samples_fraction: float = 0.0  # … of so many of them; 0: none is kept
    tier_servers: tuple[GatewayReplica, ...] = ()  # of `gate.tiers`; their prefix is the whole path


def write_gateway_config(config: GatewayConfig) -> str:
    """The JSON text that `read_gateway_config` reads."""
    return to_json(config, only_ascii=True)


def read_gateway_config(path: Path) -> GatewayConfig:
    """The configuration in a file. Raises FileError on an unknown key, a missing one, or a wrong type."""
    try:
        config = from_data(GatewayConfig, json.loads(path.read_text("utf-8")))
        _refuse_nonsense(config)
        return config
    except (OSError, ValueError, RecursionError, AssertionError) as error:
        raise FileError(
            f"`{path}` does not configure a gateway: {error}", hint="let `twofold up` write it"
        ) from error


def _refuse_nonsense(config: GatewayConfig) -> None:
    """Values that no gateway could run with. Raises ValueError."""
    names = [replica.replica_id for replica in config.replicas]
    names += [config.overflow.replica_id] if config.overflow else []
    names += [each.replica_id for each in config.tier_servers]
    if len(names) != len(set(names)):
        raise ValueError("two replicas have the same `replica_id`")
    hosted, told = config.overflow, config.gate.overflow
    if (hosted.replica_id if hosted else None) != (told.replica_id if told else None):
        raise ValueError("`overflow` and `gate.overflow` are given together, under one `replica_id`")
    there = {each.replica_id for each in config.tier_servers}
    if there != {name for tier in config.gate.tiers for name in tier.replica_ids}:
        raise ValueError("`tier_servers` are those that `gate.tiers` names, by their `replica_id`")
    for replica in (*config.replicas, *config.tier_servers):
        refuse_replica(replica)
    if hosted is not None:
        _refuse_place(hosted)
        if hosted.engine and hosted.engine not in ENGINE_FIELDS:
            raise ValueError(f"`engine` of the hosted API is one of {', '.join(ENGINE_FIELDS)}")
    _refuse_address(config.host, config.port)
    for path in (config.log, config.requests_log):
        if "\0" in path or (path and Path(path).is_dir()):
            raise ValueError("`log` and `requests_log` are paths of files")
    if not config.log or config.log == config.requests_log:
        raise ValueError("`log` is the path of a file of its own")
    digests = [key.sha256 for key in config.keys]
    if len(digests) != len(set(digests)):
        raise ValueError("two tenants have the same key")
    for key in config.keys:
        if not key.tenant or not SHA256.fullmatch(key.sha256):
            raise ValueError("`keys` name a tenant and the 64 hexadecimal digits of its key's SHA-256")
    if config.engine not in ENGINE_FIELDS:
        raise ValueError(f"`engine` is one of {', '.join(ENGINE_FIELDS)}")
    for name in NEED_CONTROLLER if config.admin is None else ():
        if getattr(config.gate, name) is not None:
            raise ValueError(f"`{name}` needs a controller, and `admin` names none")
    if bool(config.certificate) != bool(config.private_key):
        raise ValueError("`certificate` and `private_key` are given together")
    if not (is_loopback(config.host) or config.keys or Path(config.keys_file or ".").is_file()):
        raise ValueError(f"`host` {config.host} is reached from elsewhere: that needs keys")
    for name, value in asdict(config.limits).items():
        if not 0 < value < MOST:
            raise ValueError(f"`{name}` is not above zero, or beyond {MOST:.0e}")


def refuse_replica(replica: GatewayReplica) -> None:
    """A replica that nobody could send requests to. Raises ValueError."""
    _refuse_place(replica)
    if why := replica.unasked:
        raise ValueError(why)


def as_asked(config: GatewayConfig) -> tuple[GatewayConfig, str]:
    """Without a hosted API that cannot be asked, and why it cannot: replicas serve all the same."""
    why = config.overflow.unasked if config.overflow is not None else ""
    if why:  # it is not the gate that was rehearsed any more
        config = replace(config, overflow=None, gate=replace(config.gate, overflow=None), gate_digest="")
    return config, why


def _refuse_place(replica: GatewayReplica) -> None:
    if not replica.replica_id:
        raise ValueError("`replica_id` is the name of a replica")
    if not 1 <= replica.in_flight_limit <= PLACES_MAX:
        raise ValueError(f"`in_flight_limit` of {replica.replica_id} is below 1, or above {PLACES_MAX}")
    _refuse_address(replica.host, replica.port)
    if re.search(r"[\x00- ?#@\x7f]", replica.prefix) or (replica.prefix and replica.prefix[0] != "/"):
        raise ValueError(f"`prefix` of {replica.replica_id} is the beginning of a path")


def _refuse_address(host: str, port: int) -> None:
    if not 0 < port < 1 << 16:
        raise ValueError(f"`port` {port} is none: 1 to 65535")
    if not host or "\0" in host:
        raise ValueError("`host` is the name of one")
