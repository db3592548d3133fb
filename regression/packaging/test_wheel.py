# SPDX-License-Identifier: BSD-3-Clause
"""The Python package: python -m build makes an sdist and wheels, twine accepts them, and pip installs
them into clean environments, where they work.

  test_wheel.py pure|library PYTHON LIBRARY FOLDER "MPIRUN AND ITS OPTIONS"

pure: a wheel without the library uses the library of an installed trshard. library: the sdist
becomes a wheel that has the library. PYTHON has build, mypy, scikit-build-core and twine (tools/setup.sh
--tests installs them); otherwise the exit status is 77. LIBRARY is the built libtrshard.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
PACKAGE = os.path.join(ROOT, "tools", "python")
MODULES = ("__init__", "__main__", "autograd", "metrics", "options", "plots", "ranks", "results", "torch")
# one write: print writes each argument for itself if PYTHONUNBUFFERED is set, and mpirun mixes the pieces of two ranks
SHOW = "\nimport os\nos.write(1, f'{trshard.__version__} {trshard.__file__} {trshard._library._name}\\n'.encode())\n"


def run(*words, code=0, **variables):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRSHARD_LIBRARY", "TRSHARD_ROOT")}
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env={**environment, **variables})
    if done.returncode != code:
        sys.exit(f"{words} ended with {done.returncode}, not {code}:\n{done.stdout}")
    return done.stdout


def build(python, *words, **variables):
    """Run python -m build, and return the new files."""
    before = set(glob.glob("dist/*"))
    run(python, "-m", "build", "--no-isolation", "--outdir", "dist", *words, **variables)
    return sorted(set(glob.glob("dist/*")) - before)


def clean_venv(folder, wheel):
    """A new environment, which has numpy from the system, with the wheel. Returns its programs' folder."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, system_site_packages=True, with_pip=True)
    run(os.path.join(folder, "bin", "python3"), "-m", "pip", "install", "--quiet", "--no-index", wheel)
    return os.path.abspath(os.path.join(folder, "bin"))


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(trshard VERSION ([\d.]+)", file.read()).group(1)


def check_wheel(path, has_library):
    """The files of a wheel, its tag and its metadata."""
    with zipfile.ZipFile(path) as file:
        names = set(file.namelist())
        metadata = file.read(f"trshard-{version()}.dist-info/METADATA").decode()
    for name in [f"trshard/{module}.py" for module in MODULES] + ["trshard/py.typed", "trshard/_tools/trsrows.py"]:
        assert name in names, (name, names)
    assert any(name.endswith("licenses/LICENSE") for name in names), names
    assert ("trshard/libtrshard.so.1" in names) == has_library, names
    assert [name for name in names if name.startswith("trshard/_tools/") and not re.fullmatch(r"trshard/_tools/trs\w+\.py", name)] == [], names
    assert path.endswith("-py3-none-any.whl") != has_library, path
    assert f"\nVersion: {version()}\n" in metadata and "\nRequires-Dist: numpy" in metadata and "\nLicense-Expression: BSD-3-Clause" in metadata, metadata


def check_installed(programs, mpirun, **variables):
    """Run README.md's program on two ranks; the command is the program trshard. Returns the library's path."""
    with open(os.path.join(PACKAGE, "README.md"), encoding="utf-8") as file:
        program = re.search(r"```python\n(.*?)```", file.read(), re.DOTALL).group(1)
    text = run(*mpirun, "-n", "2", os.path.join(programs, "python3"), "-c", program + SHOW, **variables)
    # the lines of the two ranks may be joined
    found = re.search(rf"{re.escape(version())} (\S+?/__init__\.py) (\S+?/libtrshard\.so\.1)", text)
    assert found and os.path.dirname(programs) in found.group(1), text
    library = found.group(2)
    assert run(os.path.join(programs, "trshard"), "-version", **variables).startswith(f"trshard {version()}")
    assert "-batch_sise" in run(os.path.join(programs, "python3"), "-m", "trshard", "-batch_sise", "4", code=64, **variables)
    encoder = "import trshard; trshard._use_tools(); import trsrows; print(trsrows.__file__)"
    assert os.path.dirname(programs) in run(os.path.join(programs, "python3"), "-c", encoder, **variables)
    return library


def check_types(python, programs):
    """mypy uses the installed package's types: it accepts a correct program and refuses an incorrect one."""
    mypy = (python, "-m", "mypy", "--strict", "--python-executable", os.path.join(programs, "python3"), "--cache-dir", "mypy")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "typed_use.py"), encoding="utf-8") as file:
        text = file.read()
    for name, more in (("right.py", ""), ("wrong.py", "number: int = trshard.version()\n")):
        with open(name, "w", encoding="utf-8") as file:
            file.write(text + more)
    run(*mypy, "right.py")
    assert f"wrong.py:{len(text.splitlines()) + 1}: error: Incompatible types" in run(*mypy, "wrong.py", code=1)


