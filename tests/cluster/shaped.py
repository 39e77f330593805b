#!/usr/bin/env python3
"""Workers behind links as people have them: 1 and 10 Gbit/s, 0.3 and 20 ms, packets that are lost, a cable that is pulled. Every
answer has the tokens that one process gives.

usage: shaped.py SLUICE MODEL

Skipped where network namespaces, tc or nft are not to be had. TAP; bench/cluster_links.py measures such links."""
import os
import re
import sys
import tempfile
import time

import cluster
import links

# (what, bits per second, milliseconds there and back, percent lost)
LINKS = [("1 Gbit/s and 0.3 ms", 10**9, 0.3, 0), ("10 Gbit/s and 20 ms", 10**10, 20, 0), ("1 Gbit/s, 1 % of the packets lost", 10**9, 0, 1)]
# A cable is pulled for so many seconds: TCP makes up for the first, the second is a lost worker.
CUTS = [("a second", 1), ("seven seconds", 7)]


def sent_again():
    """TCP segments that this namespace has sent more than once."""
    with open("/proc/net/snmp", encoding="ascii") as f:
        names, values = (line.split() for line in f if line.startswith("Tcp:"))
    return int(dict(zip(names, values))["RetransSegs"])


def main():
    sluice, model = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    why = links.why_not()
    if why:
        print(f"ok 1 - links of a given rate, delay and loss # SKIP {why}\n1..1")
        return 0
    links.go_inside()
    with tempfile.TemporaryDirectory() as folder:
        t = cluster.Tests(sluice, model, folder)
        alone = t.alone()[0]
        machines = []
        try:
            machines = [links.Machine(i) for i in range(2)]
            workers = [cluster.Worker(t, model, f"{m.address}:7070", within=m.command()) for m in machines]
            for name, rate, ms, loss in LINKS:
                for m in machines:
                    m.set_rate(rate)
                    m.set_loss(loss)
                between = [links.Delay(w.at, ms / 2000) for w in workers] if ms else workers
                before = sent_again()
                server = cluster.Server(t, *between)
                answers = server.many(4, 200)
                shown = server.metrics()
                trips = [float(shown[f'sluice_worker_round_trip_seconds{{worker="{b.at}"}}']) for b in between]
                lost = sum(int(shown[f'sluice_worker_losses_total{{worker="{b.at}"}}']) for b in between)
                code = server.end()
                shaped = min(trips) * 1000 >= ms and (sent_again() > before or not loss)
                t.check(f"{name}: the tokens of one process", answers == alone and code == 0 and not lost and shaped,
                        f"{code} {trips} {lost} {sent_again() - before} {server.text()[-1500:]} {answers}")
                for b in between:
                    if ms:
                        b.end()
            for m in machines:
                m.set_rate(0)
                m.set_loss(0)
            server = cluster.Server(t, *workers, options=["--worker-wait", "60"])
            for name, seconds in CUTS:
                clients, answers = server.begin(4, 200)
                machines[1].set_up(False)
                time.sleep(seconds)
                machines[1].set_up(True)
                clients.join()
                t.check(f"a link that is down for {name}: the tokens of one process", answers == alone, f"{server.text()[-1500:]} {answers}")
            codes = [server.end()] + [w.end() for w in workers]
            logs = server.text() + "".join(w.text() for w in workers)
            t.check("and all end well", codes == [0, 0, 0] and not re.search(cluster.TROUBLE, logs), f"{codes} {logs[-1500:]}")
        except links.Unable as e:
            t.n += 1
            print(f"ok {t.n} - links of a given rate, delay and loss # SKIP {e}")
        finally:
            for m in machines:
                m.end()
        print(f"1..{t.n}")
    return 1 if t.failed else 0


if __name__ == "__main__":
    sys.exit(main())
