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
    unknown = set(specs) - wanted - {"mpi", "c", "cmake", "pkgconfig", "cuda", "nccl", "cmocka", "python"} - {f"py-{m}" for m in PYTHON_MODULES}
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


def apptainer():
    text = read("tools", "packaging", "trshard.def")
    header = dict(re.findall(r"^(Bootstrap|From): (\S+)$", text, re.MULTILINE))
    check(header == {"Bootstrap": "docker", "From": "debian:12"}, f"trshard.def: {header}")
    parts = re.split(r"^%(\w+)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2]))
    check(list(sections) == ["files", "post", "environment", "runscript", "test", "labels", "help"], f"trshard.def: sections {list(sections)}")
    copied = [line.split() for line in sections["files"].split("\n") if line.strip()]
    for source, target in copied:
        check(os.path.exists(os.path.join(ROOT, source)) and target.endswith("/"), f"trshard.def copies {source} to {target}")
    check("TRSHARD_ROOT=/opt/trshard" in sections["environment"] and "--prefix /opt/trshard" in sections["post"], "trshard.def: no one prefix")
    for shell in ("post", "environment", "runscript", "test"):
        done = subprocess.run(["sh", "-n"], input=sections[shell], text=True, capture_output=True, check=False)
        check(done.returncode == 0, f"trshard.def, %{shell}: {done.stderr}")
    for script in re.findall(r"tools/\S+\.(?:sh|py)", sections["post"] + sections["test"]):
        check(os.path.exists(os.path.join(ROOT, script)), f"trshard.def runs {script}, which is not there")


def main():
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    version = subprocess.run([sys.argv[1], "-version"], capture_output=True, text=True, check=True, env=environment).stdout.split()[1]
    wanted = cmake_libraries()
    check({"openmpi", "hdf5", "petsc", "openblas", "jansson", "xxhash", "libyaml", "hwloc"} == wanted, f"read from dependencies.cmake: {sorted(wanted)}")
    spack(wanted)
    easybuild(wanted, version)
    apptainer()
    print(f"the recipes have {', '.join(sorted(wanted))}")


main()
