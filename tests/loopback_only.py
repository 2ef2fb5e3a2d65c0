"""`python tests/loopback_only.py COMMAND …`: run it where no network is but loopback. Linux, as root."""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1
REFUSED = 77  # the usual status of a test that cannot be run here


def main() -> None:
    """The command line."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        sys.stderr.write(f"no network of its own: {os.strerror(ctypes.get_errno())}\n")
        sys.exit(REFUSED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, GET_FLAGS, asked))[1]
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", flags | UP))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
