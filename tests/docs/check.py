#!/usr/bin/env python3
"""What the documents point at: links and their headings, files and make's targets that they name; that those of the API name
all fields of requests; and that the tarball of `make dist` has every file which its own documents link to. Pages of other
hosts are not asked for.

usage: check.py

TAP."""
import glob
import os
import re
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCUMENTS = ["*.md", "docs/*.md", "deploy/*.md", "demo/*.md"]
SOURCE_FOLDERS = ["backends", "bench", "cli", "cluster", "common", "demo", "deploy", "docs", "engine", "expert_cache", "mk", "model", "net", "pull", "scripts",
                  "server", "streaming", "tests", "web"]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def documents(root):
    return sorted(os.path.relpath(p, root) for pattern in DOCUMENTS for p in glob.glob(os.path.join(root, pattern)))


def anchors(text):
    """Of the headings, as GitHub makes them: lower case, hyphens for spaces, no other punctuation, a number from the second of a kind on."""
    names, seen = set(), {}
    for heading in re.findall(r"^#+ +(.*?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return names


def links(text):
    """(path, anchor) of each link within the tree."""
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link.partition("#")[::2] for link in found if not re.match(r"[a-z]+:", link)]


def link_faults(root, names):
    faults = []
    for name in names:
        for path, anchor in links(read(root, name)):
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if not os.path.exists(os.path.join(root, target)):
                faults.append(f"{name}: there is no {target}")
            elif anchor and anchor not in anchors(read(root, target)):
                faults.append(f"{name}: {target} has no heading #{anchor}")
    return faults


def file_faults(root, names, known):
    """Of `folder/name.ext`, from the root or from any folder, as in `kernels/x.cu`."""
    faults = []
    for name in names:
        for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:c|h|cu|cuh|py|sh|md|mk|mjs|json|txt|def))`", read(root, name)):
            if not path.startswith("build/") and not any(f == path or f.endswith("/" + path) for f in known):
                faults.append(f"{name}: there is no {path}")
    return faults


def test_faults(root, names):
    """Of `tests/x.c` (`one`, `another`): the file must have both."""
    faults = []
    for name in names:
        for path, cases in re.findall(r"`(tests/[\w./-]+)` \((`[^()]*`)\)", read(root, name)):
            text = read(root, path) if os.path.exists(os.path.join(root, path)) else ""
            faults += [f"{name}: {path} has no {case}" for case in re.findall(r"`([^`]+)`", cases) if case not in text]
    return faults


def makefiles(root):
    """The text of the Makefile and of the parts that it includes, and their names."""
    makefile = read(root, "Makefile")
    parts = re.findall(r"^include (mk/\S+)", makefile, re.M)
    return "\n".join([makefile, *(read(root, p) for p in parts)]), parts


def make_targets(rules):
    return set(re.findall(r"^([a-z][a-z-]*)(?=[ :])[^=\n]*:(?!=)", rules, re.M)) | set(" ".join(re.findall(r"^\.PHONY:(.*)", rules, re.M)).split())


def target_faults(root, names, targets):
    said = [(name, t) for name in names for t in re.findall(r"(?:`|^    )make ([a-z][a-z-]*)", read(root, name), re.M)]
    return [f"{name}: make has no target {t}" for name, t in said if t not in targets]


def field_faults(root, sources):
    """Fields that requests may have, by the tables of server/request/fields.h, and that no document of the API names."""
    told = "".join(read(root, f"docs/{name}.md") for name in ("API", "STRUCTURED", "TOOLS"))
    known = sorted(set(re.findall(r'\{"([a-z_]+)",\s*SL_FIELD_', sources)))
    return [f"no document of the API names the field {name}" for name in known if not re.search(rf"\b{name}\b", told)] if known else ["no fields were found"]


def packed(root):
    """What make_dist.sh copies as it is, whole folders among it."""
    return re.search(r'^documents="(.*)"$', read(root, "scripts/make_dist.sh"), re.M)[1].split()


def pack_faults(root, names, inside):
    def has(path):
        return any(path == i or path.startswith(i + "/") for i in inside)

    return [f"{name} is in the tarball, {target} is not" for name in names if has(name) for path, _ in links(read(root, name))
            if path and not has(target := os.path.normpath(os.path.join(os.path.dirname(name), path)))]


def tarball_faults(text, root, inside):
    """Of the tarball's own README: what it links to is inside, and it does not speak of what is not."""
    faults = [f"deploy/tarball/README.md: {path} is not in the tarball" for path, _ in links(text) if not any(path == i or path.startswith(i + "/") for i in inside)
              or not os.path.exists(os.path.join(root, path))]
    faults += [f"deploy/tarball/README.md names {word!r}" for word in re.findall(r"\b(?:make|gcc|checkout|git|sources?|build/\S*|apt-get)\b", text)]
    faults += [f"{name}: the tarball's README has no heading #{anchor}" for name in documents(root) for path, anchor in links(read(root, name))
               if anchor and os.path.normpath(os.path.join(os.path.dirname(name), path or name)) == "README.md" and path and anchor not in anchors(text)]
    return faults


def wire_faults():
    """docs/WIRE.md has the tables that the code is made from."""
    r = subprocess.run([os.path.join(ROOT, "scripts", "wire_doc.py"), "--check"], capture_output=True, text=True)
    return [r.stdout.strip() + r.stderr.strip()] if r.returncode else []


def bad_faults():
    """The checks on documents that are wrong in one point each."""
    cases = [("[a](none.md)", 1), ("[a](#none)", 1), ("[a](README.md#other)", 1), ("# A `b`, c\n\n[a](README.md#a-b-c)", 0), ("# A\n# A\n[a](#a-1)", 0),
             ("`server/none.c`", 1), ("`kernels/x.cu`", 0), ("`make none`", 1), ("    make all", 0), ("[a](https://example.org/)", 0)]
    out = []
    for text, wanted in cases:
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "README.md"), "w", encoding="utf-8") as f:
                f.write(text)
            got = link_faults(root, ["README.md"]) + file_faults(root, ["README.md"], ["backends/kernels/x.cu"]) + target_faults(root, ["README.md"], {"all"})
            out += [] if len(got) == wanted else [f"{text!r}: {got}"]
    with tempfile.TemporaryDirectory() as root:
        for path, text in (("README.md", "`tests/a.c` (`there`, `gone`)"), ("tests/a.c", "void there(void)")):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        out += [] if test_faults(root, ["README.md"]) == ["README.md: tests/a.c has no gone"] else ["a test that is not there passed"]
    out += [] if field_faults(ROOT, '{"never_heard_of",\n SL_FIELD_BOOL') and field_faults(ROOT, "") else ["a field of which nothing is said passed"]
    names = documents(ROOT)
    out += [] if all(tarball_faults(text, ROOT, packed(ROOT)) for text in ("    make demo", "[a](server)", "[a](docs/none.md)")) else ["a README that the tarball does not fit passed"]
    out += [] if pack_faults(ROOT, names, ["README.md", "docs"]) and pack_faults(ROOT, names, ["docs"]) else ["a tarball without what is linked passed"]
    return out


