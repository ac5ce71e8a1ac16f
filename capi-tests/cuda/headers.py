#!/usr/bin/env python3
"""Compares our declarations of the CUDA driver API with several versions of NVIDIA's cuda.h.

    headers.py build/pypi nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-runtime

Each requirement is a wheel of the Python package index that contains cuda.h. The script downloads
it into the directory, extracts lists from our own sources, and compiles and runs headers_check.c
with both. The exit code is 77 if the index cannot be reached, and 1 if a declaration differs.
"""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

SKIPPED = 77
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OURS = [HERE / "fake/api.h", HERE / "gpu/driver.h"]
DRIVER = ROOT / "src/device/driver.rs"

# Constants that the library defines itself, and their names in cuda.h.
OWN = {
    "RELAXED": "CU_STREAM_CAPTURE_MODE_RELAXED",
    "PORTABLE": "CU_MEMHOSTALLOC_PORTABLE",
    "DEVICE_MAP": "CU_MEMHOSTALLOC_DEVICEMAP",
}


def main():
    cache, requirements = Path(sys.argv[1]), sys.argv[2:]
    out = cache / "cuda-headers"
    out.mkdir(parents=True, exist_ok=True)
    lists = lists_of_ours(OURS, of_library(out / "numbers"))
    (out / "lists.h").write_text(lists)
    for requirement in requirements:
        check(fetch(requirement, out), out)


def fetch(requirement, out):
    """Extracts cuda.h from the wheel that pip chooses. Returns its directory."""
    wheels = out / re.sub(r"\W+", "_", requirement)
    found = list(wheels.glob("*.whl"))
    if "==" not in requirement or not found:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--only-binary=:all:", "--timeout=10", "--retries=2"]
        ran = subprocess.run([*pip, "-d", wheels, requirement], capture_output=True, text=True)
        if ran.returncode:
            last = (ran.stderr.strip().splitlines() or ["pip printed no error"])[-1]
            print(f"skipped: {requirement} cannot be fetched: {last}", file=sys.stderr)
            sys.exit(SKIPPED)
        found = list(wheels.glob("*.whl"))
    wheel = max(found, key=lambda path: path.stat().st_mtime)
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith("/include/cuda.h"))
        target = wheels / wheel.stem / "cuda.h"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read(name))
    return target.parent


