# SPDX-License-Identifier: BSD-3-Clause
"""Mutated datasets, checkpoints, plans, options and YAML in the whole program, with ASan and UBSan.

Half of the inputs are changed in their structure, half in their bytes (mutate.py), and some in
both. Most run on one rank, and a quarter on two or three. Each run ends within ten seconds, with
the same documented status on every rank. It prints one message unless the status is 0.
"""
import os

import trsrun
import mutate
from campaign import DOCUMENTED, LIMIT_S, MODEL, SANITIZER_ENVIRONMENT, Tally, check_end, tail
from trsrun import check

ZCH = "-tables_id_map zch -table_user_num_embeddings 12 -table_item_num_embeddings 8 -table_tag_num_embeddings 6 -table_user_zch_buckets 2 -tables_zch_policy distance_lfu"
DYNAMIC = "-tables_id_map dynamic -tables_dynamic_cap 40 -table_user_dynamic_buckets 2 -tables_dynamic_admit_after 2 -table_item_dynamic_candidates 2"
LAYOUT = "-table_user_sharding_types row_wise -table_item_sharding_types table_wise"
TRAIN = f"-data_train train.h5 -batch_size 6 -steps 3 {MODEL}"
# the file to mutate, and runs that read it
KINDS = {
    "dataset": ("train.h5", [TRAIN, TRAIN + " -data_shuffle -data_eval train.h5", TRAIN + " -bounds_check_mode warning -data_check warn -drop_last",
                             f"-task eval -data_eval train.h5 -init_from model.h5 -batch_size 6 {MODEL}"]),
    "old_dataset": ("old.h5", [TRAIN.replace("train.h5", "old.h5"), TRAIN.replace("train.h5", "old.h5,train.h5")]),
    "checkpoint": ("model.h5", [TRAIN + " -init_from model.h5", TRAIN + " -init_from model.h5 -init_from_missing initial -init_from_rows grow",
                                f"-task predict -data_eval train.h5 -init_from model.h5 -tables_data_type int8 -batch_size 6 {MODEL}"]),
    # most bytes of these files are of directories
    "zch": ("zch.h5", [f"{TRAIN} {ZCH} -init_from zch.h5", f"{TRAIN} {ZCH} -init_from zch.h5 -init_from_missing initial"]),
    "dynamic": ("dynamic.h5", [f"{TRAIN} {DYNAMIC} -init_from dynamic.h5", f"{TRAIN} {DYNAMIC} -tables_dynamic_cap 6 -init_from dynamic.h5".replace("-tables_dynamic_cap 40 ", "")]),
    "resume": ("ckpt/step-000000002.h5", [TRAIN + " -checkpoint_dir ckpt -resume"]),
    "increment": ("inc/step-000000003.h5", [TRAIN + " -checkpoint_dir inc -checkpoint_full_every 9 -resume", TRAIN + " -init_from inc/step-000000003.h5"]),
    "increment_full": ("inc/step-000000001.h5", [TRAIN + " -init_from inc/step-000000003.h5"]),
    "increment_dynamic": ("dyn/step-000000003.h5", [f"{TRAIN} {DYNAMIC} -init_from dyn/step-000000003.h5"]),
    "quantised": ("quant.h5", [f"-task predict -data_eval train.h5 -init_from quant.h5 -tables_data_type int8 -batch_size 6 {MODEL}"]),
    "plan": ("plan.json", [TRAIN + f" {LAYOUT} -plan_input plan.json"]),
    "options": ("run.opts", ["-options_file run.opts -steps 2 -output run.h5", "-options_file run.opts -task plan"]),
    "yaml": ("run.yaml", ["-options_file run.yaml -task plan", "-options_file run.yaml -steps 2 -output run.h5"]),
    "cluster": ("cluster.yaml", ["-options_file cluster.yaml"]),
}
YAML = """# a run
data_train: train.h5
batch_size: 6
steps: 2
seed: 1
dense_arch: [8, 4]
over_arch: "8,1"
tables_embedding_dim: 4
tables: &all [user, item, tag]
table:
  user: &shared
    learning_rate: 0.05
    sharding_types: "row_wise,table_wise"
  item:
    <<: *shared
    pooling: mean
topology_hbm_cap: 1GiB
plan_proposers: "greedy,uniform"
embedding_optimizer: rowwise_adagrad
report_interval: 10
"""


