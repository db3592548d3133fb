# SPDX-License-Identifier: BSD-3-Clause
"""Run the documents' command blocks and option files unchanged, with small generated data.

  docs.py --binary BINARY --build FOLDER DOCUMENT...   run these documents' blocks: help, any .md
                                                       file, input, jobs
  docs.py --binary BINARY --build FOLDER complete      check that every block has a rule, that every
                                                       rule has a block, and that rules' tests exist
  docs.py --binary BINARY --build FOLDER options       check that document_options.py makes
                                                       input/OPTIONS.md from -help, and that
                                                       documents name no other options
  docs.py --log FILE --block START DOCUMENT            check that FILE contains the output that the
                                                       document shows after "$ START"
  docs.py --list                                       list all blocks

A block is the content of a fence (```), or lines that begin with four blanks. In a comment of jobs/
and input/, it is lines that begin with "#" and three blanks. In -help, it is an indented line that
starts the program.

Three forms of block need no rule.
- If the first line is "$ COMMAND", the block is a transcript. Each command is run, and its output
  must contain the text that the document shows after it, in this order. "..." stands for omitted
  text, and lines may be broken elsewhere. Whole numbers must be equal. Other numbers may differ by
  a tenth, or by 0.001, because losses depend on the machine. Times and speeds may have any value. A
  last line "exit code N" is the command's exit code.
- If the first line is "# NAME" with the ending .opts, .yaml or .py, the block becomes a file with
  this name for the later commands.
- A fence with the word text is only for reading.

For every other block, RULES defines the action by the beginning of its first line. A block without
a rule fails.
"""
import argparse
import difflib
import functools
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

# Values that the reader must fill in, and values of another machine. The substitutions apply to
# each command line, in this order.
REMARKS = [
    (r"\s{3,}\S.*$", ""),  # a remark after the command
    (r"\s#\s.*$", ""),
]
SUBSTITUTIONS = [
    (r"\[-(any_)?option value \.\.\.\]", "-report_interval 0"),
    (r"^\[-.*$", ""),
    (r"\bFILE REFERENCE\b", "run.h5 run.h5"),
    (r"\bFILE\b", "run.h5"),
    (r"\bmpirun -n (\d)", MPIRUN + r" -n \1"),
    (r"\bsrun --mpi=pmix", MPIRUN + " -n 2"),  # Slurm's launcher: slurm/two_nodes
    (r"\bsbatch [^/]* jobs/scaling\.sbatch", "bash jobs/scaling.sbatch"),
    (r"(^|\s)trshard ", r"\1build/trshard "),
    (r"^trshard$", "build/trshard"),
    (r"(^|\s)(?:python3 )?tools/(\w+\.py)", rf"\1{PYTHON} tools/\2"),
    (r"(^|\s)python3 (?!tools/)", rf"\1{PYTHON} "),
]
NUMBER = re.compile(r"(?<![A-Za-z_])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
# the unit of a number that differs in each run
MEASURED = re.compile(r" (?:[munµ]?s|\w+/s|samples a second)\b")
MARK = "\0"  # in place of a number
EXIT_CODE = re.compile(r"exit code (\d+)$")

# --- actions: each gets the scratch folder and the block's lines ---


def prose(_scratch, _lines):
    """A drawing or a list, not for a shell."""


class Elsewhere:
    """Too long for this test, or it needs a machine that is not available. The named test runs
    it."""

    def __init__(self, test):
        self.test = test

    def __call__(self, scratch, lines):
        print(f"     is run by {self.test}")


def command(line, substitutions=None):
    for pattern, replacement in substitutions or REMARKS + SUBSTITUTIONS:
        line = re.sub(pattern, replacement, line)
    return line


def plain(text, folder=None):
    """Text for a comparison, and its numbers, each replaced by MARK. Line breaks, the scratch
    folder's name and progress bars are removed."""
    text = re.sub(r"[^\n]*\r(?!\n)", "", text)
    if folder:
        text = text.replace(os.path.realpath(folder) + "/", "").replace(folder + "/", "")
    return re.sub(r"[\s-]+", " ", NUMBER.sub(MARK, text)).strip(), NUMBER.findall(text)


def exchanges_of(lines):
    """The commands of a transcript, each with the text shown after it and its expected exit
    code."""
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append([line[2:], [], 0])
        elif found and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1][0] = found[-1][0][:-1] + line.strip()
        elif EXIT_CODE.match(line):
            found[-1][2] = int(EXIT_CODE.match(line).group(1))
        else:
            found[-1][1].append(line)
    return [(line, "\n".join(printed), code) for line, printed, code in found]


