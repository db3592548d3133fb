# SPDX-License-Identifier: BSD-3-Clause
"""The folder of a run's checkpoints: its owner, the programs that may write there, and the
behaviour of a second job."""
import glob
import os
import re
import shutil
import signal
import socket

import h5py

from law_plans import MODEL, TABLES, make
from trsrun import Job, attribute, check, check_same_tensors, run, same_bits, tensors, thin, thinned


def words(ranks, options):
    """Options of a run whose batches have 24 samples over all ranks."""
    model = MODEL.replace("-seed 3", "") if "-seed" in options else MODEL
    return f"-data_train train.h5 -batch_size {24 // ranks} {model} {TABLES} {options}"


def train(binary, folder, ranks, options, **more):
    return run(binary, ranks, words(ranks, options), folder, **more)


def start(binary, folder, ranks, options, **more):
    """Start such a run, and return while it runs."""
    return Job(binary, ranks, words(ranks, options), folder, **more)


def files(folder, name="ckpt"):
    return sorted(os.path.basename(path) for path in glob.glob(os.path.join(folder, name, "step-*.h5")))


def error(result):
    lines = [line for line in result.text.splitlines() if "trshard: error" in line]
    check(len(lines) == 1, f"messages: {lines}\n{result.text[-2000:]}")
    return lines[0]


def run_id(path):
    name = attribute(path, "run_id")
    name = name.decode() if isinstance(name, bytes) else name
    check(re.fullmatch("[0-9a-f]{16}", name), f"{path}: run_id is {name!r}")
    return name


def test_resume_at_the_end(binary, folder):
    """If a complete run with -resume is started again, like a job that is submitted twice, it
    trains no step and writes the same weights again."""
    make(folder)
    again = "-steps 5 -checkpoint_dir ckpt -resume -checkpoint_final final.h5"
    train(binary, folder, 2, again)
    wanted = tensors(os.path.join(folder, "final.h5"))
    text = train(binary, folder, 2, again).text
    check("after 5 updates" in text and "step 1/" not in text and files(folder) == ["step-000000005.h5"], text)
    found = tensors(os.path.join(folder, "final.h5"))
    check(found.keys() == wanted.keys() and all(same_bits(found[name], wanted[name]) for name in wanted), "other weights")


def test_folder_beside_final(binary, folder):
    """With -checkpoint_final, the folder also gets the last checkpoint, so that the run can be
    continued."""
    make(folder)
    train(binary, folder, 2, "-steps 5 -checkpoint_dir ckpt -checkpoint_final final.h5")
    check(files(folder) == ["step-000000005.h5"], f"{files(folder)}")
    text = train(binary, folder, 1, "-steps 6 -checkpoint_dir ckpt -checkpoint_final final.h5 -resume").text
    check("after 5 updates" in text, text)


def test_run_id(binary, folder):
    """A run's id is in its results and in each of its checkpoints. A resume on other ranks keeps
    the id, and another run has another id."""
    make(folder)
    at = lambda name: os.path.join(folder, name)
    train(binary, folder, 2, "-steps 6 -checkpoint_every 3 -checkpoint_dir ckpt -checkpoint_final final.h5 -output first.h5")
    first = run_id(at("first.h5"))
    for name in ("ckpt/step-000000003.h5", "ckpt/step-000000006.h5", "final.h5"):
        check(run_id(at(name)) == first, f"{name} is of another run")
    train(binary, folder, 3, "-steps 9 -resume -checkpoint_every 3 -checkpoint_dir ckpt -output rest.h5")
    for name in ("ckpt/step-000000009.h5", "rest.h5"):
        check(run_id(at(name)) == first, f"{name} is of another run")
    train(binary, folder, 1, "-steps 3 -init_from final.h5 -output other.h5")
    check(run_id(at("other.h5")) != first, "two runs have one id")


