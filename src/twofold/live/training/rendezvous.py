"""Where the hosts of one run meet: the address and the interface by which this host reaches the first."""

import socket

from twofold.core.errors import ValueRefusedError


def address_towards(rendezvous: str) -> str:
    """This host's own address towards `host:port`; sends nothing. Raises ValueRefusedError for no way."""
    host, _, port = rendezvous.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except (OSError, ValueError, OverflowError) as error:
        what = f"there is no way to `{rendezvous}`: {error}"
        raise ValueRefusedError(
            what, hint="give the first host's address and a free port: 10.0.0.1:29400"
        ) from error


def interface_towards(rendezvous: str) -> str:
    """The name of the network interface that has this address."""
    import psutil

    own = address_towards(rendezvous)
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == own for each in addresses):
            return str(name)
    raise ValueRefusedError(f"no network interface has `{own}`")