def same_number(stated, printed, unit):
    """Whether a printed number matches a document's number. unit: the text after the document's
    number."""
    if stated == printed or MEASURED.match(unit):
        return True
    one, other = (float(number.replace(",", "")) for number in (stated, printed))
    return one == other if re.fullmatch(r"[+-]?[\d,]+", stated) else abs(one - other) <= max(0.1 * abs(one), 0.001)


def compare_printed(printed, output, folder=None):
    """The output contains each piece between "...", in this order."""
    (output, numbers), at = plain(output, folder), 0
    for text in printed.split("..."):
        piece, stated = plain(text)
        units = piece.split(MARK)[1:]
        found, differ = output.find(piece, at), []
        while found >= 0:
            first = output.count(MARK, 0, found)
            wrong = [f"{one}, printed is {other}" for one, other, unit in zip(stated, numbers[first:], units) if not same_number(one, other, unit)]
            if not wrong:
                break
            differ = differ or wrong
            found = output.find(piece, found + 1)
        assert found >= 0, f"not printed (or not in this place):\n{text}\n" + ("\n".join(differ) or "printed was:\n" + output[at:].replace(MARK, "0")[:3000])
        at = found + len(piece)


def transcript(scratch, lines):
    """Commands and their output."""
    for line, printed, code in exchanges_of(lines):
        compare_printed(printed, shell(scratch, command(line, SUBSTITUTIONS), code), scratch)