def test_run_id_of_old_checkpoint(binary, folder):
    """A checkpoint of an older version has no run id. It can be read, and the run gets an id when
    it continues."""
    make(folder)
    train(binary, folder, 1, "-steps 3 -checkpoint_every 3 -checkpoint_dir ckpt")
    with h5py.File(os.path.join(folder, "ckpt/step-000000003.h5"), "r+") as h:
        del h.attrs["run_id"]
    train(binary, folder, 2, "-steps 6 -resume -checkpoint_every 3 -checkpoint_dir ckpt -output rest.h5")
    check(run_id(os.path.join(folder, "ckpt/step-000000006.h5")) == run_id(os.path.join(folder, "rest.h5")), "two ids for one run")


def test_folder_of_another_run(binary, folder):
    """If a folder has another run's checkpoints of higher steps, a run that starts there is
    refused. The message names remedies, and each remedy works."""
    make(folder)
    train(binary, folder, 2, "-steps 8 -checkpoint_every 4 -checkpoint_dir ckpt")
    before = {name: open(os.path.join(folder, "ckpt", name), "rb").read() for name in files(folder)}
    fresh = "-seed 4 -steps 5 -checkpoint_every 5 -checkpoint_dir ckpt"
    for ranks in (1, 2, 3):
        result = train(binary, folder, ranks, fresh, status=73)
        message = error(result)
        check(all(way in message for way in ("ckpt holds 2 checkpoints of another run", "up to step 8", "-resume", "-checkpoint_dir", "-checkpoint_set_aside NAME")), message)
        check({name: open(os.path.join(folder, "ckpt", name), "rb").read() for name in files(folder)} == before, "the other run's files changed")
    for name, what in ((".old", 64), ("a/b", 64), ("''", 64)):
        check("-checkpoint_set_aside" in error(train(binary, folder, 2, f"{fresh} -checkpoint_set_aside {name}", status=what)), "no word of the option")
    error(train(binary, folder, 2, f"{fresh} -resume -checkpoint_set_aside old", status=64))
    result = train(binary, folder, 2, f"{fresh} -checkpoint_set_aside old")
    check("2 earlier checkpoints moved" in result.text, result.text[-2000:])
    check({name: open(os.path.join(folder, "ckpt/old", name), "rb").read() for name in files(folder, "ckpt/old")} == before, "files set aside changed")
    check(files(folder) == ["step-000000005.h5"], f"in the folder: {files(folder)}")
    check("old" in error(train(binary, folder, 2, f"{fresh} -checkpoint_set_aside old", status=73)), "a name that is there is taken again")
    train(binary, folder, 2, fresh.replace("ckpt", "other"))
    train(binary, folder, 2, "-steps 7 -seed 4 -checkpoint_every 7 -checkpoint_dir ckpt -resume")
    check(files(folder) == ["step-000000005.h5", "step-000000007.h5"], f"in the folder: {files(folder)}")


def test_keep_own_files(binary, folder):
    """A run does not remove files of older versions or damaged files. A resume is refused in a
    folder with the files of two runs."""
    make(folder)
    at = lambda name: os.path.join(folder, "ckpt", name)
    train(binary, folder, 2, "-steps 4 -checkpoint_every 2 -checkpoint_dir ckpt")
    for name in files(folder):
        with h5py.File(at(name), "r+") as h:
            del h.attrs["run_id"]
    with open(at("step-000000900.h5"), "wb") as out:
        out.write(b"no checkpoint")
    train(binary, folder, 3, "-steps 10 -checkpoint_every 2 -checkpoint_keep 1 -checkpoint_dir ckpt -resume")
    check(files(folder) == [f"step-{n:09d}.h5" for n in (2, 4, 10, 900)], f"in the folder: {files(folder)}")
    first = run_id(at("step-000000010.h5"))
    shutil.copyfile(at("step-000000004.h5"), at("step-000000011.h5"))  # an older version continued
    train(binary, folder, 2, "-steps 6 -checkpoint_every 2 -checkpoint_dir ckpt -resume")
    train(binary, folder, 2, "-steps 12 -checkpoint_every 2 -checkpoint_dir ckpt -resume")
    check(run_id(at("step-000000012.h5")) == first, "the run has lost its id")
    train(binary, folder, 2, "-steps 1 -checkpoint_every 1 -checkpoint_dir other")
    shutil.copyfile(os.path.join(folder, "other/step-000000001.h5"), at("step-000000020.h5"))
    message = error(train(binary, folder, 2, "-steps 30 -checkpoint_dir ckpt -resume", status=73))
    check("2 runs" in message and first in message and run_id(at("step-000000020.h5")) in message and "up to step 20" in message, message)


