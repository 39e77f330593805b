"""A socket between two peers that passes on what each sends, as a test wants it."""
import socket
import threading


class Relay:
    """Connects who comes to `at` with who listens at `to`; both are addresses of the family."""

    def __init__(self, at, to, family=socket.AF_UNIX):
        self.to, self.family = to, family
        self.listener = socket.socket(family)
        self.listener.bind(at)
        self.listener.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def takes(self, a):
        """Whether this connection is passed on; else it is the caller's to close."""
        return True

    def pass_on(self, parts, way):
        """What is sent on of the parts that come "there" or "back"; where it ends, the connection does."""
        yield from parts

    def ended(self, a, b):
        """All that a has sent has been passed on to b, or no more of it will be."""
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept(self):
        while True:
            a, _ = self.listener.accept()
            if self.takes(a):
                self.join(a)

    def join(self, a):
        b = socket.socket(self.family)
        try:
            b.connect(self.to)
        except OSError:
            a.close()
            b.close()
            return
        for ends in ((a, b, "there"), (b, a, "back")):
            threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, a, b, way):
        try:
            for data in self.pass_on(iter(lambda: a.recv(65536), b""), way):
                b.sendall(data)
        except OSError:
            pass
        self.ended(a, b)
