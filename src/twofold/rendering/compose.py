"""The target `compose`: for each service the replicas that one machine has room for, by Docker Compose.

Source  the Compose specification: `deploy.resources.reservations.devices`, `healthcheck`, `$$` for a dollar.
"""

import json
import re
from collections.abc import Iterator, Sequence

from twofold.core.errors import ValueRefusedError
from twofold.rendering.commands import Command
from twofold.rendering.devices import image_vendor, is_processor
from twofold.rendering.files import RenderedFile, head
from twofold.rendering.given import Given
from twofold.rendering.own import ASKED_IMAGE
from twofold.rendering.records import FIRST_PORT, ServedPool, label
from twofold.rendering.runtimes import engine_name, runtime_of
from twofold.rendering.slices import device_id, made_before
from twofold.rendering.starting import start_limit
from twofold.rendering.yaml_text import Node, Object, Said, yaml_text

CACHE = "/cache"
UNASKED = "a health check: it needs a program of your image, whose own HEALTHCHECK holds"
HUB = {"HF_TOKEN": "${HF_TOKEN:-}", "HF_HOME": CACHE}  # a secret comes from who starts the file


def compose_files(given: Given) -> tuple[RenderedFile, ...]:
    """A file for each service. What trains is left to other targets."""
    files = []
    for name in dict.fromkeys(pool.service.name for pool in given.pools):
        pools = [pool for pool in given.pools if pool.service.name == name]
        files.append(_service_file(pools, given))
    return tuple(files)


def _service_file(pools: Sequence[ServedPool], given: Given) -> RenderedFile:
    """Devices are numbered through, so that replicas stand beside each other."""
    first, counts = pools[0].service, replicas_on_one(pools)
    services: dict[str, Node] = {}
    lost = [f"the run {run.run.name}: a machine by hand is `--target shell`" for run in given.runs]
    device = 0
    for pool, count in zip(pools, counts, strict=True):
        command, size = given.engine_command(pool), pool.pool.replica.accelerator_count
        if count < pool.pool.replica_count:
            missing, wanted = pool.pool.replica_count - count, pool.pool.replica_count
            lost.append(f"{missing} of {wanted} replicas of {pool.name}: they need more machines")
        lost += [f"{pool.name}: {each}" for each in ([UNASKED] if pool.is_own else command.lost)]
        lost += [each for each in made_before(first.machine.accelerator, given) if each not in lost]
        for number in range(count):
            port, devices = FIRST_PORT + len(services), range(device, device + size)
            services[f"{pool.name}-{number + 1}"] = _replica(pool, command, given, port, devices)
            device += size
    if len(services) > 1:
        last = FIRST_PORT + len(services) - 1
        lost.append(f"one address for all replicas: put a gateway before ports {FIRST_PORT} to {last}")
    name = label(given.plan.name, first.name)
    machine = f"{first.machine.accelerators_per_node} × {first.machine.accelerator}"
    said = f"{first.name}: what one machine of {machine} holds"
    text = yaml_text([{"name": name, "services": services}], head(said, given.digest, lost))
    return RenderedFile(f"{name}.compose.yaml", text)


