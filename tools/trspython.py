# SPDX-License-Identifier: BSD-3-Clause
"""The interpreter of the tools, their exit, and a type for their options. The first python3 on the PATH often does not have h5py. So a
tool calls require() before it imports what it needs, and continues in an interpreter that has it."""
import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import unicodedata

CANDIDATES = (os.environ.get("TRSHARD_PYTHON"), "/usr/bin/python3", "python3", "python")
AGAIN = "TRSHARD_PYTHON_TRIED"
DEBIAN = {"numpy": "python3-numpy", "h5py": "python3-h5py", "matplotlib": "python3-matplotlib", "tqdm": "python3-tqdm", "yaml": "python3-yaml"}
PYPI = {"yaml": "pyyaml"}  # packages with another name than their module
NOT_IN_DEBIAN = {"pyarrow"}


try:
    from tqdm import tqdm
except ImportError:
    class tqdm:
        """A progress bar without output, so that no tool needs tqdm."""

        def __init__(self, iterable=(), **_):
            self._iterable = iterable

        def __iter__(self):
            return iter(self._iterable)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def update(self, *_):
            pass

        set_description = set_postfix = close = refresh = update


def has_all(python, modules):
    code = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(m) is None for m in sys.argv[1:]))"
    try:
        return subprocess.run([python, "-c", code, *modules], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def shown(text, keep=""):
    """The text with an escape for each character that moves a terminal's cursor or reverses its text, except for the characters in `keep`."""
    return "".join(c if c in keep or unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp") or c == "\u200d" else c.encode("unicode_escape").decode() for c in str(text))


class Shown:
    """A stream that escapes its input, so that a name from a file cannot control the terminal."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        return self._stream.write(shown(text, "\n\t"))

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def flush():
    """Write main's output. If the disk refuses it, the program ends with 74, and not with a status that has a meaning in main."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        print(f"{os.path.basename(sys.argv[0])}: the output: {error.strerror}", file=sys.stderr)
        sys.exit(74)


def drop_output():
    """Discard output that is left at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(main):
    """End the program with main's status. If the reader of the output stops early (| head), the program ends with 141, as any Unix program does.
    SIGTERM ends it with 143, and Ctrl-C with 130; neither leaves a half-written file. If a file is unexpectedly missing or cannot be written,
    one line names it."""
    if sys.stdout is None:  # closed, as in some batch jobs: a data file would get its number
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    if sys.stdout.errors == "strict":  # so that letters which the terminal lacks are no error
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout = Shown(sys.stdout)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        try:
            status = main()
        finally:
            flush()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BrokenPipeError:
        drop_output()
        status = 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is None:
            raise
        status = f"{os.path.basename(sys.argv[0])}: {error.filename}: {error.strerror}"
    sys.exit(status)


def positive(word):
    """A whole number from 1 on, as a type for argparse."""
    if int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word} is not at least 1")
    return int(word)


def require(*modules):
    """Return if this interpreter has the modules. Otherwise run the tool again in an interpreter that has them, or
    print the command that installs them and end with 69."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        if os.environ.get(AGAIN) == " ".join(modules):
            del os.environ[AGAIN]  # otherwise a batch job that this tool submits would not look for an interpreter
        return
    if AGAIN not in os.environ:
        os.environ[AGAIN] = " ".join(modules)
        for python in filter(None, CANDIDATES):
            if has_all(python, modules):
                sys.stdout.flush()
                os.execvp(python, [python, *sys.argv])
    if NOT_IN_DEBIAN.intersection(missing):
        print(f"{os.path.basename(sys.argv[0])}: {sys.executable} has no {', '.join(missing)}. This line brings it:\n"
              f"  python3 -m venv ~/trshard-python && ~/trshard-python/bin/python3 -m pip install {' '.join(PYPI.get(module, module) for module in modules)}"
              f" && export TRSHARD_PYTHON=~/trshard-python/bin/python3", file=sys.stderr)
        sys.exit(69)
    packages = " ".join(DEBIAN.get(module, "python3-" + module) for module in missing)
    print(f"{os.path.basename(sys.argv[0])}: {sys.executable} has no {', '.join(missing)}. One of these lines brings it:\n"
          f"  {sys.executable} -m pip install {' '.join(PYPI.get(module, module) for module in missing)}\n  apt-get install {packages}   # then TRSHARD_PYTHON=/usr/bin/python3",
          file=sys.stderr)
    sys.exit(69)