def main():
    names = documents(ROOT)
    known = [os.path.relpath(os.path.join(folder, f), ROOT) for top in SOURCE_FOLDERS for folder, inner, files in os.walk(os.path.join(ROOT, top))
             for f in files if "node_modules" not in folder]
    rules, parts = makefiles(ROOT)
    alone = {os.path.relpath(p, ROOT) for p in glob.glob(os.path.join(ROOT, "mk", "*.mk"))} - set(parts)
    targets = make_targets(rules)
    sources = "".join(read(ROOT, os.path.relpath(p, ROOT)) for p in glob.glob(os.path.join(ROOT, "server", "**", "*.c"), recursive=True))
    checks = [("the checks find what is wrong", bad_faults()), ("links", link_faults(ROOT, names)), ("files", file_faults(ROOT, names, known)),
              ("tests by name", test_faults(ROOT, names)),
              ("make's targets", target_faults(ROOT, names, targets) + [f"{p}: the Makefile does not include it" for p in sorted(alone)]), ("fields of requests", field_faults(ROOT, sources)),
              ("the wire protocol's tables", wire_faults()),
              ("what the tarball's documents link to is in it", pack_faults(ROOT, names, packed(ROOT))),
              ("the tarball's README", tarball_faults(read(ROOT, "deploy/tarball/README.md"), ROOT, [*packed(ROOT), "demo/demo.gguf"]))]
    for n, (name, faults) in enumerate(checks, 1):
        print(f"{'not ok' if faults else 'ok'} {n} - {name}")
        for fault in faults:
            print(f"  {fault}")
    print(f"1..{len(checks)}")


if __name__ == "__main__":
    main()
