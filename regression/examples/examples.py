#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs of tools/examples run on 1, 2 and 3 ranks, and print the same losses.

  examples.py TRSHARD "MPIRUN AND ITS OPTIONS" NAME PROGRAM   run an example
  examples.py complete          check that an example calls each public function of trshard.h, and
                                that each example has a test
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
DATA = ("--output", "train.h5", "--num-samples", "2400", "--output-eval", "eval.h5", "--num-eval", "240", "--features", "user,item", "--num-embeddings", "100,50",
        "--pooling", "1,1:3", "--num-dense", "2")
RUN = "-data_train train.h5 -dense_arch 8 -over_arch 8,1 -tables_embedding_dim 8 -batch_size 40"


def run(*words, code=0):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == code, f"{words} ended with {done.returncode}, not {code}:\n{done.stdout}"
    return done.stdout


def losses_on_ranks(mpirun, program, *words, ranks=(1, 2, 3)):
    """The program's output on each number of ranks. Losses are equal up to the rounding of sums."""
    texts = [run(*mpirun, "-n", str(n), program, *words) for n in ranks]
    found = [[float(loss) for loss in re.findall(r"loss (\S+\d)", text)] for text in texts]
    print(found, flush=True)
    assert found[0], texts[0]
    for losses in found[1:]:
        assert len(losses) == len(found[0]) and all(abs(a - b) <= 2e-5 + 1e-3 * abs(b) for a, b in zip(losses, found[0])), found
    return texts, found[0]


def example_train(_trshard, mpirun, program):
    # a batch of 256 would be smaller on 3 ranks
    assert losses_on_ranks(mpirun, program, ranks=(1, 2))[1][-1] < 0.01


def example_dataset(_trshard, mpirun, program):
    texts, losses = losses_on_ranks(mpirun, program, "train.h5", "eval.h5", "user", "100", "item", "50")
    # the model learns, and the checkpoint holds all of it
    assert losses[3] < losses[0] and losses[4] == losses[5], losses
    begin, then = re.search(r"row 0 of user begins with (\S+), then with (\S+)", texts[0]).groups()
    assert float(begin) == -float(then) != 0, texts[0]
    assert "2 features, the last from column 8 on" in texts[0] and "no stream: " in texts[0], texts[0]


def example_one_step(_trshard, mpirun, program):
    texts, losses = losses_on_ranks(mpirun, program)
    assert all("a single rank has the same losses" in text for text in texts) and losses[-1] < losses[0] - 0.1, texts


def example_runs(_trshard, mpirun, program):
    for n in (1, 2, 3):
        text = run(*mpirun, "-n", str(n), program, RUN)
        assert text.count("stopped on request") >= n and os.listdir("runs_checkpoints"), text
        for name in os.listdir("runs_checkpoints"):
            os.remove(os.path.join("runs_checkpoints", name))
    assert run(program, "-version").startswith("trshard ")
    run(program, "-data_train", "absent.h5", code=66)


def example_predict(trshard, _mpirun, program):
    run(trshard, *RUN.split(), "-steps", "5", "-checkpoint_final", "model.h5")
    text = run(program, "model.h5", "4", "2")
    assert re.search(r"thread 1: \d+ calls, median", text), text
    assert "predicts prediction with the weights of step 5, without a mapping" in text, text
    assert "absent.h5" in run(program, "absent.h5", code=1)


def example_encode(trshard, _mpirun, program):
    with open("rows.csv", "w", encoding="utf-8") as out:
        out.write("click,age,city,tags\n1,31,Rome,red|shoe\n0,45,Oslo,red\n")
    run(sys.executable, os.path.join(ROOT, "tools", "convert_table.py"), "--output", "rows.h5", "--labels", "click", "--dense", "age", "--sparse", "city,tags", "--text", "city,tags",
        "--bags", "tags", "rows.csv")
    run(trshard, *"-data_train rows.h5 -batch_size 2 -steps 5 -tables_embedding_dim 4 -dense_arch 8,4 -over_arch 8,1 -checkpoint_final model.h5".split())
    text = run(program, "model.h5", "city=Rome", "age=31", "tags=red|shoe")
    # by descending frequency, then by name: Oslo 1, Rome 2; red 1, shoe 2; 0 is for others
    assert re.fullmatch(r"the model needs 3 of 3 columns\ncity: 2\ntags: 1 2\nprediction 0\.\d+\n", text), text
    text = run(program, "model.h5", "city=Ur")
    assert "city: 0\ntags:\nprediction 0." in text, text
    assert "row 0, column age: 'old' is not a number" in run(program, "model.h5", "age=old", code=1)
    run(trshard, *RUN.split(), "-steps", "1", "-checkpoint_final", "bare.h5")
    assert "the checkpoint has no mapping" in run(program, "bare.h5", code=1)


def example_deltas(trshard, _mpirun, program):
    run(trshard, *RUN.split(), "-steps", "5", "-checkpoint_final", "base.h5")
    run(trshard, *RUN.split(), "-init_from", "base.h5", "-steps", "6", "-delta_every", "2", "-delta_dir", "deltas", "-checkpoint_final", "final.h5")
    files = sorted(glob.glob("deltas/step-*.h5"))
    text = run(program, "base.h5", files[0], *files)
    assert re.findall(r"step (\d+): prediction 0\.\d{6}\n", text) == ["5", "7", "9", "11"], text
    assert text.endswith("user: 4 ids, 0 of them unknown\nitem: 4 ids, 0 of them unknown\n"), text
    assert run(program, "final.h5").splitlines()[0] == text.splitlines()[3], text
    assert "delta 1 is missing" in run(program, "base.h5", files[1], code=1)
    assert "expected a delta" in run(program, "base.h5", "final.h5", code=1)


def complete():
    with open(os.path.join(ROOT, "src/api/trshard.h"), encoding="utf-8") as file:
        functions = set(re.findall(r"^TRSHARD_API [^;(]*?\b(Trshard\w+)\(", file.read(), re.MULTILINE))
    sources = sorted(glob.glob(os.path.join(ROOT, "tools/examples/*.c")))
    called = set()
    for path in sources:
        with open(path, encoding="utf-8") as file:
            called |= set(re.findall(r"\b(Trshard\w+)\(", re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)))
    assert len(functions) > 20, functions
    assert functions <= called, f"no example calls {sorted(functions - called)}"
    names = {os.path.basename(path)[:-2] for path in sources}
    tested = {name[len("example_"):] for name in globals() if name.startswith("example_")}
    assert names == tested, f"examples without a test, or tests without an example: {sorted(names ^ tested)}"


def main():
    if sys.argv[1] == "complete":
        return complete()
    trshard, mpirun, name, program = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="trshard_examples_") as folder:
        os.chdir(folder)
        run(sys.executable, os.path.join(ROOT, "tools", "generate_data.py"), *DATA)
        globals()[f"example_{name}"](trshard, re.split("[; ]", mpirun), program)
    return None


if __name__ == "__main__":
    main()
