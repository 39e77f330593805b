"""Ports for programs that have to know theirs before they start."""
import random
import socket


def free_port():
    """One that nobody has now, and that the kernel gives to nobody who asks for any: such a one could be taken before it is used."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        first = int(f.read().split()[0])
    for _ in range(1000):
        port = random.randrange(1024, first) if first > 2048 else 0
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return s.getsockname()[1]
    raise OSError("no free port was found")