def kept_file(scratch, lines):
    """A file for the later commands."""
    with open(os.path.join(scratch, FILE_NAME.match(lines[0]).group(1)), "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


def with_torch(scratch, lines):
    """A transcript of a Python with torch, if TRSHARD_TORCH_PYTHON is one."""
    python = os.environ.get("TRSHARD_TORCH_PYTHON", PYTHON)
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode:
        print(f"     is not run: {python} has no torch")
        return
    transcript(scratch, [re.sub(r"\bpython3 ", python + " ", line) for line in lines])


def commands(scratch, lines):
    """Run each line separately, in the same folder. Checkpoints of the previous line are removed,
    because they belong to another run."""
    for line in map(command, lines):
        shutil.rmtree(os.path.join(scratch, "checkpoints"), ignore_errors=True)
        shell(scratch, line)


class Some:
    """Commands, except those that begin with `start`, which another test runs."""

    def __init__(self, start, test):
        self.start, self.test = start, test

    def __call__(self, scratch, lines):
        commands(scratch, [line for line in lines if not line.startswith(self.start)])


def tests(_scratch, lines):
    """Calls of regression/run.sh and ctest: they are valid, and select tests."""
    for line in lines:
        words = re.sub(r"^(regression/run.sh|ctest --test-dir build)", "", line)
        shell(ROOT, f"test $(ctest --test-dir {BUILD[0]} -N {words} | sed -n 's/^Total Tests: //p') -gt {-1 if 'rerun' in line else 0}")


def in_tree(_scratch, lines):
    """Run the whole block in the source tree, with this build."""
    lines = [re.sub(r"\bbuild/", f"{BUILD[0]}/", re.sub(r"^mpirun -n (\d)", MPIRUN + r" -n \1", line)) for line in lines]
    shell(ROOT, "\n".join(lines))


def python(scratch, lines):
    shell(scratch, f"{PYTHON} -c '{chr(10).join(lines)}'")


def python_dataset(scratch, lines):
    """Python code that writes tiny.h5, on which the program then trains."""
    python(scratch, lines)
    shell(scratch, f"build/trshard -data_train tiny.h5 -steps 2 {SMALL}")


def plan_json(scratch, lines):
    """The plan's format: the program writes each of its keys."""
    with open(os.path.join(scratch, "plan.json"), encoding="utf-8") as file:
        written = keys(json.load(file))
    unknown = keys(json.loads("\n".join(lines))) - written
    assert not unknown, f"the program writes no {sorted(unknown)}"


def mapping_json(_scratch, lines):
    """The example is a mapping, and has all keys of an entry but those of vocabularies."""
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    import trsmapping
    found = trsmapping.read("\n".join(lines), "the page")
    for entries, defaults in ((found.root["dense"], trsmapping.DENSE), (found.root["sparse"], trsmapping.SPARSE)):
        assert all(set(entry) == set(defaults) for entry in entries), f"the example has the keys {set(entries[0])}, expected {set(defaults)}"


def keys(tree):
    """Paths of all keys. Entries of lists have the same path."""
    if isinstance(tree, dict):
        return {f"{key}{rest}" for key, value in tree.items() for rest in {""} | {f".{k}" for k in keys(value)}}
    return {key for entry in tree for key in keys(entry)} if isinstance(tree, list) else set()


RULES = {
    "README.md": [
        ("$ jobs/quickstart.sh", Elsewhere("docs/quickstart")),
    ],
    "src/RULES.md": [("sgd                   w -= lr g", prose), ("bias  = fp16(min)", prose)],
    "gpu/README.md": [],
    "regression/README.md": [
        ("regression/run.sh -L quick", tests),
        ("regression/run.sh", tests),
        ("ctest --test-dir build", tests),
        ("export PYTHONPATH", in_tree),
        ("mpirun -n 3 build/regression", in_tree),
        ("/* SPDX", prose),
    ],
    "regression/cuda_on_cpu/README.md": [("cmake -S . -B build-cpu", Elsewhere("cuda_on_cpu/build"))],
    "regression/golden/planner/README.md": [],
    "regression/golden/runtime/README.md": [("train.h5        dataset", prose), ("python3 tools/check_train.py", Elsewhere("golden/sgd_dot"))],
    "tools/python/README.md": [("import numpy as np", Elsewhere("packaging/wheel_pure"))],
    "input/INSTALL.md": [("cmake -B build -G Ninja", Elsewhere("install/tree"))],
    "input/PYTORCH.md": [("$ PYTHONPATH=tools/python TRSHARD_LIBRARY=build/libtrshard.so.1 mpirun -n 2 python3 clicks_torch.py", with_torch)],
    "input/SERVING.md": [("$ python3 tools/examples/follow_and_serve.py", Elsewhere("examples/follow_and_serve"))],
    "input/FORMAT.md": [
        ("python3 tools/inspect_file.py --check FILE", commands),
        ("sample 0: a = [3]", prose),
        ("import h5py, numpy as np", python_dataset),
        ("bias  = float16", prose),
        ("import h5py", python),
        ('{"format": "trshard-plan"', plan_json),
        ('{"format": "trshard-mapping"', mapping_json),
    ],
    "input/criteo_kaggle.opts": [("tools/convert_criteo.py", commands)],
    "input/criteo_terabyte.yaml": [("tools/convert_criteo.py", Some("OPTIONS=", "slurm/two_nodes"))],
    "input/dlrm_dcnv2.yaml": [("build/trshard -task plan", commands)],
    "input/plan_cluster.yaml": [("build/trshard -task plan", commands)],
    "jobs/scaling.sbatch": [('RANKS="1 2 4 8" sbatch', commands), ("RANKS         numbers", prose)],
    "jobs/README.md": [
        # docs/quickstart runs the first line's converter, which needs a network
        ("python3 tools/convert_movielens.py --output-dir data", Elsewhere("slurm/two_nodes")),
        ("srun --mpi=pmix build/trshard -options_file run.opts", commands),
        ("PETSC_DIR=/path/of/petsc cmake -B build-mpich", Elsewhere("mpich/build_and_run")),
        ("STAGE=/tmp OPTIONS=", Elsewhere("slurm/two_nodes")),
        ("tools/bench_hosts.sh build/trshard", Elsewhere("bench/hosts")),
        ("tools/bench_messages.py build/trshard", Elsewhere("bench/messages")),
        ("python3 tools/report.py --watch", Elsewhere("tools/report")),
        ('RANKS="1 2 4 8" sbatch', Elsewhere("jobs/scaling")),
        ("python3 tools/sweep.py new", Some(("OPTIONS=", "python3 tools/sweep.py plot"), "slurm/templates")),
    ],
    "jobs/train_gpu.sbatch": [
        ("OPTIONS=input/criteo_terabyte.yaml sbatch", Elsewhere("slurm/templates")),
        ("DEVICE  the value", prose),
    ],
    "jobs/train_container.sbatch": [
        ("IMAGE=trshard.sif OPTIONS=", Elsewhere("slurm/templates")),
        ("IMAGE              the image", prose),
    ],
    "jobs/train_preemptible.sbatch": [
        ("OPTIONS=input/movielens.opts sbatch --partition", Elsewhere("slurm/templates")),
        ("CHECKPOINT_EVERY  steps", prose),
    ],
    "jobs/follow.sbatch": [("OPTIONS=clicks.opts FOLLOW=new sbatch", Elsewhere("slurm/templates")), ("FOLLOW            the folder", prose)],
    "jobs/sweep.sbatch": [
        ("python3 tools/sweep.py new", Some("OPTIONS=", "slurm/templates")),
        ("OPTIONS       option file", prose),
    ],
    "jobs/train.sbatch": [("OPTIONS=input/movielens.opts sbatch", Elsewhere("slurm/two_nodes")), ("OPTIONS         option file", prose)],
    "help": [("mpirun -n 4 trshard -options_file run.opts", commands)],
}
# pages whose examples use the files of another page
FOLLOWS = {f"input/{page}.md": "input/TUTORIAL.md" for page in ("DATA", "MODELS", "PYTORCH", "SHARDING", "WEIGHTS")}
BUILD = []  # --build, as an absolute path
GROUPS = ("input", "jobs")  # folders in which comments of files are read, too
FILE_NAME = re.compile(r"# ([\w.]+\.(?:opts|yaml|py))\b")
SMALL = "-tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -batch_size 16"

# --- blocks ---


def markdown_blocks(text):
    """Blocks as lists of lines, without indentation, and without fences for reading."""
    found, block, fenced, kind = [], [], False, ""
    for line in text.splitlines() + [""]:
        fence, indented = line.startswith("```"), line.startswith("    ")
        if fence:
            kind = kind if fenced else line[3:]
            fenced = not fenced
        elif fenced or indented:
            block.append(line if fenced else line[4:])
        if block and (fence or not (fenced or indented)):
            if not (fence and kind == "text"):
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


def log_agrees(log, block, document):
    """The log of another run contains the output that the document shows."""
    lines = next(lines for lines in blocks_of(document, None) if lines[0].startswith("$ " + block))
    with open(log, encoding="utf-8", errors="replace") as file:
        compare_printed(exchanges_of(lines)[0][1], file.read(), ROOT)


def documents():
    """All documents: every .md of the tree, the files of jobs/ and input/, and the help."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True, check=False).stdout.split()
    if not listed:  # an archive without its history
        listed = sorted({os.path.relpath(path, ROOT) for folder in ("", "*/", "src/*/", "regression/**/") for path in glob.glob(f"{ROOT}/{folder}*.md", recursive=True)})
    return listed + [path for group in GROUPS for path in files_of(group)] + ["help"]


def files_of(group):
    """The files of a folder, without its pages."""
    paths = sorted(path for path in glob.glob(os.path.join(ROOT, group, "*")) if os.path.isfile(path))
    return [os.path.relpath(path, ROOT) for path in paths if not path.endswith(".md")]


def rule_of(document, block):
    for start, action in RULES.get(document, []):
        if block[0].startswith(start):
            return action
    if block[0].startswith("$ "):
        return transcript
    if FILE_NAME.match(block[0]):
        return kept_file
    raise AssertionError(f'{document}: no rule in regression/docs/docs.py for the block that begins with "{block[0]}"')


# --- a folder to run in ---


def shell(folder, line, code=0):
    """Run a line, check its exit code, and return its output with the errors in their places."""
    print(f"     {line}", flush=True)
    small = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", STEPS="3", GLOBAL_BATCH="64", BATCH="8", SLURM_JOB_ID="", SLURM_SUBMIT_DIR="")
    if "scaling" in line:
        small["OPTIONS"] = "small.opts"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], cwd=folder, env=small, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    assert done.returncode == code, f"{line!r} ended with {done.returncode}, not {code}:\n{done.stdout[-3000:]}"
    return done.stdout


def criteo_text(lines):
    """Lines in Criteo's layout."""
    rng = random.Random(1)
    return "".join("\t".join([str(rng.randint(0, 1))] + [str(rng.randint(0, 99)) for _ in range(13)] + [f"{rng.randint(0, 30):08x}" for _ in range(26)]) + "\n"
                   for _ in range(lines))


@functools.lru_cache
def small_data():
    """One dataset for all documents in a run of this program."""
    with tempfile.TemporaryDirectory(prefix="trshard-docs-") as folder:
        shell(folder, f"{PYTHON} {ROOT}/tools/generate_data.py --output train.h5 --num-samples 400 --output-eval eval.h5 --num-eval 100 "
                      "--features 4 --num-embeddings 100")
        return {name: open(os.path.join(folder, name), "rb").read() for name in ("train.h5", "eval.h5")}


def make_scratch(folder, binary, document):
    """Make the environment of the commands: the tree's folders, the program, and data with the
    documents' names."""
    for name in ("input", "jobs"):
        shutil.copytree(os.path.join(ROOT, name), os.path.join(folder, name))
    os.symlink(os.path.join(ROOT, "tools"), os.path.join(folder, "tools"))
    for name in ("build", "data", "results/quickstart"):
        os.makedirs(os.path.join(folder, name))
    os.symlink(os.path.join(ROOT, "src"), os.path.join(folder, "src"))
    for made in [binary, *glob.glob(f"{binary}-serve"), *glob.glob(os.path.join(os.path.dirname(binary), "libtrshard.so*"))]:
        os.symlink(made, os.path.join(folder, "build", os.path.basename(made)))
    for name, content in small_data().items():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(content)
    with open(os.path.join(folder, "small.opts"), "w", encoding="ascii") as out:
        out.write(f"-data_train train.h5\n{SMALL}\n")
    if document in ("help", "jobs/README.md"):
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
    pages = [document]
    while pages[0] in FOLLOWS:
        pages.insert(0, FOLLOWS[pages[0]])
    blocks = [(rule_of(page, block), block) for page in pages for block in blocks_of(page, binary)]
    if all(action is prose or isinstance(action, Elsewhere) for action, _ in blocks):
        return
    with tempfile.TemporaryDirectory(prefix="trshard-docs-") as folder:
        make_scratch(folder, binary, document)
        for action, block in blocks:
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


def check_options(binary):
    """The reference of options agrees with the program's own table."""
    with tempfile.TemporaryDirectory(prefix="trshard-docs-") as folder:
        made = os.path.join(folder, "OPTIONS.md")
        shell(folder, f"{PYTHON} {ROOT}/tools/document_options.py {binary} --reference {made}")
        with open(made, encoding="utf-8") as new, open(os.path.join(ROOT, "input/OPTIONS.md"), encoding="utf-8") as old:
            differences = [line for line in difflib.unified_diff(old.readlines(), new.readlines(), n=0) if line[0] in "+-"]
    assert not differences, ("input/OPTIONS.md is not what -help says; make it again with\n"
                             "  tools/document_options.py build/trshard --reference input/OPTIONS.md\n" + "".join(differences[:20]))


OPTION = re.compile(r"(?<![\w-])-([a-z][A-Za-z0-9_]{2,})(\.\.\.)?")
PETSC = {"log_view", "malloc_dump", "help", "options_left"}


def options_named(text):
    """Options of the program in a page's `code` and in its option files, with "..." after a
    prefix."""
    blocks = [line.split("#")[0] for block in markdown_blocks(text) if FILE_NAME.match(block[0]) for line in block]
    spans = [span for span in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)) if span.startswith("-")]
    return {match for line in spans + blocks if not line.startswith("--") for match in OPTION.findall(line)}


