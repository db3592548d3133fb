# SPDX-License-Identifier: BSD-3-Clause
"""The documents' command blocks and option files, run as they stand, on small generated data.

  docs.py --binary BINARY --build FOLDER DOCUMENT...   run the blocks of these: help, README.md, input/FORMAT.md, input, jobs
  docs.py --binary BINARY --build FOLDER complete      every block of every document has a rule, every rule a block, and tests named in rules exist
  docs.py --list                                       all blocks

A block is what a fence (```) encloses, or lines that begin with four blanks; in a comment of jobs/ and input/, lines that begin with "#" and three
blanks; in -help, an indented line that starts the program. RULES says of each block, by the start of its first line, what is done with it. A new block
without a rule fails.
"""
import argparse
import glob
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
PYTHON = "/usr/bin/python3"
MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none"

# What stands in a document for the reader to fill in, and what is another machine's. Applied to each command line, in this order.
SUBSTITUTIONS = [
    (r"\s{3,}\S.*$", ""),  # a remark beside the command
    (r"\s#\s.*$", ""),
    (r"\[-(any_)?option value \.\.\.\]", "-report_interval 0"),
    (r"^\[-.*$", ""),
    (r"\bFILE REFERENCE\b", "run.h5 run.h5"),
    (r"\bFILE\b", "run.h5"),
    (r"\bmpirun -n (\d)", MPIRUN + r" -n \1"),
    (r"\bsrun --mpi=pmix", MPIRUN + " -n 2"),  # Slurm's own way: slurm/two_nodes
    (r"\bsbatch [^/]* jobs/scaling\.sbatch", "bash jobs/scaling.sbatch"),
    (r"(^|\s)trshard ", r"\1build/trshard "),
    (r"(^|\s)(?:python3 )?tools/(\w+\.py)", rf"\1{PYTHON} tools/\2"),
]

# --- actions: each takes the scratch folder and the block's lines ---


def prose(_scratch, _lines):
    """A drawing or a list, not for a shell."""


class Elsewhere:
    """Too long for here, or in need of a machine that this test has not; the test of this name runs it."""

    def __init__(self, test):
        self.test = test

    def __call__(self, scratch, lines):
        print(f"     is run by {self.test}")


def command(line):
    for pattern, replacement in SUBSTITUTIONS:
        line = re.sub(pattern, replacement, line)
    return line


def commands(scratch, lines):
    """Each line by itself, in the same folder; checkpoints of the line before are another run's."""
    for line in map(command, lines):
        shutil.rmtree(os.path.join(scratch, "checkpoints"), ignore_errors=True)
        shell(scratch, line)


class Some:
    """Commands, but those that begin so are run elsewhere."""

    def __init__(self, start, test):
        self.start, self.test = start, test

    def __call__(self, scratch, lines):
        commands(scratch, [line for line in lines if not line.startswith(self.start)])