def test_stop_in_fresh_folder(binary, folder):
    """A stop before the first checkpoint was due leaves a checkpoint, and the next start continues
    from it."""
    make(folder)
    for ranks in (1, 2, 3):
        where = f"-checkpoint_dir fresh{ranks}"
        job = start(binary, folder, ranks, f"-steps 1000000000 -report_interval 0.05 {where}")
        job.read_to("step ")
        job.send_signal(signal.SIGUSR1)
        result = job.wait(20)
        check(result.all_left_with(75, ranks, patient=False), f"exit status {result.ranks}:\n{result.text[-2000:]}")
        (name,) = files(folder, f"fresh{ranks}")
        done = int(re.search(r"step-(\d+)", name).group(1))
        text = train(binary, folder, ranks, f"-steps {done + 2} {where} -resume -checkpoint_every 1").text
        check(f"{name}, after {done} updates" in text, text[-2000:])


ENDLESS = "-steps 1000000000 -report_interval 0.05 -checkpoint_every 20 -checkpoint_dir ckpt"


@thinned
def test_second_job(binary, folder):
    """A second job's message names the owner's host, process and batch job. A successor waits. A
    killed owner blocks no job."""
    make(folder)
    owner = start(binary, folder, 2, ENDLESS, environment={"SLURM_JOB_ID": "4711"})
    owner.read_to("step ")
    for i, options in enumerate(("", "-resume -checkpoint_lock_seconds 0", "-resume -checkpoint_lock_seconds 0.3"), 1):
        for ranks in thin((1, 2, 3), (i,)):
            result = train(binary, folder, ranks, f"-steps 2 -checkpoint_dir ckpt {options}", status=73)
            message = error(result)
            check(all(word in message for word in ("ckpt belongs to another job", socket.gethostname(), f"process {owner.pid(0)}", "SLURM_JOB_ID 4711")), message)
    waiting = start(binary, folder, 2, f"{ENDLESS} -resume -checkpoint_lock_seconds 600")
    waiting.read_to("waiting")
    waiting.send_signal(signal.SIGUSR1)
    result = waiting.wait(20)
    check(result.all_left_with(75, 2, patient=False) and "trshard: info: stopped on request while waiting" in result.text, f"{result.ranks}: {result.text[-2000:]}")
    successor = start(binary, folder, 3, f"{ENDLESS} -resume -checkpoint_lock_seconds 600")
    successor.read_to("waiting")
    owner.send_signal(signal.SIGUSR1)
    result = owner.wait(20)
    check(result.all_left_with(75, 2, patient=False), f"{result.ranks}: {result.text[-2000:]}")
    successor.read_to("resume")
    successor.read_to("step ")
    os.kill(successor.pid(0), signal.SIGKILL)
    check(successor.wait(20).status != 0, "a killed job ended well")
    newest = int(re.search(r"step-(\d+)", files(folder)[-1]).group(1))
    result = train(binary, folder, 2, f"-steps {newest + 3} -checkpoint_every 1 -checkpoint_dir ckpt -resume -checkpoint_lock_seconds 20")
    check("trshard: warning" not in result.text, result.text[-2000:])
    check(len({run_id(os.path.join(folder, "ckpt", name)) for name in files(folder)}) == 1, "files of several runs")