def served_options(binary):
    """The options of trshard-serve, if it was built. Its page must name all that begin with -serve."""
    if not os.path.exists(f"{binary}-serve"):
        return set()
    text = subprocess.run([f"{binary}-serve", "-help"], capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"^  -(\w+)", text, re.MULTILINE))
    with open(os.path.join(ROOT, "input/SERVING.md"), encoding="utf-8") as page:
        missing = {name for name in found if name.startswith("serve")} - {match[0] for match in OPTION.findall(page.read())}
    assert not missing, f"input/SERVING.md does not name {sorted(missing)}"
    return found


def check_named_options(binary):
    """Every option that a document names is one of the program's."""
    text = subprocess.run([binary, "-help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  -(\w+)", text, re.MULTILINE)) | PETSC | served_options(binary)
    keys_ = {name[len("tables_"):] for name in known if name.startswith("tables_")}
    others = {"input/OPTIONS.md"} | (set() if os.path.exists(f"{binary}-serve") else {"input/SERVING.md"})
    for document in (name for name in documents() if name.endswith(".md") and name not in others):
        with open(os.path.join(ROOT, document), encoding="utf-8") as file:
            for name, beginning in sorted(options_named(file.read())):
                of_table = name in ("table_", "task_") or name.startswith("table_") and any(name.endswith("_" + key) for key in keys_ | {"KEY", "key"})
                assert name in known or of_table or (beginning and any(k.startswith(name) for k in known)), f"{document}: there is no option -{name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="*")
    parser.add_argument("--binary", type=os.path.abspath)
    parser.add_argument("--build")
    parser.add_argument("--log")
    parser.add_argument("--block")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for document in documents():
            for block in blocks_of(document, args.binary):
                print(f"{document}: {block[0]}")
        return 0
    BUILD.append(os.path.abspath(args.build or os.path.join(ROOT, "build")))
    n_failed = 0
    for name in args.documents:
        for document in files_of(name) if name in GROUPS else [name]:
            try:
                if name == "complete":
                    check_complete(args.binary, args.build)
                elif name == "options":
                    check_options(args.binary)
                    check_named_options(args.binary)
                elif args.log:
                    log_agrees(args.log, args.block, document)
                else:
                    run_document(document, args.binary)
            except (AssertionError, ValueError) as problem:
                n_failed += 1
                print(f"FAIL {document}: {problem}", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
