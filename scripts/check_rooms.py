#!/usr/bin/env python3
"""Proves the graphs of folders and rooms that mk/layers.mk states, from what the sources include and from what the
objects call.

usage: check_rooms.py SOURCE_DIR BUILD_DIR "room: room it may use ..." ... [--no-circles room ...]
                      [--folders "folder: folder it may use ..." ...]

A room is a folder of sources, and its objects lie in the folder of that name below BUILD_DIR. Rooms are given in order:
one that uses a room further on would be a circle. Fails on an include or a call that the graph does not have, and on a
folder of sources inside a room's top folder that is no room. Among the files of a room after --no-circles no call may
lead back to the file that it comes from. Between top folders, calls must be those that --folders allows; what they may
include is checked by check_layers.sh."""
import os
import re
import subprocess
import sys

# Functions of libraries that server/wire/wire_recv.c stands in front of: who calls them means the library's.
OF_LIBRARIES = {"recv", "gnutls_record_recv"}


def sources(root, room):
    folder = os.path.join(root, room)
    return sorted(f for f in os.listdir(folder) if re.search(r"\.(c|h|cu|cuh)$", f)) if os.path.isdir(folder) else []


def folders_below(root, top):
    """Every folder below top, and top itself, relative to root."""
    return sorted(os.path.relpath(path, root) for path, _, _ in os.walk(os.path.join(root, top)))


def read_graph(specs, bad):
    """{"room: room it may use ..."} as a dict; what uses one that is not before it is a circle."""
    graph = {}
    for spec in specs:
        room, _, uses = spec.partition(":")
        for used in uses.split():
            if used not in graph:
                bad.append(f"{room} uses {used}, which does not stand before it: a circle")
        graph[room] = set(uses.split())
    return graph


def cut(args, *options):
    """What stands before the first of the options, then what stands behind each."""
    parts, at = [[] for _ in range(len(options) + 1)], 0
    for arg in args:
        if arg in options:
            at = options.index(arg) + 1
        else:
            parts[at].append(arg)
    return parts


def symbols(paths):
    """Of each object: what it defines for others, what it needs."""
    defined, needed = {}, {}
    for line in subprocess.run(["nm", "-gA", *paths], capture_output=True, text=True, check=True).stdout.splitlines():
        path, _, rest = line.partition(":")
        words = rest.split()
        if words[-2] == "U":
            needed.setdefault(path, set()).add(words[-1])
        else:
            defined[words[-1]] = path if words[-1] not in OF_LIBRARIES else None
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
    root, build, bad = sys.argv[1], sys.argv[2], []
    specs, no_circles, folder_specs = cut(sys.argv[3:], "--no-circles", "--folders")
    graph, folders = read_graph(specs, bad), read_graph(folder_specs, bad)
    for top in {room.split("/")[0] for room in graph}:
        for room in folders_below(root, top):
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
    for top in folders:
        for folder in folders_below(root, top):
            for name in sources(root, folder):
                path = os.path.join(build, folder, name[:-2] + ".o")
                if name.endswith(".c") and os.path.exists(path):
                    objects.setdefault(path, folder)
    if not objects:
        sys.exit(f"check-rooms: no objects under {build}")
    defined, needed = symbols(sorted(objects))
    for path, names in sorted(needed.items()):
        room = objects[path]
        for name in sorted(names):
            other = objects.get(defined.get(name))
            if not other or other == room:
                continue
            top, other_top = room.split("/")[0], other.split("/")[0]
            where = f"{os.path.relpath(path, build)} calls {name} of {other}"
            if top != other_top and top in folders and other_top in folders and other_top not in folders[top]:
                bad.append(f"{where}, but {top} may use only: {' '.join(sorted(folders[top]))}")
            if top == other_top and room in graph and other not in graph[room]:
                bad.append(f"{where}, but {room} may use only: {' '.join(sorted(graph[room]))}")
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
    also = f", and the calls between {len(folders)} folders" if folders else ""
    print(f"check-rooms: {n} files of {len(graph)} rooms keep to the graph{also}")


main()
