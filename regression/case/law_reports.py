# SPDX-License-Identifier: BSD-3-Clause
"""A run's reports: help, version, banner, stages, allocations, memory."""
import glob
import os
import pty
import re
import subprocess

import h5py
import numpy as np

from law_plans import MIXED, MODEL, TABLES, make, train
from trsrun import attribute, check, run, thin, thinned, write_dataset

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src")
STAGES = ["input_dist", "lookup", "output_dist", "dense forward", "dense backward", "embedding backward", "optimizer", "I/O", "waiting"]


def declared_options(folder="*"):
    """Names in the sources' option tables: plain names, and keys of tables."""
    names = set()
    for path in glob.glob(os.path.join(SOURCES, folder, "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            names.update(re.findall(r'\{\s*"(-?[a-z][a-z0-9_]*)",\s*TRS_OPTION_', file.read()))
    return names


def test_help(binary, folder):
    """-help lists every option of every folder, with its possible values and its default. -help all
    adds PETSc's options. The server's -help lists its own."""
    text = run(binary, 2, "-help", folder).text
    names = set().union(*(declared_options(folder) for folder in os.listdir(SOURCES) if folder != "serve"))
    with open(os.path.join(SOURCES, "api", "trshard.h"), encoding="utf-8") as file:
        header = file.read()  # names the options that only the library has
    of_library = {name for name in declared_options("api") if name in header}
    check(len(names) > 100 and "-batch_size" in names and "embedding_dim" in names, f"found {len(names)} options in the sources")
    words = set(re.findall(r"(?<![\w-])-?[a-z][a-z0-9_]*", text))
    missing = sorted(name for name in names if not words & {name, f"-tables_{name}", f"-tasks_{name}"} and name not in of_library)
    check(not missing, f"-help lacks {missing}")
    if os.path.exists(f"{binary}-serve"):
        shown = subprocess.run([f"{binary}-serve", "-help"], capture_output=True, text=True, check=True).stdout
        missing = sorted(name for name in declared_options("serve") if name not in shown)
        check(not missing, f"trshard-serve -help lacks {missing}")
    for expected in ("default 512", ">= 1", "one of train, plan, eval"):
        check(expected in " ".join(text.split()), f"-help does not say '{expected}':\n{text[:3000]}")
    check(max(map(len, text.splitlines())) <= 120, "lines too long for a terminal")
    check("Options for all PETSc programs" not in text, "PETSc's own options without being asked")
    check(len(run(binary, 1, "-help all", folder).text) > len(text), "-help all adds nothing")


def test_help_defaults(binary, folder):
    """No option's help gives a default and also says that there is none."""
    for option in re.split(r"\n  (?=-)", run(binary, 1, "-help", folder).text)[1:]:
        words = " ".join(option.split())
        check(not ("no default" in words and re.search(r"\bdefault: |is its default|: as -", words)), words)


def test_guesses(binary, folder):
    """Options of other programs are not accepted, and the message suggests an existing option."""
    with open(os.path.join(SOURCES, "core", "options", "option_guess.c"), encoding="utf-8") as file:
        guesses = re.findall(r'\{"(-\w+)",\s*"(-\w+)",\s*((?:"[^"]*"\s*)+)', file.read())
    text = run(binary, 1, "-help", folder).text
    known = set(re.findall(r"^  (-\w+)", text, re.M)) | {"-log_view", "-info"}
    check(len(guesses) > 50, f"found {len(guesses)} guesses in the sources")
    for guess, option, more in guesses:
        named = [option] + [word for word in re.findall(r"(?<!\w)-[a-z]\w+", more) if "NAME" not in word]
        check(guess not in known and all(word in known for word in named), f"{guess} leads to {named}")
    for guess, hint in (("-lr", "-embedding_learning_rate, of the tables; -dense_learning_rate"), ("-output_dir", "-output, "), ("-log_level", "-report_interval, ")):
        result = run(binary, 1, f"{guess} 1", folder, status=64).text
        check(f"{guess} (command line): unknown option; the closest known one is {hint}" in result, result)


def test_version(binary, folder):
    text = run(binary, 2, "-version", folder).text
    check(re.match(r"trshard \d+\.\d+\.\d+ \(\S+\), Open MPI \S+, PETSc \d", text) and len(text.splitlines()) == 1, text)


def test_banner(binary, folder):
    """A run prints its version, its machine, its data and its plan, and the results hold the
    same."""
    make(folder)
    text = run(binary, 2, f"-data_train train.h5 -batch_size 12 -steps 5 -output run.h5 {MODEL} {TABLES} {MIXED} -report_interval 0", folder).text
    for pattern in (r"trshard \d", r"2 ranks", r"cpu on .*thread", r"Open MPI.*PETSc.*HDF5", r"train\.h5: 200 samples, 3 dense, 5 sparse features",
                    r"row_wise", r"memory .*of tables", r"step 5/5 .*epoch .*loss .*samples/s .*ETA", r"peak memory",
                    r"memory +tables .* batches .* exchanges .* activations .*, libraries and MPI .*rank \d"):
        check(re.search(pattern, text), f"no {pattern!r} in\n{text}")
    with h5py.File(os.path.join(folder, "run.h5")) as h:
        for name in ("version", "options", "plan", "world_size", "hardware", "libraries"):
            check(name in h.attrs, f"results: no attribute {name}")
        kinds, held = attribute(os.path.join(folder, "run.h5"), "held_names").split(","), h["memory/held_bytes"][()]
        tables, states, dense, peak = h["memory/measured_bytes"][()].T
        check(kinds[:3] == ["tables", "optimizer_states", "dense"] and held.shape == (2, len(kinds)), f"held_names {kinds}, {held.shape}")
        check((held.sum(axis=1) == peak).all() and (held[:, [k != "others_pages" for k in kinds]] > 0).all() and (held >= 0).all(), f"memory by kind {held.tolist()} does not add up to the peak {peak.tolist()}")
        check((held[:, 0] == tables).all() and (held[:, 1] == states).all() and (held[:, 2] >= dense).all(), f"{held[:, :3].tolist()}, not {tables}, {states}, {dense}")
        check(h["train/step"][()].tolist() == list(range(5)) and len(h["train/loss"]) == len(h["train/samples_per_s"]) == 5, "results: steps")


def test_options_view(binary, folder):
    """-options_view and -log_view list exactly the user's options, including options of single
    tables. Options that do not fit into PETSc's database are counted."""
    make(folder)
    given = {"-table_user_learning_rate": "0.25", "-tables_bounds_check_mode": "ignore"}
    text = run(binary, 1, f"-data_train train.h5 -batch_size 12 -steps 2 {MODEL} {TABLES} {' '.join(map(' '.join, given.items()))} -options_view -log_view", folder).text
    tables = re.findall(r"#PETSc Option Table entries:\n(.*?)#End of PETSc", text, re.S)
    check(len(tables) == 2, f"{len(tables)} tables of options")
    for table in tables:
        for option, value in {**given, "-batch_size": "12"}.items():
            check(f"{option} {value}\n" in table, f"no {option} in\n{table}")
        check(not re.search(r"-(skip_petscrc|no_signal_handler|options_left|options_not_shown)", table), f"options that nobody gave:\n{table}")
    check("WARNING" not in text, text[-1500:])
    keys = ("num_embeddings 100", "embedding_dim 8", "pooling sum", "learning_rate 0.1", "eps 0.1", "bounds_check_mode ignore", "data_type fp16", "cache_load_factor 0.5", "weight_decay 0")
    with open(os.path.join(folder, "many.opts"), "w", encoding="ascii") as out:
        out.write("-tables " + ",".join(f"t{t}" for t in range(70)) + "\n" + "".join(f"-table_t{t}_{key}\n" for t in range(70) for key in keys))
    text = run(binary, 1, "-task plan -topology_world_size 2 -options_file many.opts -options_view", folder).text
    shown, hidden = len(re.findall(r"^-table_t\d+_", text, re.M)), re.search(r"^-options_not_shown (\d+)$", text, re.M)
    check(hidden and shown > 400 and shown + int(hidden[1]) == 70 * len(keys), f"{shown} shown, {hidden and hidden[0]}")


def test_stages_of_blocks(binary, folder):
    """The backward pass of the dense layers has its own stage, also directly after a block's
    forward pass."""
    make(folder, samples=1200)
    for more in ("", "-reproducible", "-accumulate_steps 2"):
        train(binary, folder, "run", 1, f"-epochs 2 -dense_arch 256,256,8 {more}")
        with h5py.File(os.path.join(folder, "run.h5")) as h:
            ms = dict(zip(h.attrs["stage_names"].split(","), h["stages/measured_ms"][0]))
        # a backward pass has two products for each forward product
        check(ms["dense backward"] > 0.25 * ms["dense forward"], f"{more or 'batches'}: {ms}")


def test_bytes_of_cross_layers(binary, folder):
    """Each cross layer moves the bytes of its arrays, so a sample's bytes grow accordingly from 1
    layer to 3."""
    make(folder)
    rank, experts = 3, 2
    for word, options, arrays in (("dcn_full", "", lambda N: 6 * N), ("dcn_vector", "", lambda N: 4 * N), ("dcn", f"-dcn_low_rank_dim {rank}", lambda N: 6 * N + 2 * rank),
                                  ("dcn_mixture", f"-dcn_low_rank_dim {rank} -dcn_num_experts {experts}", lambda N: (7 + 2 * experts) * N + 8 * experts * rank)):
        moved = []
        for layers in (1, 3):
            text = run(binary, 1, f"-data_train train.h5 {MODEL} {TABLES} -batch_size 10 -steps 1 -interaction {word} -dcn_num_layers {layers} {options}", folder).text
            columns, kb = re.search(r"vectors, (\d+) -> .*per sample[^\n]* and ([\d.]+) kB", text, re.S).groups()
            moved.append(1e3 * float(kb))
        wanted = 2 * 4 * arrays(int(columns))
        check(np.isclose(moved[1] - moved[0], wanted, rtol=0.02), f"{word}: {moved} bytes of 1 and 3 layers, expected {wanted} more")


def test_predicted_step(binary, folder):
    """With the rates of dense layers, a whole step is predicted from the banner's operations and
    bytes, the parameters, and the plan's costs."""
    make(folder)
    products, stream, between, batch = 3e5, 2e6, 5e4, 10
    rates = f"-topology_product_rate {products:g} -topology_stream_bw {stream:g} -topology_intra_host_bw {between:g}"
    words = f"-data_train train.h5 {MODEL} {TABLES} -batch_size {batch} -steps 5"
    text = run(binary, 2, f"{words} -dense_optimizer adam -output with.h5 {rates}", folder).text
    kflop, kb = (float(x) for x in re.search(r"per sample +([\d.]+) kflop and ([\d.]+) kB", text).groups())
    with h5py.File(os.path.join(folder, "with.h5")) as h:
        names, found = h.attrs["predicted_names"].split(";")[0].split(","), h["stages/predicted_ms"][()]
        dense_bytes = h["memory/measured_bytes"][0, 2] / 4  # weights, gradients and two states
    part = {name: found[:, i] for i, name in enumerate(names)}
    check(found.shape == (2, len(names)), f"parts {names} for {found.shape}")
    forward = batch * (1e3 * kflop / products + 1e3 * kb / stream)
    for name, wanted in (("dense_forward", forward), ("dense_backward", 2 * forward), ("optimizer", 7 * dense_bytes / stream), ("allreduce", dense_bytes / between)):
        check(np.allclose(part[name], wanted, rtol=2e-3), f"{name}: {part[name]} ms, expected {wanted}")
    printed = re.search(r"predicted +([\d.]+) ms a step, measured ([\d.]+): tables", text)
    check(printed and abs(float(printed.group(1)) - found.sum(axis=1).max()) < 0.01, f"{printed}, parts add up to {found.sum(axis=1)}")
    # If given, dot products of vectors have their own rates, and so has reading the vectors.
    vectors, columns, width = (int(x) for x in re.search(r"interaction +dot of (\d+) vectors, (\d+) -> (\d+)", text).groups())
    rate, overhead, back_rate, back_overhead = 1e5, 30.0, 7e4, 50.0
    pairs = f"-topology_pair_rate {rate:g} -topology_pair_overhead {overhead:g} -topology_pair_back_rate {back_rate:g} -topology_pair_back_overhead {back_overhead:g}"
    run(binary, 2, f"{words} -output pairs.h5 {rates} {pairs}", folder)
    with h5py.File(os.path.join(folder, "pairs.h5")) as h:
        part = {name: h["stages/predicted_ms"][()][:, i] for i, name in enumerate(names)}
    products_of_sample, dim, stride = vectors * (vectors - 1) / 2, columns / vectors, -(-width // 16) * 16
    flops, moved = 1e3 * kflop - products_of_sample * 2 * dim, 1e3 * kb - 4 * (columns + stride)
    others = batch * (flops / products + moved / stream)
    for name, wanted in (("dense_forward", others + batch * products_of_sample * (overhead + 2 * dim) / rate),
                         ("dense_backward", 2 * others + batch * products_of_sample * (back_overhead + 4 * dim) / back_rate)):
        check(np.allclose(part[name], wanted, rtol=2e-3), f"{name} with rates of dot products: {part[name]} ms, expected {wanted}")
    text = run(binary, 2, f"{words} -output without.h5", folder).text
    with h5py.File(os.path.join(folder, "without.h5")) as h:
        check(not h["stages/predicted_ms"][:, 5:].any() and h["stages/predicted_ms"][:, :5].any(), "parts without rates")
    check("ms a step, measured" not in text, "a step is predicted without rates")


def test_log_view(binary, folder):
    """-log_view has a row for every stage of a step, and shows the overlap of exchanges."""
    make(folder)
    text = run(binary, 2, f"-data_train train.h5 -batch_size 12 -steps 5 {MODEL} {TABLES} {MIXED} -log_view -trace_first_step 2", folder).text
    for what in ("input_dist", "output_dist"):
        check(re.search(rf"^overlap +{what}: \d+% of [\d.]+ ms a step", text, re.M), f"-log_view: no overlap of {what} in {len(text)} characters:\n" + "\n".join(re.findall("^(?:overlap|exposed|trace).*", text, re.M)))
    for stage in STAGES:
        rows = [line for line in text.splitlines() if line.startswith(stage[:12]) and len(line.split()) > 10]
        check(len(rows) == 1, f"-log_view: {len(rows)} rows of {stage}")
    flops = {stage: float(re.search(rf"^{stage} +\d+ [\d.]+ [\d.e+-]+ [\d.]+ ([\d.e+-]+)", text, re.M).group(1))
             for stage in ("lookup", "dense forward", "dense backward", "embedding backward")}
    check(min(flops.values()) > 0 and 1.5 < flops["dense backward"] / flops["dense forward"] <= 2, f"-log_view: operations {flops}")
    check(float(re.search(r"^Flops/sec: +([\d.e+-]+)", text, re.M).group(1)) > 0, "-log_view: no operations a second")


PROGRESS = r"^step (\d+)/40  (\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d  epoch \d+\.\d\d  loss \S+ .* samples/s  ETA \S+$"


def test_progress_in_a_file(binary, folder):
    """If the output is no terminal, there are dated lines for the first and the last step and one
    line a minute. An interval of 0 prints all steps."""
    make(folder)
    words = f"-data_train train.h5 -batch_size 12 -steps 40 {MODEL} {TABLES} {MIXED}"
    for ranks in (1, 2):
        lines = re.findall(PROGRESS, run(binary, ranks, words, folder).text, re.M)
        check([int(step) for step, _ in lines] in ([1, 40], [1, 39, 40]) and all(date for _, date in lines), f"{ranks} ranks: lines {lines}")
    lines = re.findall(PROGRESS, run(binary, 2, f"{words} -report_interval 0", folder).text, re.M)
    check([int(step) for step, _ in lines] == list(range(1, 41)), f"lines {lines}")


def test_progress_on_a_terminal(binary, folder):
    """On a terminal the lines have no date, both without and under mpirun, which always gives its
    ranks a terminal."""
    make(folder)
    words = f"-data_train train.h5 -batch_size 12 -steps 40 {MODEL} {TABLES} {MIXED}"
    for launcher in ([], ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]):
        primary, secondary = pty.openpty()
        job = subprocess.Popen([*launcher, binary, *words.split()], cwd=folder, stdin=subprocess.DEVNULL, stdout=secondary, stderr=subprocess.STDOUT)
        os.close(secondary)
        text = b""
        while True:
            try:
                piece = os.read(primary, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            text += piece
        os.close(primary)
        text = text.decode("utf-8", "replace").replace("\r", "")
        lines = re.findall(PROGRESS, text, re.M)
        check(job.wait(60) == 0 and lines and lines[-1][0] == "40" and not any(date for _, date in lines), f"{launcher}: {lines} in {text[-1500:]}")


def test_uneven_hosts(binary, folder):
    """Hosts with unequal numbers of ranks give one warning. With a pod of hosts they are refused.
    Even hosts give no warning."""
    make(folder)
    words = f"-data_train train.h5 -batch_size 12 -steps 2 {MODEL} {TABLES}"
    for ranks, status, more, said in ((3, 0, "", "hosts are uneven, of 1 to 2 ranks"), (4, 0, "", ""), (4, 0, "-topology_pod_size 2", ""),
                                      (3, 64, "-topology_pod_size 2", "the hosts have 1 to 2 ranks, which are no pods of 2 hosts"),
                                      (3, 0, "-topology_local_world_size 3", "")):
        text = run(binary, ranks, f"{words} -comm_ranks_per_host 2 {more}", folder, status=status).text
        check(text.count("the hosts ") == (1 if said else 0) and said in text, f"{ranks} ranks {more}: {text[:1500]}")


def test_no_allocations(binary, folder):
    """After an epoch of 8 steps has shown every batch, no step allocates memory, under any plan and
    pipeline, also between evaluations."""
    features = {"user": 50, "item": 30, "tag": 20, "shop": 11, "word": 40}
    path = write_dataset(os.path.join(folder, "train.h5"), 192, features=features)
    with h5py.File(path, "r+") as h:  # two ids for each feature in every sample
        rng = np.random.default_rng(1)
        for name, data in (("lengths", np.full((192, 5), 2, np.int32)), ("offsets", np.arange(193) * 10),
                           ("values", rng.integers(0, 11, 1920).astype(np.int32))):
            del h["sparse"][name]
            h["sparse"][name] = data
    for options in (f"{MIXED} -data_eval train.h5 -eval_every 7", f"{MIXED} -pipeline base", "-tables_sharding_types row_wise", "-tables_sharding_types table_wise", "-embedding_optimizer adam"):
        train(binary, folder, "run", 2, f"{options} -steps 60")
        n = attribute(os.path.join(folder, "run.h5"), "allocations_after_warm_up")
        check(n == 0, f"{options}: {n} allocations after the warm-up")


@thinned
def test_memory(binary, folder):
    """A rank's memory is at most a quarter more than its shards, their states and its batches, also
    while a checkpoint is written or read."""
    features = {"user": 50, "item": 30}
    write_dataset(os.path.join(folder, "train.h5"), 200, features=features)
    model = "-tables_embedding_dim 64 -dense_arch 16,64 -over_arch 16,1 -data_train train.h5 -batch_size 16 -steps 20 -output run.h5"
    rows = thin(300000, 100000)
    large = f"-tables_num_embeddings {rows}"

    def peak(options):
        run(binary, 2, f"{model} {options}", folder)
        return attribute(os.path.join(folder, "run.h5"), "peak_memory_bytes")

    for optimizer, state in thin((("sgd", 0), ("rowwise_adagrad", 4), ("adam", 512)), (("adam", 512),)):
        for plan in ("row_wise", "table_wise"):
            shared = f"-tables_sharding_types {plan} -embedding_optimizer {optimizer}"
            bytes_of_rank = 2 * rows * (256 + state) / 2
            growth = peak(f"{shared} {large} -checkpoint_final {optimizer}.h5") - peak(shared)
            check(growth <= 1.25 * bytes_of_rank, f"{shared}: {growth / bytes_of_rank:.2f} times the tables and states when writing")
        growth = peak(f"{shared} {large} -init_from {optimizer}.h5") - peak(shared)
        check(growth <= 1.25 * bytes_of_rank, f"{shared}: {growth / bytes_of_rank:.2f} times the tables and states when reading")
