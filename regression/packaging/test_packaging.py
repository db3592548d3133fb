# SPDX-License-Identifier: BSD-3-Clause
"""The recipes of tools/packaging against CMake's requirements. If CMake looks for a library that a
recipe lacks, the test fails.

  test_packaging.py PROGRAM   (PROGRAM: the built trshard; the recipes have its version)
"""
import ast
import os
import re
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
FOLDER = os.path.join(ROOT, "tools", "packaging")
# EasyBuild's names of the libraries, by Spack's names. Its foss toolchain has MPI and OpenBLAS.
EASYBUILD = {"hdf5": "HDF5", "petsc": "PETSc", "jansson": "Jansson", "xxhash": "xxHash", "libyaml": "libyaml", "hwloc": "hwloc"}
TOOLCHAIN = {"openmpi", "openblas"}
PYTHON_MODULES = {"h5py", "matplotlib", "numpy", "tqdm"}


def check(condition, message):
    if not condition:
        sys.exit(f"test_packaging.py: {message}")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def cmake_libraries():
    """Spack's names of the packages that CMake looks for: the last word of each list of packages.
    """
    lines = [line for line in read("tools", "cmake", "dependencies.cmake").splitlines() if not line.startswith("#")]
    named = [line for line in lines if line.endswith(")") and ("PACKAGES " in line or 'trs_note_missing("' in line) and "cmake_parse" not in line]
    found = {line.rsplit(" ", 1)[1].rstrip(")") for line in named}
    return found - {"gcc"}


