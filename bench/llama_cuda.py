#!/usr/bin/env python3
"""Makes llama.cpp's prebuilt CUDA library (npm package @node-llama-cpp/linux-x64-cuda) fit for one GPU architecture.

usage: bench/llama_cuda.py PACKAGE/bins/linux-x64-cuda/libggml-cuda.so OUT.so [ARCH]     (default 90)

For some architectures the package holds PTX alone, and of a newer toolkit than a driver may know. What is there for ARCH is
compiled by the ptxas that is installed, and takes the place of everything else in the library: so it is smaller, starts
without compiling, and runs the code that a build for ARCH would have. Kernels that do not compile are left out; calling one
is an error. Needs readelf, zstd, and ptxas and fatbinary of the CUDA toolkit. Development only."""
import concurrent.futures
import os
import re
import struct
import subprocess
import sys
import tempfile

MAGIC = 0xBA55ED50
R_X86_64_RELATIVE = 8


def sections(path):
    out = subprocess.run(["readelf", "-SW", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in out.splitlines():
        m = re.match(r" *\[ *\d+\] (\S+) +\S+ +([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+)", line)
        if m:
            yield m[1], (int(m[2], 16), int(m[3], 16), int(m[4], 16))


def containers(image, offset, size):
    at, end = offset, offset + size
    while at < end:
        magic, _, header, length = struct.unpack_from("<IHHQ", image, at)
        if magic != MAGIC:
            at += 8
            continue
        yield at, at + header, at + header + length
        at += header + length


def ptx_of(image, at, end, arch):
    """The PTX for arch of one container, as text; None: it has none."""
    while at < end:
        kind, _, header, length = struct.unpack_from("<HHIQ", image, at)
        if (kind, struct.unpack_from("<I", image, at + 28)[0]) == (1, arch):
            data = bytes(image[at + header:at + header + length])
            if data[:4] == b"\x28\xb5\x2f\xfd":  # zstd, with padding behind it
                data = subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL).stdout
            return data.rstrip(b"\0").lstrip()
        at += header + length
    return None


def toolkit_ptx():
    """The newest PTX that the installed ptxas reads: as many as the toolkit, CUDA 13.0 being 9.0."""
    text = subprocess.run(["ptxas", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    major, minor = map(int, re.search(r"release (\d+)\.(\d+)", text).groups())
    return (major - 4, minor)


def compiled(ptx, arch, newest, folder, i):
    version = tuple(map(int, re.search(rb"\.version (\d+)\.(\d+)", ptx).groups()))
    if version > newest:
        ptx = re.sub(rb"\.version \d+\.\d+", b".version %d.%d" % newest, ptx, count=1)
    base = os.path.join(folder, str(i))
    with open(base + ".ptx", "wb") as f:
        f.write(ptx)
    if subprocess.run(["ptxas", f"-arch=sm_{arch}", "-o", base + ".cubin", base + ".ptx"], stderr=subprocess.DEVNULL).returncode:
        return None
    subprocess.run(["fatbinary", f"--create={base}.fatbin", "-64", "--compress-all",
                    f"--image3=kind=elf,sm={arch},file={base}.cubin"], check=True)
    with open(base + ".fatbin", "rb") as f:
        return f.read()


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    path, out, arch = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else 90
    with open(path, "rb") as f:
        image = bytearray(f.read())
    found = dict(sections(path))
    address, offset, size = found[".nv_fatbin"]
    old = list(containers(image, offset, size))
    newest = toolkit_ptx()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ptx = [ptx_of(image, begin, end, arch) for _, begin, end in old]
        new = list(pool.map(lambda i: compiled(ptx[i], arch, newest, folder, i) if ptx[i] else None, range(len(old))))
    image[offset:offset + size] = bytes(size)
    at, where, spare = (offset + 15) & ~15, {}, None
    for (begin, _, _), blob in zip(old, new):
        if blob:
            if at + len(blob) > offset + size:
                sys.exit("llama_cuda.py: the compiled code does not fit into the library")
            image[at:at + len(blob)] = blob
            where[begin - offset + address] = at - offset + address
            spare = at - offset + address if spare is None else spare
            at = (at + len(blob) + 15) & ~15
    for begin, _, _ in old:
        where.setdefault(begin - offset + address, spare)
    _, rela, rela_size = found[".rela.dyn"]
    n = 0
    for r in range(rela, rela + rela_size, 24):
        _, info, addend = struct.unpack_from("<QQq", image, r)
        if info & 0xFFFFFFFF == R_X86_64_RELATIVE and addend in where:
            struct.pack_into("<q", image, r + 16, where[addend])
            n += 1
    if spare is None or n != len(old):
        sys.exit(f"llama_cuda.py: {n} of {len(old)} parts were found by the library's own list")
    with open(out, "wb") as f:
        f.write(image)
    print(f"{sum(map(bool, new))} of {len(old)} parts compiled for sm_{arch}, {(at - offset) >> 20} MiB")


main()
