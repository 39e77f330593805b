"""A program on a pseudo terminal, and what it shows there. Nothing here waits for a time: only for what is shown, with a
limit that stands for 'never'."""
import os
import pty
import re
import select
import subprocess
import time

NEVER_S = 300
# A prompt is shown when the terminal has its editing modes: what is typed sooner is read in others.
PROMPT = rb"\x1b\[\?2004h\r?[>.] "


class Terminal:
    def __init__(self, argv, env):
        self.fd, slave = pty.openpty()
        self.child = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True,
                                      preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)))  # its controlling terminal
        os.close(slave)
        self.shown, self.at = b"", 0

    def more(self):
        """Reads what there is; False at the end."""
        if not select.select([self.fd], [], [], NEVER_S)[0]:
            raise AssertionError(f"nothing came; last was {self.shown[-400:]!r}")
        try:
            part = os.read(self.fd, 65536)
        except OSError:  # how Linux ends a pseudo terminal
            part = b""
        self.shown += part
        return bool(part)

    def until(self, pattern):
        """Everything since the last call up to this regular expression."""
        while not (found := re.search(pattern, self.shown[self.at:])):
            if not self.more():
                raise AssertionError(f"it ended before {pattern!r}: {self.shown[self.at:][-600:]!r}")
        begin, self.at = self.at, self.at + found.end()
        return self.shown[begin:self.at]

    def say(self, keys):
        os.write(self.fd, keys)

    def ask(self, keys):
        """Types at a prompt, and gives what is shown up to the next."""
        self.say(keys)
        return self.until(PROMPT)

    def end(self):
        """The exit code, once everything is read."""
        while self.more():
            pass
        code = self.child.wait(timeout=NEVER_S)
        os.close(self.fd)
        return code

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


def plain(shown):
    """Without control sequences."""
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown).replace(b"\r", b"")


class Tap:
    """Cases as methods, in the order of their definition."""

    def run(self):
        n = 0
        for name, case in [(k, v) for k, v in type(self).__dict__.items() if callable(v) and not k.startswith("_")]:
            n += 1
            begun = time.monotonic()
            try:
                case(self)
                print(f"ok {n} - {name.replace('_', ' ')}", flush=True)
            except (AssertionError, subprocess.SubprocessError, OSError, ValueError, KeyError) as why:
                print(f"not ok {n} - {name.replace('_', ' ')} ({time.monotonic() - begun:.1f} s)\n  {type(why).__name__}: {why}", flush=True)
        print(f"1..{n}")