def spack(wanted):
    text = read("tools", "packaging", "package.py")
    tree = ast.parse(text)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    check([c.name for c in classes] == ["Trshard"] and [ast.unparse(b) for b in classes[0].bases] == ["CMakePackage"], "package.py: not one class Trshard(CMakePackage)")
    calls = [node.value for node in classes[0].body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    named = {}
    for call in calls:
        named.setdefault(call.func.id, []).append(call)
    specs = {re.split(r"[@ +~]", ast.literal_eval(call.args[0]))[0]: ast.literal_eval(call.args[0]) for call in named["depends_on"]}
    missing = {name for name in wanted if name not in specs and not (name == "openmpi" and "mpi" in specs)}
    check(not missing, f"package.py has no depends_on for {sorted(missing)}")
    unknown = set(specs) - wanted - {"mpi", "c", "cmake", "pkgconfig", "cuda", "nccl", "cmocka", "libmicrohttpd", "python"} - {f"py-{m}" for m in PYTHON_MODULES}
    check(not unknown, f"package.py depends on {sorted(unknown)}, which CMake does not look for")
    check({f"py-{m}" for m in PYTHON_MODULES} <= set(specs), "package.py lacks Python modules of the tools")
    least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", read("CMakeLists.txt")).group(1)
    check(specs["cmake"] == f"cmake@{least}:", f"package.py wants {specs['cmake']}, CMakeLists.txt {least}")
    for name in ("hdf5", "petsc"):
        least = re.search(rf'"{name} (\d+\.\d+) or newer', read("tools", "cmake", "dependencies.cmake"), re.IGNORECASE).group(1)
        check(specs[name].startswith(f"{name}@{least}: +mpi"), f"package.py wants {specs[name]}, CMake {least}")
    defined = set(re.findall(r'self\.define\("(\w+)"', text))
    known = set(re.findall(r"(?:option|set)\((TRSHARD_\w+)", read("CMakeLists.txt"))) | {"MPI_C_COMPILER", "BUILD_TESTING"}
    check(defined <= known, f"package.py defines {sorted(defined - known)}, which CMake does not know")
    variants = {ast.literal_eval(call.args[0]) for call in named["variant"]}
    used = {ast.literal_eval(k.value).strip("+~") for call in named["depends_on"] for k in call.keywords if k.arg == "when"}
    check(used <= variants, f"package.py: no variants {sorted(used - variants)}")


def easybuild(wanted, version):
    names = [name for name in os.listdir(FOLDER) if name.endswith(".eb")]
    check(len(names) == 1, f"easyconfigs: {names}")
    recipe = {"SOURCELOWER_TAR_GZ": "%(namelower)s-%(version)s.tar.gz"}
    # an easyconfig is Python
    exec(compile(read("tools", "packaging", names[0]), names[0], "exec"), recipe)
    toolchain = recipe["toolchain"]
    check(names[0] == f"{recipe['name']}-{recipe['version']}-{toolchain['name']}-{toolchain['version']}.eb", f"EasyBuild finds no file called {names[0]}")
    check(recipe["version"] == version, f"{names[0]} is for {recipe['version']}, the program is {version}")
    for key in ("easyblock", "homepage", "description", "sources", "sanity_check_paths", "moduleclass"):
        check(recipe.get(key), f"{names[0]}: no {key}")
    dependencies = {name for name, *_ in recipe["dependencies"]}
    missing = {EASYBUILD.get(name, name) for name in wanted - TOOLCHAIN} - dependencies
    check(not missing, f"{names[0]} has no dependency {sorted(missing)}")
    check({"Python", "SciPy-bundle", "h5py", "matplotlib", "tqdm"} <= dependencies, f"{names[0]} lacks Python modules of the tools")
    check({"CMake", "pkgconf"} <= {name for name, *_ in recipe["builddependencies"]}, f"{names[0]}: no CMake or pkgconf")
    check(all(len(entry) == 2 for entry in recipe["dependencies"] + recipe["builddependencies"]), f"{names[0]}: dependencies are pairs")


def container():
    """The Containerfile copies all that the build and the installation need, and nothing that is not there."""
    text = read("tools", "packaging", "Containerfile").replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    words = [word for word, _ in lines]
    check(set(words) <= {"ARG", "FROM", "COPY", "RUN", "ENV", "LABEL", "WORKDIR", "ENTRYPOINT"} and words[0] == "ARG" and words.count("FROM") == 2, f"Containerfile: instructions {words}")
    check(lines[0][1] == "BASE=docker.io/library/debian:12" and all(line.startswith("${BASE}") for word, line in lines if word == "FROM"), "Containerfile: no one base")
    copied = [name for word, line in lines if word == "COPY" and not line.startswith("--from") for name in line.split()[:-1]]
    missing = [name for name in copied if not os.path.exists(os.path.join(ROOT, name))]
    check(not missing, f"Containerfile copies {missing}, which are not there")
    needed = set(re.findall(r"^\s*(?:install\((?:FILES|PROGRAMS|DIRECTORY) |foreach\(page )([^$)]*)", read("tools", "cmake", "install.cmake"), re.MULTILINE))
    names = {name for found in needed for name in found.split() if "/" in name or name.endswith(".md")} | {"CMakeLists.txt"}
    lost = [name for name in names if os.path.exists(os.path.join(ROOT, name)) and not any(name == one or name.startswith(one + "/") for one in copied)]
    check(not lost, f"Containerfile does not copy {sorted(lost)}, which the installation needs")
    for word, line in lines:
        if word == "RUN":
            done = subprocess.run(["sh", "-n"], input=line, text=True, capture_output=True, check=False)
            check(done.returncode == 0, f"Containerfile, {line}: {done.stderr}")
            for script in re.findall(r"tools/\S+\.(?:sh|py)", line):
                check(os.path.exists(os.path.join(ROOT, script)), f"Containerfile runs {script}, which is not there")


def main():
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    version = subprocess.run([sys.argv[1], "-version"], capture_output=True, text=True, check=True, env=environment).stdout.split()[1]
    wanted = cmake_libraries()
    check({"openmpi", "hdf5", "petsc", "openblas", "jansson", "xxhash", "libyaml", "hwloc"} == wanted, f"read from dependencies.cmake: {sorted(wanted)}")
    spack(wanted)
    easybuild(wanted, version)
    container()
    print(f"the recipes have {', '.join(sorted(wanted))}")


main()