def pure(python, library, mpirun):
    (sdist,) = build(python, "--sdist", PACKAGE)
    with tarfile.open(sdist) as file:
        names = {name.split("/", 1)[1] for name in file.getnames() if "/" in name}
    for name in ("PKG-INFO", "pyproject.toml", "LICENSE", "trshard/__init__.py", "repository/CMakeLists.txt", "repository/src/main.c", "repository/src/folders.txt", "repository/gpu/README.md"):
        assert name in names, (name, sorted(names)[:50])
    assert not [name for name in names if name.startswith("repository/tools/python")], names
    assert len([name for name in names if name.startswith("repository/src/")]) == sum(len(files) for _, _, files in os.walk(os.path.join(ROOT, "src")))
    (wheel,) = build(python, "--wheel", PACKAGE, TRSHARD_PURE="1")
    check_wheel(wheel, has_library=False)
    run(python, "-m", "twine", "check", "--strict", sdist, wheel)
    programs = clean_venv("pure", wheel)
    check_types(python, programs)
    os.makedirs("prefix/lib")
    os.symlink(library, "prefix/lib/libtrshard.so.1")
    prefix = os.path.abspath("prefix")
    assert check_installed(programs, mpirun, TRSHARD_ROOT=prefix) == os.path.join(prefix, "lib", "libtrshard.so.1")
    # beside the program trshard of the PATH
    os.mkdir("prefix/bin")
    shutil.copy("/bin/true", "prefix/bin/trshard")
    check_installed(programs, mpirun, PATH=f"{prefix}/bin:{os.environ['PATH']}")
    if "libtrshard.so.1" not in run("/sbin/ldconfig", "-p"):
        message = run(os.path.join(programs, "python3"), "-c", "import trshard", code=1)
        assert "ImportError" in message and "TRSHARD_ROOT" in message and "TRSHARD_LIBRARY" in message, message
    message = run(os.path.join(programs, "python3"), "-c", "import trshard", code=1, TRSHARD_LIBRARY="/absent/libtrshard.so.1")
    assert "/absent/libtrshard.so.1" in message, message


def with_library(python, mpirun):
    """A wheel from the sdist's source; ccache finds the objects of an earlier build."""
    (sdist,) = build(python, "--sdist", PACKAGE)
    with tarfile.open(sdist) as file:
        file.extractall(".")
    (wheel,) = build(python, "--wheel", f"trshard-{version()}", "-C", "build-dir=repository/build", "-C", "cmake.define.TRSHARD_CUDA=OFF",
                     "-C", "cmake.define.TRSHARD_WERROR=ON", CC=os.environ.get("CC", "cc"))
    check_wheel(wheel, has_library=True)
    run(python, "-m", "twine", "check", "--strict", wheel)
    programs = clean_venv("library", wheel)
    shutil.rmtree(f"trshard-{version()}")
    library = check_installed(programs, mpirun)
    assert os.path.dirname(programs) in library, library
    paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", run("readelf", "-d", library))
    assert not any(os.getcwd() in path for path in paths), paths


def main(form, python, library, folder, mpirun):
    if not os.access(python, os.X_OK) or subprocess.run([python, "-c", "import build, mypy, scikit_build_core, twine"], stderr=subprocess.DEVNULL, check=False).returncode:
        print(f"skipped: {python} has not all of build, mypy, scikit-build-core and twine")
        return 77
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    os.chdir(folder)
    mpirun = re.split("[; ]", mpirun)
    if form == "pure":
        pure(python, library, mpirun)
    else:
        with_library(python, mpirun)
    return 0


sys.exit(main(*sys.argv[1:]))
