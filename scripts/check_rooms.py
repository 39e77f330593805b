#!/usr/bin/env python3
"""Proves the graph of rooms that mk/layers.mk states, from what the sources include and from what the objects call.

usage: check_rooms.py SOURCE_DIR BUILD_DIR "room: room it may use ..." ... [--no-circles room ...]

A room is a folder of sources, and its objects lie in the folder of that name below BUILD_DIR. Rooms are given in order:
one that uses a room further on would be a circle. Fails on an include or a call that the graph does not have, and on a
folder of sources inside a room's folder that is no room. Among the files of a room after --no-circles no call may lead
back to the file that it comes from."""
import os
import re
import subprocess
import sys


def sources(root, room):
    folder = os.path.join(root, room)
    return sorted(f for f in os.listdir(folder) if re.search(r"\.[ch]$", f)) if os.path.isdir(folder) else []


def symbols(paths):
    """Of each object: what it defines for others, what it needs."""
    defined, needed = {}, {}
    for line in subprocess.run(["nm", "-gA", *paths], capture_output=True, text=True, check=True).stdout.splitlines():
        path, _, rest = line.partition(":")
        words = rest.split()
        if words[-2] == "U":
            needed.setdefault(path, set()).add(words[-1])
        else:
            defined[words[-1]] = path
    return defined, needed


def circle(calls):
    """The nodes of a circle in the graph {node: nodes that it calls}; []: there is none."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):]
        if node in done:
            return []
        path.append(node)
        for other in sorted(calls.get(node, ())):
            found = visit(other)
            if found:
                return found
        done.add(path.pop())
        return []

    for node in sorted(calls):
        found = visit(node)
        if found:
            return found
    return []


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    root, build, specs, graph, bad = sys.argv[1], sys.argv[2], sys.argv[3:], {}, []
    at = specs.index("--no-circles") if "--no-circles" in specs else len(specs)
    no_circles = specs[at + 1:]
    for spec in specs[:at]:
        room, _, uses = spec.partition(":")
        for used in uses.split():
            if used not in graph:
                bad.append(f"{room} uses {used}, which does not stand before it: a circle")
        graph[room] = set(uses.split())
    tops = {room.split("/")[0] for room in graph}
    for top in tops:
        for name in sorted(os.listdir(os.path.join(root, top))):
            room = f"{top}/{name}"
            if room not in graph and sources(root, room):
                bad.append(f"{room} holds sources and is not in the graph")
    n, objects = 0, {}
    for room, uses in graph.items():
        for name in sources(root, room):
            n += 1
            with open(os.path.join(root, room, name), encoding="utf-8") as f:
                for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', f.read(), re.M):
                    other = os.path.dirname(header)
                    if other.split("/")[0] == room.split("/")[0] and other != room and other not in uses:
                        bad.append(f"{room}/{name} includes {header}, but {room} may use only: {' '.join(sorted(uses))}")
            path = os.path.join(build, room, name[:-2] + ".o")
            if name.endswith(".c") and os.path.exists(path):
                objects[path] = room
    if not objects:
        sys.exit(f"check-rooms: no objects under {build}")
    defined, needed = symbols(sorted(objects))
    for path, names in sorted(needed.items()):
        room = objects[path]
        for name in sorted(names):
            other = objects.get(defined.get(name))
            if other and other.split("/")[0] == room.split("/")[0] and other != room and other not in graph[room]:
                bad.append(f"{os.path.relpath(path, build)} calls {name} of {other}, but {room} may use only: "
                           f"{' '.join(sorted(graph[room]))}")
    for room in no_circles:
        if room not in graph:
            bad.append(f"{room} is to have no circles and is not in the graph")
        files = {path for path in objects if objects[path] == room}
        found = circle({path: {defined.get(name) for name in needed.get(path, ())} & files - {path} for path in files})
        if found:
            names = [os.path.basename(path)[:-2] + ".c" for path in found]
            bad.append(f"{room} has a circle of calls: {' -> '.join(names + names[:1])}")
    for line in bad:
        print(f"check-rooms: {line}")
    if bad:
        sys.exit(1)
    print(f"check-rooms: {n} files of {len(graph)} rooms keep to the graph")


main()