def replicas_on_one(pools: Sequence[ServedPool]) -> list[int]:
    """Replicas of each pool on one machine of their service: one of each first, then what else finds room.

    A pool whose replica needs more than one machine has none.
    """
    room = pools[0].service.machine.accelerators_per_node
    counts = [0 for _ in pools]
    for wanted in (1, max(pool.pool.replica_count for pool in pools)):
        for at, pool in enumerate(pools):
            size, most = pool.pool.replica.accelerator_count, min(wanted, pool.pool.replica_count)
            more = max(0, min(most - counts[at], room // size))
            counts[at] += more
            room -= more * size
    return counts


def _replica(pool: ServedPool, command: Command, given: Given, port: int, devices: range) -> dict[str, Node]:
    """One service of the file."""
    accelerator = pool.service.machine.accelerator
    service: dict[str, Node] = {
        "image": _image(pool, given),
        **({} if pool.is_own else _started(pool, command, given)),
        "environment": _environment(pool, command),
        "ports": [{"target": pool.port, "published": str(port)}],
        **({} if pool.is_own else {"volumes": [f"${{HF_HOME:-~/.cache/huggingface}}:{CACHE}"]}),
        "ipc": "host",
        **({} if pool.is_own else {"healthcheck": _health(pool, given)}),
        "restart": "unless-stopped",
    }
    said = f"{pool.at}.replica.accelerator_count"
    numbers = [Said(device_id(accelerator, each, given), said) for each in devices]
    return service | _devices(accelerator, given, numbers, _environment(pool, command))


def _started(pool: ServedPool, command: Command, given: Given) -> dict[str, Node]:
    """An engine's words; an image of the user's own has its own."""
    return {
        "entrypoint": [*_words(command.program, pool, given)],
        "command": list(_arguments(command, pool, given)),
    }


def _health(pool: ServedPool, given: Given) -> Object:
    limit_s, because = start_limit(pool, given)
    return {
        "test": _asked(pool, engine_name(pool)),
        "interval": "30s",
        "timeout": "30s",
        "start_period": Said(f"{limit_s}s", because),
    }


def _environment(pool: ServedPool, command: Command) -> dict[str, Node]:
    """What a container is told beside its words."""
    told: dict[str, Node] = {each.flag: Said(each.value, each.because) for each in command.variables}
    return told if pool.is_own else {**HUB, **told}


def _devices(accelerator: str, given: Given, numbers: Sequence[Said], environment: Object) -> dict[str, Node]:
    """What a container sees of the machine's devices. Processors need nothing.

    Raises ValueRefusedError for devices that Compose gives to no container.
    """
    if is_processor(accelerator, given.devices):
        return {}
    vendor = image_vendor(accelerator, given.devices)
    if vendor == "AMD":
        seen = Said(",".join(str(each.value) for each in numbers), numbers[0].because)
        told: dict[str, Node] = {**environment, "HIP_VISIBLE_DEVICES": seen}
        return {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video"], "environment": told}
    if vendor != "NVIDIA":
        hint = "render for the target `shell`"
        raise ValueRefusedError(f"Compose gives no `{accelerator[:64]}` to a container", hint=hint)
    reserved: dict[str, Node] = {"driver": "nvidia", "device_ids": numbers, "capabilities": ["gpu"]}
    return {"deploy": {"resources": {"reservations": {"devices": [reserved]}}}}


def _image(pool: ServedPool, given: Given) -> str:
    """What the engine's makers publish; another one, or a digest, is set by the variable IMAGE, and the image
    of a server of the user's own by one of its own."""
    if pool.is_own:
        own = re.sub(r"\W", "_", pool.pool.name).upper()
        return f"${{IMAGE_{own}:?{ASKED_IMAGE}}}"
    vendor = image_vendor(pool.service.machine.accelerator, given.devices)
    return f"${{IMAGE:-{runtime_of(pool).image(vendor)}}}"


def _arguments(command: Command, pool: ServedPool, given: Given) -> Iterator[Node]:
    """The words of the options; what set one stands behind its last word."""
    for option in command.options:
        *first, last = _words(option.words, pool, given)
        yield from first
        yield Said(last.value, last.because or option.because)


def _words(words: Sequence[str], pool: ServedPool, given: Given) -> Iterator[Said]:
    """Words as Compose reads them: the variable of the weights with its repository, dollars twice."""
    name = given.weights.variable(pool.weights)
    for word in words:
        if word == f'"${name}"':
            yield Said(given.weights.expansion(pool.weights), given.weights.because(pool.weights))
        else:
            yield Said(_literal(word), "")


def _literal(word: str) -> str:
    return word.replace("$", "$$")


def _asked(pool: ServedPool, engine: str) -> list[str]:
    """A real completion of one token: an open port, or `/health`, says less."""
    asked = json.dumps({"model": pool.pool.model, "prompt": "a", "max_tokens": 1})
    where = f"http://127.0.0.1:{pool.port}/v1/completions"
    if engine == "llama.cpp":  # its image has no Python
        header = ["--header", "content-type: application/json"]
        return ["CMD", "curl", "--fail", "--silent", *header, "--data", _literal(asked), where]
    program = (
        "import sys, json, urllib.request as u; "
        "r = u.Request(sys.argv[1], sys.argv[2].encode(), {'content-type': 'application/json'}); "
        "sys.exit(not json.load(u.urlopen(r, timeout=25))['choices'])"
    )
    return ["CMD", "python3", "-c", program, where, _literal(asked)]