@thinned
def test_jobs_at_once(binary, folder):
    """Two jobs are started at the same time in one folder, repeatedly. One owns the folder. The
    other waits or is refused. Their files are not mixed."""
    make(folder)
    steps = 6
    for i in range(thin(10, 4)):
        name = f"ckpt{i}"
        resume = "-resume -checkpoint_lock_seconds 120" if i % 3 else ""
        options = f"-steps {steps} -checkpoint_every 1 -checkpoint_keep 2 -checkpoint_dir {name} {resume}"
        jobs = [start(binary, folder, ranks, f"{options} -seed {seed}") for ranks, seed in ((1 + i % 3, 1), (1 + (i + 1) % 3, 2))]
        results = [job.wait(60) for job in jobs]
        ended = sorted(result.status for result in results)
        check(ended == [0, 0] if resume else ended in ([0, 73], [0, 0]), f"trial {i}: ended with {ended}:\n" + "\n".join(r.text[-1000:] for r in results))
        if not resume:
            message = error(next(result for result in results if result.status == 73))
            check(f"{name} belongs to another job" in message or f"{name} holds" in message, message)
        check(files(folder, name) == [f"step-{n:09d}.h5" for n in (steps - 1, steps)], f"trial {i}: in the folder: {files(folder, name)}")
        check(len({run_id(os.path.join(folder, name, file)) for file in files(folder, name)}) == 1, f"trial {i}: files of several runs")
        result = train(binary, folder, 2, f"-steps {steps + 1} -checkpoint_every 1 -checkpoint_dir {name} -resume")
        check("trshard: warning" not in result.text and f"after {steps} updates" in result.text, f"trial {i}:\n{result.text[-1000:]}")


@thinned
def test_final_of_two_jobs(binary, folder):
    """If two jobs write the same -checkpoint_final and -output, the complete file of one of them
    remains."""
    make(folder)
    train(binary, folder, 2, "-steps 3 -seed 1 -checkpoint_final one.h5")
    train(binary, folder, 2, "-steps 3 -seed 2 -checkpoint_final two.h5")
    wanted = [tensors(os.path.join(folder, name)) for name in ("one.h5", "two.h5")]
    for i in range(thin(6, 3)):
        jobs = [start(binary, folder, 2, f"-steps 3 -seed {seed} -checkpoint_final final.h5 -output run.h5") for seed in (1, 2)]
        results = [job.wait(60) for job in jobs]
        check([result.status for result in results] == [0, 0], f"trial {i}:\n" + "\n".join(r.text[-1000:] for r in results))
        found = tensors(os.path.join(folder, "final.h5"))
        check(any(all(same_bits(found[name], of[name]) for name in of) for of in wanted), f"trial {i}: a mixture")
        run_id(os.path.join(folder, "run.h5"))


@thinned
def test_predict_beside_training(binary, folder):
    """A training keeps only one file in its folder. A prediction from this folder finds a file,
    which stays until it is read and is removed later."""
    make(folder)
    trainer = start(binary, folder, 1, "-steps 1000000000 -report_interval 60 -checkpoint_every 3 -checkpoint_keep 1 -checkpoint_dir ckpt")
    trainer.read_to("checkpoint")
    for i in range(thin(6, 3)):
        result = run(binary, 1 + i % 3, f"-task predict -data_eval train.h5 {MODEL} {TABLES} -batch_size 24 -checkpoint_dir ckpt", folder)
        check("trshard: warning" not in result.text, result.text[-2000:])
    trainer.send_signal(signal.SIGUSR1)
    check(trainer.wait(20).status == 75, "the training did not stop")
    check(len(files(folder)) == 1, f"in the folder: {files(folder)}")


