#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Check the includes in src/ and gpu/, the callers of each library, the licence line of every file, and the files at the top of the repository.

    check_includes.py [ROOT]

A folder may include itself, and the folders and headers that src/folders.txt names. If src/README.md has a table of folders whose last column is
"may include", this column must agree with src/folders.txt. Prints one line per finding; exit 0 iff none.
"""
import argparse
import pathlib
import re
import subprocess
import sys

# the calls of a library, and the folders that may make them
LIBRARIES = [
    (re.compile(r"#include <hdf5\.h>"), {"io"}, "HDF5"),
    (re.compile(r"#include <jansson\.h>"), {"spec", "plan", "serve"}, "jansson"),
    (re.compile(r"#include <microhttpd\.h>"), {"serve"}, "libmicrohttpd"),
    (re.compile(r"#include <omp\.h>|#pragma omp"), {"compute", "cpu", "device"}, "OpenMP"),
    (re.compile(r"#include <(cuda|nccl|cublas|nvtx)"), {"gpu"}, "CUDA or NCCL"),
    (re.compile(r"\bMPI_I?(Alltoall|Reduce_scatter)[a-z_]*\("), {"comm", "dist"}, "MPI data traffic"),
    (re.compile(r"\bPetscOptions(Get|Has|Insert|Set|Clear)"), {"core"}, "PETSc options"),
    # PetscPrintf() and TrsPrint() print names of files safely
    (re.compile(r"\b(v?printf|puts|putchar)\(|\bv?f(printf|puts)\((stdout|stderr)"), {"core", "gpu"}, "raw printing"),
]
INCLUDE = re.compile(r'^\s*#\s*include "([^"/]+)/([^"]+)"')
TOP = {"CMakeLists.txt", "README.md", "src", "gpu", "input", "jobs", "tools", "regression"}  # hidden files may also be there
SOURCES = (".c", ".h", ".cu", ".cuh", ".inc")
LICENSED = SOURCES + (".py", ".sh", ".sbatch", ".opts", ".yaml", ".cmake", "CMakeLists.txt")


def folder_of(path, root):
    parts = path.relative_to(root).parts
    return "gpu" if parts[0] == "gpu" else parts[1]


def read_folders(root):
    """Folder -> the folders and headers that it may include, from src/folders.txt."""
    lines = (root / "src" / "folders.txt").read_text().splitlines()
    return {name: words.split() for name, words in (line.split(":") for line in lines if line and not line.startswith("#"))}


def check_readme(root, folders, problems):
    """Checks the table of folders in src/README.md. It need not mention a header that all folders may include."""
    table = re.search(r"^\| folder \|.*\| may include \|$(.*?)^$", (root / "src" / "README.md").read_text(), re.M | re.S)
    for line in table[1].splitlines() if table else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name, said = cells[0].strip("`/"), cells[-1].replace(",", "").split()
        if name not in folders:
            continue
        if cells[-1] == "all above but cpu":
            said = [other for other in list(folders)[: list(folders).index(name)] if other != "cpu"]
        if {word for word in said if word != "-"} != {word for word in folders[name] if word != "spec/vocabulary.h"}:
            problems.append(f"{root / 'src/README.md'}: {name} may include '{cells[-1]}' there, '{' '.join(folders[name])}' in src/folders.txt")


def check_source(path, root, folders, problems):
    folder = folder_of(path, root)
    allowed = set(folders.get(folder, [])) | {folder}
    if folder not in folders:
        problems.append(f"{path}: folder '{folder}' is not in src/folders.txt")
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if found and found[1] not in allowed and f"{found[1]}/{found[2]}" not in allowed:
            problems.append(f"{path}:{number}: {folder} may not include {found[1]}/{found[2]}")
        for pattern, places, name in LIBRARIES:
            if pattern.search(line) and folder not in places:
                problems.append(f"{path}:{number}: {name} belongs to {', '.join(sorted(places))}, not to {folder}")


def tracked(root, which="-co"):
    """The files that git tracks (c) or would track (o: files that it does not ignore)."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", which, "--exclude-standard"], capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.splitlines()]
    return [p for p in root.rglob("*") if p.is_file() and ".git" not in p.parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent, type=pathlib.Path)
    root = parser.parse_args().root.resolve()
    problems = []
    folders = read_folders(root)
    check_readme(root, folders, problems)
    n = 0
    for name in sorted({path.relative_to(root).parts[0] for path in tracked(root, "-c")} - TOP):
        if not name.startswith(".") and (root / ".git").exists():
            problems.append(f"{root / name}: not one of the folders and files at the top: {', '.join(sorted(TOP))}")
    for path in sorted(tracked(root)):
        if not path.is_file():
            continue
        relative = path.relative_to(root)
        if relative.parts[0] in ("src", "gpu") and path.suffix in SOURCES:
            n += 1
            check_source(path, root, folders, problems)
        golden = relative.parts[:2] == ("regression", "golden")
        if not golden and path.name.endswith(LICENSED):
            head = path.read_text(errors="replace").splitlines()[:3]
            if not any("SPDX-License-Identifier: BSD-3-Clause" in line for line in head):
                problems.append(f"{path}: no SPDX line in its first three lines")
    print("\n".join(problems + [f"{n} source files, {len(problems)} findings"]))
    return 1 if problems or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