class Mutations:
    name, unit, goal, weight = "mutations", "mutated inputs", 5000, 9

    def __init__(self, setting):
        self.s = setting
        self.binary = setting.sanitized or setting.binary

    def prepare(self):
        if not self.s.sanitized:
            return "no build with sanitizers: regression/sanitize/sanitize.sh build build/sanitize makes one"
        good = self.good = self.s.fresh("mutations-good")
        trsrun.write_dataset(os.path.join(good, "train.h5"))
        # HDF5's own structures have no checksums
        trsrun.write_dataset(os.path.join(good, "old.h5"), libver="earliest")
        for n, words in ((5, f"{TRAIN} {ZCH} -checkpoint_final zch.h5"), (4, f"{TRAIN} {DYNAMIC} -checkpoint_final dynamic.h5"),
                         (3, f"{TRAIN} -checkpoint_final model.h5 -output run.h5 -plan_output plan.json {LAYOUT}"), (2, f"{TRAIN} -steps 2 -checkpoint_dir ckpt -checkpoint_every 1"),
                         (6, f"{TRAIN} -checkpoint_dir inc -checkpoint_every 1 -checkpoint_full_every 9"), (7, f"{TRAIN} {DYNAMIC} -checkpoint_dir dyn -checkpoint_every 1 -checkpoint_full_every 9"),
                         (1, f"-task predict -data_eval train.h5 -init_from model.h5 -tables_data_type int8 -quant_checkpoint quant.h5 -batch_size 6 {MODEL}")):
            words = words.replace("-steps 3", "") if words.count("-steps") == 2 else words
            result = trsrun.Job(self.s.binary, 1, words, good).wait(60)
            check(result.status == 0, f"input {n}: exit {result.status}\n{tail(result.text)}")
        with open(os.path.join(good, "run.opts"), "w", encoding="utf-8") as file:
            file.write(str(trsrun.attribute(os.path.join(good, "run.h5"), "options")).replace(good + "/", ""))
        with open(os.path.join(good, "run.yaml"), "w", encoding="utf-8") as file:
            file.write(YAML)
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "..", "..", "input", "plan_cluster.yaml"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(good, "cluster.yaml"), "w", encoding="utf-8") as file:
            file.write(text)
        return None

    def mutate(self, rng, path):
        with open(path, "rb") as file:
            data = file.read()
        by_structure = rng.random() < 0.5
        if by_structure and path.endswith(".h5"):
            mutate.hdf5_of(rng, path)
        else:
            if by_structure:
                text = data.decode()
                data = (mutate.json_of if path.endswith(".json") else mutate.text_of)(rng, text).encode()
            if not by_structure or rng.random() < 0.1:
                data = mutate.bytes_of(rng, data, () if path.endswith(".h5") else mutate.WORDS)
            with open(path, "wb") as file:
                file.write(data)
        return "by structure" if by_structure else "by bytes"

    def case(self, index):
        rng = self.s.rng(self.name, index)
        kind = list(KINDS)[index % len(KINDS)]
        folder = self.s.fresh(f"mutations-{index}", self.good)
        name, runs = KINDS[kind]
        how = self.mutate(rng, os.path.join(folder, name))
        ranks, words = rng.choice([1, 1, 1, 1, 1, 1, 2, 3]), rng.choice(runs)
        try:
            result = trsrun.Job(self.binary, ranks, words, folder, environment=SANITIZER_ENVIRONMENT, launcher=trsrun.PATIENT).wait(LIMIT_S)
            check_end(result, ranks, DOCUMENTED)
        except trsrun.Failed as problem:
            return Tally(1, [f"{kind} mutated {how}, {ranks} ranks, {words}: {problem}"])
        self.s.fresh(f"mutations-{index}")
        return Tally(seconds=result.seconds)