def options(scratch, lines):
    """An option file: kept as run.opts, and as run.yaml, for the commands, which then run it."""
    with open(os.path.join(scratch, "run.opts"), "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    pairs = [line.split("#")[0].split() for line in lines if line.split("#")[0].strip()]
    with open(os.path.join(scratch, "run.yaml"), "w", encoding="utf-8") as out:
        out.writelines(f'{name[1:]}: "{value}"\n' for name, value in pairs)


def python(scratch, lines):
    shell(scratch, f"{PYTHON} -c '{chr(10).join(lines)}'")


def python_dataset(scratch, lines):
    """Python that writes tiny.h5, which the program then trains on."""
    python(scratch, lines)
    shell(scratch, f"build/trshard -data_train tiny.h5 -steps 2 {SMALL}")


def plan_json(scratch, lines):
    """The plan's format: each of its keys is one that the program writes."""
    with open(os.path.join(scratch, "plan.json"), encoding="utf-8") as file:
        written = keys(json.load(file))
    unknown = keys(json.loads("\n".join(lines))) - written
    assert not unknown, f"the program writes no {sorted(unknown)}"


def keys(tree):
    """Paths of all keys, entries of lists taken together."""
    if isinstance(tree, dict):
        return {f"{key}{rest}" for key, value in tree.items() for rest in {""} | {f".{k}" for k in keys(value)}}
    return {key for entry in tree for key in keys(entry)} if isinstance(tree, list) else set()


RULES = {
    "README.md": [
        ("jobs/quickstart.sh", Elsewhere("docs/quickstart")),  # regression/run.sh: what continuous integration is
        ("# run.opts", options),
        ("mpirun -n 4 build/trshard -options_file run.opts", commands),
    ],
    "src/RULES.md": [("sgd                   w -= lr g", prose)],
    "src/README.md": [("HDF5 -data/reader (thread)->", prose)],
    "src/plan/README.md": [("topology, plan_settings", prose)],
    "gpu/README.md": [],
    "regression/cuda_on_cpu/README.md": [("cmake -S . -B build-cpu", Elsewhere("cuda_on_cpu/build"))],
    "regression/golden/planner/README.md": [],
    "regression/golden/runtime/README.md": [("train.h5        dataset", prose), ("python3 tools/check_train.py", Elsewhere("golden/sgd_dot"))],
    "input/FORMAT.md": [
        ("python3 tools/inspect_file.py --check FILE", commands),
        ("sample 0: a = [3]", prose),
        ("import h5py, numpy as np", python_dataset),
        ("import h5py", python),
        ('{"format": "trshard-plan"', plan_json),
    ],
    "input/criteo_kaggle.opts": [("tools/convert_criteo.py", commands)],
    "input/criteo_terabyte.yaml": [("tools/convert_criteo.py", Some("OPTIONS=", "slurm/two_nodes"))],
    "input/dlrm_dcnv2.yaml": [("build/trshard -task plan", commands)],
    "input/plan_cluster.yaml": [("build/trshard -task plan", commands)],
    "jobs/scaling.sbatch": [('RANKS="1 2 4 8" sbatch', commands), ("RANKS         numbers", prose)],
    "jobs/train.sbatch": [("OPTIONS=input/movielens.opts sbatch", Elsewhere("slurm/two_nodes")), ("OPTIONS         option file", prose)],
    "help": [("mpirun -n 4 trshard -options_file run.opts", commands)],
}
GROUPS = {"input": "input/[!F]*", "jobs": "jobs/*"}
SMALL = "-tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -batch_size 16"

# --- blocks ---


def markdown_blocks(text):
    """Lists of lines, without their indent."""
    found, block, fenced = [], [], False
    for line in text.splitlines() + [""]:
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            block.append(line if fenced else line[4:])
        if block and (line.startswith("```") or (not fenced and not line.startswith("    "))):
            found.append(block)
            block = []
    return found


def comment_blocks(text):
    found, block = [], []
    for line in text.splitlines() + [""]:
        if line.startswith("#   "):
            block.append(line[4:])
        elif block:
            found.append(block)
            block = []
    return found


def help_blocks(binary):
    text = subprocess.run([binary, "-help"], capture_output=True, text=True, check=True).stdout
    return [[line.strip()] for line in text.splitlines() if re.match(r"^\s+(mpirun|srun|trshard|build/trshard) ", line)]


def blocks_of(document, binary):
    if document == "help":
        return help_blocks(binary) if binary else []
    with open(os.path.join(ROOT, document), encoding="utf-8") as file:
        text = file.read()
    return markdown_blocks(text) if document.endswith(".md") else comment_blocks(text)


def documents():
    """All of them: every .md of the tree, the files of jobs/ and input/, and the help."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True, check=False).stdout.split()
    listed = listed or [path for path in RULES if path.endswith(".md")]  # an archive without its history
    groups = [os.path.relpath(path, ROOT) for pattern in GROUPS.values() for path in sorted(glob.glob(os.path.join(ROOT, pattern)))]
    return listed + groups + ["help"]


def rule_of(document, block):
    for start, action in RULES.get(document, []):
        if block[0].startswith(start):
            return action
    raise AssertionError(f'{document}: no rule in regression/docs/docs.py for the block that begins with "{block[0]}"')


# --- a folder to run in ---


def shell(folder, line):
    print(f"     {line}", flush=True)
    small = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", STEPS="3", GLOBAL_BATCH="64", BATCH="8", SLURM_JOB_ID="", SLURM_SUBMIT_DIR="")
    if "scaling" in line:
        small["OPTIONS"] = "small.opts"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=folder, env=small, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, f"{line!r} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"


def criteo_text(lines):
    """Lines of Criteo's layout."""
    rng = random.Random(1)
    return "".join("\t".join([str(rng.randint(0, 1))] + [str(rng.randint(0, 99)) for _ in range(13)] + [f"{rng.randint(0, 30):08x}" for _ in range(26)]) + "\n"
                   for _ in range(lines))


def make_scratch(folder, binary, document):
    """What the commands find: the tree's folders, the program, and data of the names that the documents use."""
    for name in ("input", "jobs"):
        shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name))
    os.symlink(os.path.join(ROOT, "tools"), os.path.join(folder, "tools"))
    for name in ("build", "data", "results/quickstart"):
        os.makedirs(os.path.join(folder, name))
    os.symlink(binary, os.path.join(folder, "build", "trshard"))
    shell(folder, f"{PYTHON} tools/generate_data.py --output train.h5 --num-samples 400 --output-eval eval.h5 --num-eval 100 --features 4 --num-embeddings 100")
    with open(os.path.join(folder, "small.opts"), "w", encoding="ascii") as out:
        out.write(f"-data_train train.h5\n{SMALL}\n")
    if document == "help":
        shutil.copy(os.path.join(folder, "small.opts"), os.path.join(folder, "run.opts"))
    if document == "input/FORMAT.md":
        shell(folder, "build/trshard -options_file small.opts -data_eval eval.h5 -output results/quickstart/train.h5 -plan_output plan.json")
        shutil.copy(os.path.join(folder, "results/quickstart/train.h5"), os.path.join(folder, "run.h5"))
    if document.startswith("input/criteo"):
        with open(os.path.join(folder, "train.txt"), "w", encoding="ascii") as out:
            out.write(criteo_text(3000))
        for day in range(24):
            with gzip.open(os.path.join(folder, f"day_{day}.gz"), "wt", encoding="ascii") as out:
                out.write(criteo_text(20))


