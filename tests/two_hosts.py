"""`python -m tests.two_hosts`: two hosts, network namespaces of this machine, train one job. As root.

One cable joins them; each runs its rank of a tiny model by a rendezvous address, in a folder that both see.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.tiny_llama import MODEL
from twofold.core.errors import TwofoldError
from twofold.core.extras import require_extra
from twofold.live.processes import stop_all
from twofold.live.training.training_record import read_events, read_steps

ADDRESSES = ("10.99.7.1", "10.99.7.2")
RENDEZVOUS = "10.99.7.1:29431"  # of the first host's own network: nobody else's port
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace, which one command may run in."""

    name: str
    address: str


class NoNetworksError(Exception):
    """No network can be made here."""


def ip(words: str) -> None:
    """Change networks. Raises NoNetworksError where we may not."""
    try:
        subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", "") or str(error)
        raise NoNetworksError(
            f"no networks can be made here, which takes root and iproute2: {why}"
        ) from error


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two namespaces with one cable between them, which nobody else has."""
    own = os.getpid()
    hosts = Host(f"twofold-a-{own}", ADDRESSES[0]), Host(f"twofold-b-{own}", ADDRESSES[1])
    links = f"tfa{own}", f"tfb{own}"
    made = []
    try:
        for host in hosts:
            ip(f"netns add {host.name}")
            made.append(host)
        ends = f"{links[0]} netns {hosts[0].name} type veth peer name {links[1]} netns {hosts[1].name}"
        ip(f"link add {ends}")
        for host, link in zip(hosts, links, strict=True):
            ip(f"-n {host.name} addr add {host.address}/24 dev {link}")
            ip(f"-n {host.name} link set {link} up")
            ip(f"-n {host.name} link set lo up")
        yield hosts
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "del", host.name], check=False)


@contextmanager
def training(
    hosts: Sequence[Host], state: Path, name: str, steps: int, every: int
) -> Iterator[list[subprocess.Popen[str]]]:
    """The trainer on both hosts, each with its log; the second one joins the first."""
    order = {"name": name, "rank_count": 2, "host_count": 2, "rendezvous": RENDEZVOUS, "steps": steps}
    sizes = {"sequence_tokens": 32, "global_batch_sequences": 4, "checkpoint_every_steps": every}
    (state / "config.json").write_text(json.dumps(MODEL), "utf-8")
    (state / f"{name}.json").write_text(json.dumps({**order, **sizes, "corpus_bytes": 60_000}), "utf-8")
    both = [_started(host, state, name, *joins) for host, joins in zip(hosts, ((), ("--join",)), strict=True)]
    try:
        yield both
        for host, process in zip(hosts, both, strict=True):
            code = process.wait(timeout=PATIENCE_S)
            assert code == 0, log_of(host, state, name).read_text("utf-8")[-3000:]
    finally:
        for process in both:
            process.kill()
        stop_all(state / ".state")


def log_of(host: Host, state: Path, name: str) -> Path:
    """What the trainer says on this host."""
    return state / f"{name}-{host.address}.log"


def _started(host: Host, state: Path, name: str, *more: str) -> subprocess.Popen[str]:
    places = ["--folder", str(state / name), "--model-config", str(state / "config.json")]
    module = [sys.executable, "-P", "-m", "twofold.live.training.train_job"]
    command = [*module, str(state / f"{name}.json"), *places, *more]
    with log_of(host, state, name).open("w") as log:
        return subprocess.Popen(
            ["ip", "netns", "exec", host.name, *command], stdout=log, stderr=log, text=True
        )


def main() -> None:
    """Train a few steps on both, and say which rank ran where; where no network may be made, say that."""
    try:
        require_extra("train", "live")
        with tempfile.TemporaryDirectory() as folder, two_hosts() as hosts:
            state = Path(folder)
            with training(hosts, state, "both", steps=4, every=2):
                pass
            ranks = [event["rank"] for event in read_events(state / "both", "worker")]
            for host in hosts:
                said = log_of(host, state, "both").read_text("utf-8").splitlines()
                sys.stdout.write(f"HOST {host.address}: {said[-1]}\n")
            done = read_steps(state / "both")[-1].step
            sys.stdout.write(f"ranks {sorted(ranks)} of 2 hosts have done step {done}\n")
    except (TwofoldError, NoNetworksError) as error:
        sys.stdout.write(f"{error}\n")


if __name__ == "__main__":
    main()