def check(include, out):
    """Compiles and runs headers_check.c, and compiles the program in CUDA.md."""
    cc = [os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror"]
    cc += ["-isystem", include]
    program = include / "headers_check"
    run([*cc, f"-I{HERE}", f"-I{out}", HERE / "headers_check.c", "-o", program])
    run([program])
    example = re.search(r"^```c$(.*?)^```$", (ROOT / "CUDA.md").read_text(), re.M | re.S).group(1)
    run([*cc, f"-I{ROOT / 'include'}", "-fsyntax-only", "-x", "c", "-"], input=example, text=True)


def run(command, **options):
    sys.stdout.flush()
    ended = subprocess.run([str(word) for word in command], **options)
    if ended.returncode:
        sys.exit(1)


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def lists_of_ours(headers, library):
    texts = [without_comments(header.read_text()) for header in headers]
    api = texts[0]
    prototypes = [
        " ".join(words.split())
        for text in texts
        for words in re.findall(r"^(?:CUDA_EXPORT )?(CUresult\s+cu\w+\([^;]*\));", text, re.M)
    ]
    functions = [re.search(r"(cu\w+)\(", prototype).group(1) for prototype in prototypes]
    constants = re.findall(r"\b(CU[A-Z0-9_]+) = ", api)
    types = re.findall(r"^typedef .*?(\w+);|^} (\w+);|^typedef void \(\*(\w+)\)", api, re.M)
    types = [next(filter(None, names)) for names in types]
    structs = dict(
        (name, members_of(body))
        for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", api, re.S)
    )
    handles = [name for name in types if re.search(rf"\*{name}[;)]", api)]
    integers = [name for name in types if name not in structs and name not in handles]
    if min(map(len, (functions, constants, handles, integers, structs))) == 0:
        sys.exit("headers.py does not understand fake/api.h any more")
    declared = [name for name in functions if re.search(rf"\b{name}\(", api)]
    renamed = declared + constants + types
    members = [(name, member) for name, all in structs.items() for member in all]
    rust, numbers, offsets, sizes = library
    return "\n".join(
        [
            "#ifdef OURS",
            *(f"#define {name} our_{name}" for name in renamed),
            "#elif defined(THEIRS)",
            *(f"#undef {name}" for name in renamed),
            macro("FUNCTIONS", [(name,) for name in functions]),
            macro("CONSTANTS", [(name,) for name in constants]),
            macro("TYPES", [(name,) for name in types]),
            macro("HANDLES", [(name,) for name in handles]),
            macro("INTEGERS", [(name,) for name in integers]),
            macro("MEMBERS", members),
            macro("NUMBERS", numbers),
            macro("OFFSETS", offsets),
            macro("SIZES", sizes),
            "#elif defined(COMPARED)",
            *(f"{prototype};" for prototype in prototypes + rust),
            "#endif",
            "",
        ]
    )


def macro(name, rows):
    lines = "".join(f" \\\n  X({', '.join(map(str, row))})" for row in rows)
    return f"#define {name}{lines}"


def members_of(body):
    """The names of members, from text like `size_t srcXInBytes, srcY;` and `char bytes[16];`."""
    names = []
    for declaration in filter(str.strip, body.split(";")):
        for part in declaration.split(","):
            names.append(re.findall(r"\w+", re.sub(r"\[.*", "", part))[-1])
    return names


def of_library(directory):
    """The prototypes of src/device, and the constants that it takes from a crate."""
    text = DRIVER.read_text()
    rows = re.findall(r"^    (cu[A-Z]\w*)\(([^)]*)\);$", text, re.M)
    if not rows:
        sys.exit(f"headers.py does not understand {DRIVER.name} any more")
    rust = [
        f"CUresult {name}({', '.join(c_of(kind.strip()) for kind in kinds.split(','))})"
        for name, kinds in rows
    ]
    sources = sorted((ROOT / "src").rglob("*.rs"))
    texts = [path.read_text() for path in sources]
    used = {pair for text in texts for pair in re.findall(r"\b(CU\w+)::(CU\w+)", text)}
    numbers, offsets, sizes = numbers_of_crate(sorted(used), directory)
    calls = (ROOT / "src/device/calls.rs").read_text()
    for name, theirs in OWN.items():
        numbers.append((theirs, re.search(rf"const {name}: \w+ = (\d+);", calls).group(1)))
    return rust, numbers, offsets, sizes


C_TYPES = {"c_int": "int", "c_uint": "unsigned", "u32": "unsigned", "usize": "size_t"}
C_TYPES |= {"c_char": "char", "c_void": "void"}


def c_of(kind):
    """Translates a Rust type into C: `*mut *const c_char` is `const char **`."""
    pointers, constant = 0, ""
    while match := re.match(r"\*(mut|const) (.*)", kind):
        pointers, constant, kind = pointers + 1, match.group(1), match.group(2)
    kind = C_TYPES.get(kind, kind)
    return f"{'const ' if constant == 'const' else ''}{kind} {'*' * pointers}".strip()


MEMBERS = """srcXInBytes srcY srcMemoryType srcHost srcDevice srcArray srcPitch dstXInBytes dstY
    dstMemoryType dstHost dstDevice dstArray dstPitch WidthInBytes Height""".split()


def numbers_of_crate(used, directory):
    """Runs a program that is built with the same crate, version and features as the library."""
    manifest, lock = (ROOT / "Cargo.toml").read_text(), (ROOT / "Cargo.lock").read_text()
    features = re.search(r"^cudarc = \{.*?features = (\[.*?\])", manifest, re.M | re.S).group(1)
    version = re.search(r'name = "cudarc"\nversion = "(.*?)"', lock).group(1)
    (directory / "src").mkdir(parents=True, exist_ok=True)
    (directory / "Cargo.toml").write_text(
        f'[package]\nname = "numbers"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n'
        f'[dependencies]\ncudarc = {{ version = "={version}", default-features = false, '
        f"features = {features} }}\n"
    )
    lines = [f'println!("{name} {{}}", sys::{kind}::{name} as u64);' for kind, name in used]
    lines += [
        f'println!("offset {name} {{}}", std::mem::offset_of!(sys::CUDA_MEMCPY2D, {name}));'
        for name in MEMBERS
    ]
    lines += [
        f'println!("size {name} {{}}", size_of::<sys::{name}>());'
        for name in "CUDA_MEMCPY2D CUcontext CUdevice CUdeviceptr CUevent CUstream".split()
    ]
    body = "\n    ".join(lines)
    (directory / "src/main.rs").write_text(
        f"use cudarc::driver::sys;\n\nfn main() {{\n    {body}\n}}\n"
    )
    cargo = ["cargo", "run", "--quiet", "--manifest-path", directory / "Cargo.toml"]
    ran = subprocess.run([*cargo, "--offline"], capture_output=True, text=True)
    if ran.returncode:
        ran = subprocess.run(cargo, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        sys.exit(1)
    rows = [line.split() for line in ran.stdout.splitlines()]
    numbers = [tuple(row) for row in rows if len(row) == 2]
    offsets = [("CUDA_MEMCPY2D", *row[1:]) for row in rows if row[0] == "offset"]
    sizes = [tuple(row[1:]) for row in rows if row[0] == "size"]
    return numbers, offsets, sizes


if __name__ == "__main__":
    main()
