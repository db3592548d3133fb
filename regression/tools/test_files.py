# SPDX-License-Identifier: BSD-3-Clause
"""The tools that read results: inspect_file, compare_runs, plot_run, plot_scaling. Also trsdata's
interleaving, by hand."""
import os
import signal
import subprocess
import sys
import time
import unittest

import h5py
import numpy as np

import scratch
import trsdata
import trsfile

TOOLS = os.path.dirname(trsdata.__file__)


def tool(name, *arguments):
    return subprocess.run([sys.executable, os.path.join(TOOLS, name), *arguments], capture_output=True, text=True, check=False)


def floats(group, name):
    values = group[name][()]
    del group[name]
    group[name] = values.astype(np.float32)


class Files(scratch.Scratch):
    def run_file(self, name, loss):
        with h5py.File(self.path(name), "w") as h:
            h.attrs["format"] = "trshard-run"
            h["train/step"] = np.arange(len(loss))
            h["train/loss"] = np.asarray(loss, np.float64)
            h["train/samples_per_s"] = np.random.default_rng().random(len(loss))
            h["eval/step"], h["eval/loss"], h["eval/auc"] = [len(loss)], [0.5], [0.75]
        return self.path(name)

    def dataset(self, name, values=(3, 7, 7, 42, 0, 9, 8)):
        """The example of input/FORMAT.md."""
        with trsdata.DatasetWriter(self.path(name), ["a", "b"], [10, 100], 2) as out:
            out.append(np.zeros((3, 2)), np.array([1, 0, 1]), np.array([[1, 3], [0, 1], [2, 0]]), np.array(values))
        return self.path(name)

    def test_interleave(self):
        lengths = np.array([[1, 3], [0, 1], [2, 0]])
        self.assertEqual(trsdata.interleave(lengths, [np.array([3, 9, 8]), np.array([7, 7, 42, 0])]).tolist(), [3, 7, 7, 42, 0, 9, 8])

    def test_writer(self):
        with h5py.File(self.dataset("d.h5")) as h:
            self.assertEqual(h["sparse/offsets"][()].tolist(), [0, 4, 5, 7])
            self.assertEqual(int(h.attrs["num_samples"]), 3)
        with self.assertRaises(ValueError):
            with trsdata.DatasetWriter(self.path("broken.h5"), ["a"], [10], 0) as out:
                out.append(None, np.zeros(1), np.array([[2]]), np.array([1]))
        self.assertEqual(os.listdir(self.folder), ["d.h5"])

    def test_whole(self):
        """If a text is not written to its end, the old file stays, and no other file remains."""
        for text in ("one", "two"):
            with trsfile.whole(self.path("text")) as out:
                out.write(text)
        with self.assertRaises(KeyError), trsfile.whole(self.path("text")) as out:
            out.write("three")
            raise KeyError
        with open(self.path("text"), encoding="utf-8") as found:
            self.assertEqual(found.read(), "two")
        with self.assertRaises(OSError), trsfile.whole("/dev/full") as out:
            out.write("four")
        self.assertEqual(os.listdir(self.folder), ["text"])

    def test_links(self):
        """A link stays, and its target gets the content. A link to the output, such as /dev/stdout,
        stays too if the output is a file."""
        os.mkdir(self.path("far"))
        for name in ("text", "d.h5"):
            os.symlink(os.path.join("far", name), self.path(name))
        with trsfile.whole(self.path("text")) as out:
            out.write("one")
        self.dataset("d.h5")
        os.symlink("/proc/self/fd/1", self.path("stdout"))
        with open(self.path("found"), "w", encoding="utf-8") as out:
            out.write("before\n")
            out.flush()
            subprocess.run([sys.executable, os.path.join(TOOLS, "dataset_statistics.py"), self.path("d.h5"), "-o", self.path("stdout")], stdout=out, check=True)
        with open(self.path("found"), encoding="utf-8") as found:
            lines = found.read().splitlines()
        self.assertEqual((lines[0], lines[1].split()[0], lines[-1]), ("before", "table", "wrote " + self.path("stdout")))
        self.assertTrue(any(line.startswith("-table_b_pooling_factors") for line in lines))
        self.assertEqual(sorted(os.listdir(self.path("far"))), ["d.h5", "text"])
        self.assertEqual([name for name in sorted(os.listdir(self.folder)) if os.path.islink(self.path(name))], ["d.h5", "stdout", "text"])

    def test_ends(self):
        """A full disk under the output, and a signal to stop."""
        run = self.run_file("a.h5", [1.0, 2.0])
        for name in ("inspect_file.py", "compare_runs.py"):
            with open("/dev/full", "w", encoding="ascii") as full:
                result = subprocess.run([sys.executable, os.path.join(TOOLS, name), *[run] * (1 + (name == "compare_runs.py"))], stdout=full, stderr=subprocess.PIPE, text=True,
                                        check=False, env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"})
            self.assertEqual((result.returncode, result.stderr), (74, f"{name}: the output: No space left on device\n"))
        closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, os.path.join(TOOLS, "compare_runs.py"), run, run], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual((closed.returncode, closed.stderr), (0, ""))
        for number in (signal.SIGTERM, signal.SIGINT):
            command = [sys.executable, os.path.join(TOOLS, "generate_data.py"), "--output", self.path("long.h5"), "--num-samples", "100M"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) as process:
                # the file is being written
                while sum(os.path.getsize(self.path(name)) for name in os.listdir(self.folder)) < 2 << 20:
                    time.sleep(0.05)
                process.send_signal(number)
                self.assertEqual((process.communicate()[1], process.returncode), ("", 128 + number))
            self.assertEqual(os.listdir(self.folder), ["a.h5"])

    def test_letters_that_the_terminal_lacks(self):
        with trsdata.DatasetWriter(self.path("d.h5"), ["\u6620"], [10], 0) as out:
            out.append(None, np.zeros(1), np.array([[1]]), np.array([3]))
        result = subprocess.run([sys.executable, os.path.join(TOOLS, "inspect_file.py"), self.path("d.h5")], capture_output=True, text=True, check=False,
                                env={**os.environ, "PYTHONIOENCODING": "latin-1"})
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn(r"\u6620", result.stdout)

    def test_control_characters(self):
        """Names in files cannot control the terminal, imitate lines of a tool, or reverse text, in
        the output of any tool."""
        bad = "\x1b[2J\x1b]0;owned\x07u", "x\nPROBLEM: none\r\x9b1m\u202ey"
        with h5py.File(self.dataset("d.h5"), "r+") as h:
            h["sparse"].attrs["features"] = np.array(bad, dtype=h5py.string_dtype())
            h.attrs["converted_by"] = "a\x1b[31m\nb"
        with h5py.File(self.run_file("r.h5", [0.5, 0.4]), "r+") as h:
            h.attrs["commit"] = h.attrs["label"] = bad[1]
            h.create_group("predictions")[bad[0]] = np.zeros(3)
            h.create_group("embeddings")[bad[0]] = np.zeros((3, 2))
        with h5py.File(self.path("c.h5"), "w") as h:
            h.attrs["format"], h.attrs["options"], h.attrs["model"] = "trshard-checkpoint", f"-tables '{bad[0]}'", ""
            h[f"embedding/{bad[0]}/weight"] = np.full((2, 2), np.nan, np.float32)
        with h5py.File(self.path("u.h5"), "w") as h:
            h.attrs["format"] = bad[1]
        for name, *arguments in (("inspect_file.py", "--check", *map(self.path, ("d.h5", "r.h5", "c.h5", "u.h5"))), ("dataset_statistics.py", self.path("d.h5"), "-o", self.path("s.opts")),
                                 ("compare_runs.py", self.path("r.h5"), self.path("u.h5")), ("exchange.py", self.path("c.h5"), "--to", "npz", self.path("c.npz"))):
            result = tool(name, *arguments)
            said = result.stdout + result.stderr
            self.assertTrue(said)
            self.assertEqual([c for c in "\x1b\x07\x9b\r\u202e" if c in said], [], said)
            self.assertNotRegex(said, r"(?m)^\s*PROBLEM: none|^b")

    def test_groups_and_times(self):
        """Without --check, the lengths of the first samples."""
        with trsdata.DatasetWriter(self.path("g.h5"), ["a"], [10], 0, grouped=True, timed=True) as out:
            n, group = trsdata.SAMPLES_AT_ONCE, np.repeat([5, 6, 7], [1, trsdata.SAMPLES_AT_ONCE - 1, 4])
            out.append(None, np.zeros(n + 4), np.ones((n + 4, 1), np.int32), np.zeros(n + 4, np.int32), group=group, time=np.arange(n + 4))
        for option, words in (([], ["2 groups of 1 to 65,535 samples", f"times from 0 to {n - 1}, of the first 65,536 samples"]),
                              (["--check"], ["3 groups of 1 to 65,535 samples", f"times from 0 to {n + 3}\n"])):
            result = subprocess.run([sys.executable, "-W", "error", os.path.join(TOOLS, "inspect_file.py"), *option, self.path("g.h5")], capture_output=True, text=True, check=True)
            for word in words:
                self.assertIn(word, result.stdout)

    def test_inspect(self):
        self.assertEqual(tool("inspect_file.py", "--check", self.dataset("d.h5")).returncode, 0)
        result = tool("inspect_file.py", "--check", self.dataset("bad.h5", (3, 7, 7, 100, 0, 9, 8)))
        self.assertEqual(result.returncode, 1)
        self.assertIn("feature b: ids from 0 to 100, its table has 100 rows", result.stdout)
        with h5py.File(self.dataset("offsets.h5"), "a") as h:
            h["sparse/offsets"][1] = 3
        self.assertIn("disagree at sample 0", tool("inspect_file.py", "--check", self.path("offsets.h5")).stdout)
        for problem, change in (("/sparse/values is float32, expected integers", lambda sparse: floats(sparse, "values")),
                                ("expected different names", lambda sparse: sparse.attrs.__setitem__("features", ["a"] * len(sparse.attrs["features"]))),
                                ("that are not empty", lambda sparse: sparse.attrs.__setitem__("features", [""] + [f"f{i}" for i in range(1, len(sparse.attrs["features"]))]))):
            with h5py.File(self.dataset("refused.h5"), "r+") as handle:
                change(handle["sparse"])
            result = tool("inspect_file.py", "--check", self.path("refused.h5"))
            self.assertIn(problem, result.stdout)
            self.assertEqual(result.returncode, 1)
        for problem, change in (("/sparse/weights has shape (3,), expected (7,)", lambda h: h.__setitem__("sparse/weights", np.ones(3, np.float32))),
                                ("/sparse/offsets begins with 2, expected 0", lambda h: h["sparse/offsets"].__setitem__(slice(None), [2, 4, 5, 7])),
                                ("version 2, expected 1", lambda h: h.attrs.__setitem__("version", 2)),
                                ("1 num_embeddings for 2 features", lambda h: h["sparse"].attrs.__setitem__("num_embeddings", [10])),
                                ("/dense has shape (3,)", lambda h: (h.__delitem__("dense"), h.__setitem__("dense", np.zeros(3, np.float32)))),
                                ("/labels is int32, expected float32", lambda h: (h.__delitem__("labels"), h.__setitem__("labels", np.zeros(3, np.int32)))),
                                ("cannot be read", lambda h: (h["sparse"].__delitem__("values"), h["sparse"].create_group("values")))):
            with h5py.File(self.dataset("changed.h5"), "r+") as handle:
                change(handle)
            result = tool("inspect_file.py", "--check", self.path("changed.h5"))
            self.assertIn(problem, result.stdout)
            self.assertEqual((result.returncode, result.stderr), (1, ""))
        self.assertIn("auc 0.7500", tool("inspect_file.py", "--metrics", self.run_file("r.h5", [1.0])).stdout)
        # of -metrics_segments: a number for each segment
        with h5py.File(self.path("r.h5"), "a") as h:
            h["eval/segment_ne"] = np.ones((1, 3))
        self.assertIn("last evaluation: auc 0.7500  loss 0.5000\n", tool("inspect_file.py", self.path("r.h5")).stdout)
        with h5py.File(self.run_file("speeds.h5", np.ones(20)), "a") as h:
            h["train/samples_per_s"][...] = [1, 1] + [7] * 9 + [9] * 9
        for option, path, words in (("--speed", self.path("speeds.h5"), "8.0"), ("--speed", self.path("d.h5"), "no step in it"), ("--metrics", self.path("d.h5"), "no evaluation in it"),
                                    ("--speed", self.run_file("none.h5", []), "no step in it")):
            result = tool("inspect_file.py", option, path)
            self.assertEqual((result.returncode, result.stdout.strip(), result.stderr), (0, words, ""))
        self.assertIn("not finite at step 1", tool("inspect_file.py", self.run_file("nan.h5", [1.0, np.nan])).stdout)
        with h5py.File(self.run_file("one_class.h5", [1.0]), "r+") as h:
            h["eval/ctr"], h["eval/loss"][...] = [1.0], np.nan
        self.assertIn("last evaluation: auc no number (one class)  loss no number\n", tool("inspect_file.py", self.path("one_class.h5")).stdout)

    def test_compare(self):
        a, b = self.run_file("a.h5", [1.0, 2.0, 3.0]), self.run_file("b.h5", [1.0, 2.00001, 3.1])
        self.assertEqual(tool("compare_runs.py", "--exact", a, a).returncode, 0)
        self.assertEqual(tool("compare_runs.py", a, b).returncode, 1)
        self.assertEqual(tool("compare_runs.py", "--steps", "2", a, b).returncode, 0)
        self.assertEqual(tool("compare_runs.py", "--exact", "--steps", "2", a, b).returncode, 1)
        self.assertEqual(tool("compare_runs.py", "--rtol", "0.1", a, b).returncode, 0)
        # 0.4 less than 3.1 is 0.13 of the reference, and 0.15 of the other
        low = self.run_file("low.h5", [1.0, 2.0, 2.7])
        self.assertEqual([tool("compare_runs.py", "--rtol", "0.14", *pair).returncode for pair in ((low, b), (b, low))], [0, 1])
        self.assertEqual(tool("compare_runs.py", a, self.run_file("short.h5", [1.0])).returncode, 1)
        nan = self.run_file("nan.h5", [1.0, 2.0, np.nan])
        self.assertEqual(tool("compare_runs.py", nan, a).returncode, 1)
        self.assertEqual(tool("compare_runs.py", "--exact", nan, nan).returncode, 0)
        self.assertEqual(tool("compare_runs.py", a, self.dataset("d.h5")).returncode, 2)
        with h5py.File(self.run_file("more.h5", [1.0, 2.0, 3.0]), "a") as h:
            h.attrs["step"] = 7
        with h5py.File(a, "a") as h:
            h.attrs["step"] = 8
        found = tool("compare_runs.py", "--attributes", a, self.path("more.h5"))
        self.assertEqual(found.returncode, 1)
        self.assertIn("DIFFERS attribute step: 8, reference 7\n5 of 5 datasets agree", found.stdout)

    def test_compare_models(self):
        """bf16 is compared by the numbers that it represents. Names of tasks and features are not
        taken for times."""
        def model(name, bits, time):
            with h5py.File(self.path(name), "w") as h:
                h.attrs["format"] = "trshard-run"
                h["embedding/f/weight"] = np.array([bits], np.uint16)
                h["embedding/f/weight"].attrs["dtype"] = "bf16"
                h["predictions/watch_ms"] = h["time"] = h["train/samples_per_s"] = np.array([time])
            return self.path(name)

        one, two, zero, minus = (model(f"{bits}.h5", bits, 1) for bits in (0x3f80, 0x4000, 0, 0x8000))
        self.assertEqual(tool("compare_runs.py", "--rtol", "0.01", one, two).returncode, 1)
        self.assertEqual(tool("compare_runs.py", zero, minus).returncode, 0)
        self.assertEqual(tool("compare_runs.py", "--exact", zero, minus).returncode, 1)
        found = tool("compare_runs.py", one, model("later.h5", 0x3f80, 2)).stdout
        self.assertIn("DIFFERS predictions/watch_ms", found)
        self.assertRegex(found, "DIFFERS time ")
        self.assertNotIn("samples_per_s", found)

    def test_compare_in_blocks(self):
        """Differences in all blocks of a tensor count, and the memory use is that of one block."""
        numbers = np.zeros((3000000, 1), np.float32)
        for name in ("one.h5", "two.h5"):
            with h5py.File(self.path(name), "w") as h:
                h.attrs["format"], h["t"], h["one"], h["none"] = "trshard-checkpoint", numbers, 1.0, np.zeros((0, 3))
            numbers[[7, -1], 0] = 1, -4
        peak = "import resource, runpy, sys; sys.argv[:] = sys.argv[1:]\ntry: runpy.run_path(sys.argv[0], run_name='__main__')\nfinally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        words = [os.path.join(TOOLS, "compare_runs.py"), self.path("one.h5"), self.path("two.h5")]
        result = subprocess.run([sys.executable, "-c", peak, *words], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": TOOLS})
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stdout, r"DIFFERS t +max abs 4.00e\+00  max rel 1.00e\+00  2 of 3000000 outside\n2 of 3 datasets agree")
        # 12 MB each of float32 took 200 MiB
        self.assertLess(int(result.stdout.split()[-1]), 140 << 10)

    def test_tables_of_a_checkpoint(self):
        """A table's name may contain slashes. A table without weights is reported."""
        with h5py.File(self.path("c.h5"), "w") as h:
            h.attrs["format"], h.attrs["version"] = "trshard-checkpoint", 1
            h["embedding/a/b/weight"] = h["embedding/a/b/momentum1"] = h["embedding/c/momentum1"] = np.zeros((3, 2), np.float32)
            h["dense/over_arch/0/bias"] = np.float32([3, -4])
        found = tool("inspect_file.py", "--check", self.path("c.h5")).stdout
        self.assertRegex(found, r"dense/over_arch/0/bias +float32 +2 +8 B +-4 +3 +5")
        self.assertIn("PROBLEM: table c has no weight", found)
        self.assertNotIn("table a", found)

    def test_reader_has_seen_enough(self):
        """| head: no message, and the usual exit code of a program whose pipe is closed."""
        run, data = self.run_file("a.h5", [1.0, 2.0]), self.dataset("d.h5")
        with open(self.path("a.csv"), "w", encoding="ascii") as out:
            out.write("y,c\n1,2\n")
        for name, *words in (("compare_runs.py", run, run), ("inspect_file.py", run), ("tensorboard_events.py", run, self.path("events")), ("compare_plans.py", "-h"),
                             ("generate_data.py", "--output", self.path("g.h5"), "--num-samples", "3"), ("dataset_statistics.py", data),
                             ("convert_table.py", "--output", self.path("t.h5"), "--labels", "y", "--sparse", "c", self.path("a.csv"))):
            reading, writing = os.pipe()
            os.close(reading)
            result = subprocess.run([sys.executable, os.path.join(TOOLS, name), *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
            os.close(writing)
            self.assertEqual((name, result.returncode, result.stderr), (name, 141, ""))

    def test_no_hdf5(self):
        with open(self.path("text.h5"), "w", encoding="ascii") as out:
            out.write("text")
        run = self.run_file("a.h5", [1.0])
        for path, words in ((self.path("none.h5"), "No such file or directory"), (self.path("text.h5"), "it is not an HDF5 file, or damaged"), (self.folder, "Is a directory")):
            self.assertEqual(tool("compare_runs.py", run, path).stderr, f"compare_runs.py: {path} cannot be read: {words}\n")
            self.assertEqual(tool("inspect_file.py", path).stdout, f"  PROBLEM: {path} cannot be read: {words}\n")

    def test_mistakes(self):
        """Each error gives one line. Earlier versions printed a traceback, or a number of steps
        that omitted the last."""
        run = self.run_file("a.h5", [1.0, 2.0])
        with open(self.path("bad.csv"), "w", encoding="ascii") as out:
            out.write("study,ranks\nweak,1\n")
        with open(self.path("zero.csv"), "w", encoding="ascii") as out:
            out.write("study,ranks,samples_per_s\nweak,1,0\n")
        for words, *command in ((r"--only: \[: unterminated", "compare_runs.py", "--only", "[", run, run), ("--steps: -1 is not at least 1", "compare_runs.py", "--steps", "-1", run, run),
                                ("--window: -5 is not at least 1", "plot_run.py", "--window", "-5", run), ("2 times --label for 1 run", "plot_run.py", "--label=a", "--label=b", run),
                                (r"^plot_scaling.py: \S*none.csv: No such file or directory$", "plot_scaling.py", self.path("none.csv")),
                                ("zero.csv: samples_per_s is 0, expected more", "plot_scaling.py", self.path("zero.csv")),
                                ("bad.csv has no column 'samples_per_s'$", "plot_scaling.py", self.path("bad.csv")),
                                ('"1.5k" is not a whole number', "generate_data.py", "--output", self.path("g.h5"), "--num-samples", "1.5k")):
            result = tool(*command)
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr.strip(), words)
            self.assertNotIn("Traceback", result.stderr)

    def test_table(self):
        """Wide letters take two columns, and combining accents none."""
        self.assertEqual(trsdata.table([["a", 1, "x"], ["\u6620\u753b", 10, "y"], ["e\u0301", 2, ""]], left=(0, 2)), ["a      1  x", "\u6620\u753b  10  y", "e\u0301      2"])

    def test_plots(self):
        self.assertEqual(tool("plot_run.py", self.run_file("a.h5", np.linspace(1, 0.5, 200)), "--output", self.path("a.png")).returncode, 0)
        with open(self.path("s.csv"), "w", encoding="ascii") as out:
            out.write("study,ranks,samples_per_s\nstrong,1,100\nstrong,2,150\nstrong,2,310\nstrong,2,160\nweak,1,100\nweak,2,200\n")
        result = tool("plot_scaling.py", self.path("s.csv"), "--output", self.path("s.png"))
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"strong\s+2\s+160\s+1\.60\s+80\.0%")
        with open(self.path("four.csv"), "w", encoding="ascii") as out:
            out.write("study,ranks,samples_per_s\nstrong,4,100\nstrong,16,300\n")
        self.assertRegex(tool("plot_scaling.py", self.path("four.csv"), "--output", self.path("s.png")).stdout, r"strong\s+16\s+300\s+3\.00\s+75\.0%")
        for name in ("a.png", "s.png"):
            with open(self.path(name), "rb") as image:
                self.assertEqual(image.read(8), b"\x89PNG\r\n\x1a\n")


if __name__ == "__main__":
    unittest.main()