def test_resume_of_other_data(binary, folder):
    """If the data was replaced by the same number of other samples, a resume prints this. If the
    data grew by a file, the resume continues with the first new sample."""
    make(folder)
    told = lambda text: [line[11:] for line in text.splitlines() if line.startswith("resume ") and (" had " in line or " but " in line)]
    train(binary, folder, 1, "-steps 2 -checkpoint_dir ckpt")
    with h5py.File(os.path.join(folder, "train.h5"), "r+") as h:
        h["labels"][-1] = 1 - h["labels"][-1]
    replaced = "the training data has as many samples as it had, but others: the place in it stays the same"
    for steps, ranks, wanted in ((4, 2, [replaced]), (6, 1, [])):
        text = train(binary, folder, ranks, f"-steps {steps} -checkpoint_dir ckpt -resume").text
        check(told(text) == wanted, f"told on {ranks} ranks: {told(text)}")
    make(folder, 100, name="second.h5")
    # Of 200 samples: 8 steps of 24 samples, and a step of 8. Of 300: 12 steps of 24, and a step of
    # 12.
    for epochs, ranks, place, updates in ((1, 1, "step 10 is step 9 of epoch 1", range(9, 14)), (2, 3, "step 19 is step 5 of epoch 2", range(18, 27))):
        days = f"-checkpoint_dir days{epochs} -epochs {epochs}"
        train(binary, folder, 2, days)
        text = train(binary, folder, ranks, f"{days} -data_train train.h5,second.h5 -resume -output days{epochs}.h5").text
        check(told(text) == ["the training data had 200 samples and has 300: the samples already seen still count as seen",
                             f"an epoch had 9 steps of 24 samples and has 13 of 24: {place}"], f"told on {ranks} ranks: {told(text)}")
        named = [int(name[5:14]) for name in files(folder, f"days{epochs}")]
        check(int(re.findall(r"checkpoint after step (\d+): ", text)[-1]) == max(named) == updates[-1] + 1, f"files {named}:\n{text[-600:]}")
        check([int(step) for step in re.findall(r"^step (\d+)/", text, re.M)][-1] == updates[-1] + 1, text)
        with h5py.File(os.path.join(folder, f"days{epochs}.h5")) as h:
            check(h["train/step"][()].tolist() == list(updates), f"updates {h['train/step'][()]}, expected {updates}")


def test_resume_of_changed_run(binary, folder):
    """A resume names changes in seed, data, model and optimizers. A model with fewer tables or
    layers is refused."""
    make(folder)
    first = "-seed 3 -steps 4 -checkpoint_every 4 -checkpoint_dir ckpt -embedding_learning_rate 0.02 -data_shuffle"
    train(binary, folder, 2, first)
    again = train(binary, folder, 3, f"{first} -resume -tables_sharding_types row_wise -table_tag_compute_kernels fused").text
    told = lambda text: [line[11:] for line in text.splitlines() if line.startswith("resume ") and (" was " in line or " had " in line)]
    check(not told(again), f"told without a change: {told(again)}")
    shutil.copyfile(os.path.join(folder, "train.h5"), os.path.join(folder, "moved.h5"))
    make(folder, 130)
    for ranks in (1, 2, 3):
        text = train(binary, folder, ranks, "-seed 5 -steps 4 -resume -checkpoint_dir ckpt -embedding_learning_rate 0.01 -dense_optimizer sgd -table_tag_eps 0.5").text
        wanted = ["the training data had 200 samples and has 130: the samples already seen still count as seen", "-seed was 3, is 5", "-embedding_learning_rate was 0.02, is 0.01",
                  "-data_shuffle was true, is false", "-table_tag_eps was not given, is 0.5"]
        check(sorted(told(text)) == sorted(wanted), f"told: {told(text)}")
    text = train(binary, folder, 2, first.replace("-steps 4", "-steps 5") + " -resume", environment={}).text
    check([line for line in told(text)] == ["the training data had 200 samples and has 130: the samples already seen still count as seen"], f"told: {told(text)}")
    text = train(binary, folder, 2, first.replace("-steps 4", "-steps 6") + " -resume -qcomm_forward_precision bf16 -plan_replicas 2").text
    check(told(text) == ["-qcomm_forward_precision was fp32, is bf16", "-plan_replicas was 1, is 2"], f"told: {told(text)}")
    fewer = words(2, f"{first} -resume").replace("user,item,tag,word", "user,item,tag")
    message = error(run(binary, 2, fewer, folder, status=64))
    check("-tables" in message and "has -tables user,item,tag,word; leave the option out" in message, message)
    with h5py.File(os.path.join(folder, "ckpt", files(folder)[-1]), "r+") as h:
        h["embedding/extra/weight"] = h["embedding/word/weight"][()]
    message = error(train(binary, folder, 3, f"{first} -resume", status=64))
    check("holds /embedding/extra, which the model lacks" in message and "-init_from" in message, message)