def run_document(document, binary):
    blocks = [(rule_of(document, block), block) for block in blocks_of(document, binary)]
    if all(action is prose or isinstance(action, Elsewhere) for action, _ in blocks):
        return
    with tempfile.TemporaryDirectory(prefix="trshard-docs-") as folder:
        make_scratch(folder, binary, document)
        for action, block in sorted(blocks, key=lambda pair: pair[0] is not options):  # an option file stands behind the command that takes it
            print(f"{document}: {block[0]}", flush=True)
            action(folder, block)


def check_complete(binary, build):
    tests = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    known = documents()
    for document in known:
        used = {id(rule_of(document, block)) for block in blocks_of(document, binary)}
        for start, action in RULES.get(document, []):
            assert id(action) in used and any(block[0].startswith(start) for block in blocks_of(document, binary)), f'{document}: no block begins with "{start}"'
            for test in filter(None, [getattr(action, "test", None)]):
                assert re.search(rf": {re.escape(test)}$", tests, re.MULTILINE), f"{document}: there is no test {test}"
    assert not set(RULES) - set(known), f"rules for documents that are not there: {sorted(set(RULES) - set(known))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*")
    parser.add_argument("--binary", type=os.path.abspath)
    parser.add_argument("--build")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for document in documents():
            for block in blocks_of(document, args.binary):
                print(f"{document}: {block[0]}")
        return 0
    n_failed = 0
    for name in args.documents:
        group = [os.path.relpath(path, ROOT) for path in sorted(glob.glob(os.path.join(ROOT, GROUPS[name])))] if name in GROUPS else [name]
        for document in group:
            try:
                check_complete(args.binary, args.build) if name == "complete" else run_document(document, args.binary)
            except (AssertionError, ValueError) as problem:
                n_failed += 1
                print(f"FAIL {document}: {problem}", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
