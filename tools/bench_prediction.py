#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures how well a step is predicted: each stage's predicted and measured time for ten models, and the planner's plan against forced plans.

  bench_prediction.py build/trshard                               ten models on 1 and 2 ranks, and the choice, about 15 minutes
  bench_prediction.py build/trshard --models small,adam --ranks 2 --choice=
  bench_prediction.py build/trshard --models others               models that the cost model was not developed with

-task bench -bench_topology measures the machine once per round for each number of ranks. Then -plan_cost_model measured plans each model with
these rates, and a run trains it. The run's results hold both times of each stage, without the first steps. Both are times of the slowest rank,
and medians count. Goals: the step within 20 %, each stage within 35 %, and the planned run at 0.95 times the speed of the fastest of seven
forced plans. A stage of less than 3 % of the step is shown without a verdict. A model is a DLRM of 26 tables of 100,000 rows, dim 64, 1 id per
bag, batch 2048 per rank, small MLPs, row-wise AdaGrad, with these exceptions:
"""
import argparse
import os
import sys
import tempfile

import trspython

trspython.require("h5py", "numpy")

import bench_common as common
import bench_torchrec
import trsread

MIXED = "100,1000000,3000,500000,20,50000,2000000,10,300000,1000,10000,100000,200"  # rows of tables of different sizes
MODELS = {"small": {}, "large": {"mlp": "large"}, "dcn": {"mlp": "dcn", "batch": 1024}, "pooling": {"pooling": 10}, "dim16": {"dim": 16}, "dim128": {"dim": 128, "batch": 1024},
          "fp16": {"options": "-tables_data_type fp16"}, "adam": {"optimizer": "adam"}, "data_parallel": {"options": "-tables_sharding_types data_parallel"},
          "row_wise": {"options": "-tables_sharding_types row_wise"}}
OTHERS = {"dim32": {"dim": 32, "pooling": 5}, "mixed": {"rows": MIXED, "tables": 13, "pooling": 3}, "few": {"tables": 4, "batch": 512},
          "column_wise": {"pooling": 10, "options": "-tables_sharding_types column_wise -tables_min_partition 32"},
          "replicas": {"rows": 2000, "pooling": 4, "options": "-tables_sharding_types data_parallel"},
          "rows": {"pooling": 10, "dim": 32, "options": "-tables_sharding_types row_wise"},
          "stochastic": {"dim": 128, "batch": 1024, "options": "-tables_data_type fp16 -tables_stochastic_rounding true"}, "hot": {"zipf": True, "pooling": 10},
          "deep": {"batch": 512, "options": "-dense_arch 1024,512,64 -over_arch 512,512,256,1"}}
TYPES = ("table_wise", "column_wise", "row_wise", "data_parallel", "table_row_wise", "table_column_wise", "grid_shard")
STEP, STAGE, CHOICE = 0.20, 0.35, 0.95
LEAST_SHARE = 0.03  # share of the step below which a stage is not judged
SPEED = bench_torchrec.SPEED


class Prediction:
    """The machine's rates, and trainings that were predicted with them."""

    def __init__(self, args, folder):
        self.args, self.folder, self.bench, self.turn = args, folder, bench_torchrec.Bench(args, folder), 0
        self.foreign = 0.0  # largest share of other programs' processor time while rates were measured

    def rates(self, ranks):
        """The option file with this round's rates for this number of ranks. If there is none, it is made from the least
        disturbed of a few measurements.
        """
        path = os.path.join(self.args.rates or self.folder, f"topology_{ranks}_{self.turn}.opts")
        if os.path.exists(path):
            return path
        command = [*common.mpirun(ranks, self.args.threads), self.args.binary, "-task", "bench", "-bench_topology", common.with_folder(path), *self.args.bench_options.split()]
        found = []
        for _ in range(self.args.tries):
            _, foreign = common.window(lambda: common.output_of(command, common.threads_environment(self.args.threads), timeout=self.args.timeout))
            with open(path, encoding="utf-8") as file:
                found.append((foreign, file.read()))
            if foreign <= self.args.foreign:
                break
        best = min(found)
        self.foreign = max(self.foreign, best[0])
        with open(path, "w", encoding="utf-8") as file:
            file.write(best[1])
        print(f"# rates of {ranks} ranks: {path}" + (f", disturbed, {best[0]:.0%}" if best[0] > self.args.foreign else ""), file=sys.stderr)
        return path

    def train(self, model, ranks, *more):
        """Figures of a run: its speed, and each stage's predicted and measured time in ms of the slowest rank."""
        settings = dict(model)
        options = settings.pop("options", "").split()
        work = self.bench.workload(**{"mlp": "small", "ranks": ranks, **settings})
        output, steps = os.path.join(self.folder, "run.h5"), self.args.warmup + self.bench.steps(work, 4)
        common.output_of([*self.bench.command(work, steps), "-output", output, "-options_file", self.rates(ranks), "-plan_cost_model", "measured", *options, *more],
                         common.threads_environment(self.args.threads), timeout=self.args.timeout)
        run = trsread.read_run(output)
        speeds, figures, step = run["train/samples_per_s"][self.args.warmup:], {}, [0.0, 0.0]
        for name, measured, predicted in run.stage_rows():
            step[0] = step[0] + measured
            figures[f"measured {name}"] = float(measured.max())
            if predicted is not None:
                step[1] = step[1] + predicted
                figures[f"predicted {name}"] = float(predicted.max())
        return {SPEED: float(len(speeds) / (1 / speeds).sum()), "measured step": float(step[0].max()), "predicted step": float(step[1].max()), **figures}


def judge(samples, case, figures):
    """[(stage, predicted, measured, whether it is close enough or None)] of a model, medians over rounds, the step first."""
    median = {figure: samples.median(case, "trshard", figure) for figure in figures}
    rows = []
    for name in ["step", *(name.removeprefix("measured ") for name in median if name.startswith("measured ") and name != "measured step")]:
        measured, predicted = median[f"measured {name}"], median.get(f"predicted {name}")
        judged = predicted is not None and max(measured, predicted) >= LEAST_SHARE * median["measured step"]
        rows.append((name, predicted, measured, abs(predicted / measured - 1) <= (STEP if name == "step" else STAGE) if judged and measured > 0 else None))
    return rows


def print_models(samples, cases, allowed):
    """Prints one line per stage, then the number of goals that are met."""
    verdicts = {"step": [], "stage": []}
    print(f"{'model':22} {'stage':26} {'predicted ms':>12} {'measured ms':>12} {'ratio':>6}  verdict")
    for case in cases:
        figures = samples.figures(case, "trshard")
        for name, predicted, measured, met in judge(samples, case, figures) if figures else ():
            if met is not None:
                verdicts["step" if name == "step" else "stage"].append(met)
            foreign = samples.foreign(case, "trshard")
            words = ("" if met is None else "met" if met else "NOT MET") + (f" (disturbed, {foreign:.0%})" if met is not None and foreign > allowed else "")
            print(f"{case:22} {name:26} {'' if predicted is None else f'{predicted:.3f}':>12} {measured:>12.3f} {'' if not predicted or not measured else f'{predicted / measured:.2f}':>6}  {words}".rstrip())
    for what, goal in (("step", STEP), ("stage", STAGE)):
        print(f"{what}s within {goal:.0%}: {sum(verdicts[what])} of {len(verdicts[what])}")


def choices(prediction, words, ranks):
    """Contestants and goals: the planner's own plan of a model against plans of one sharding type."""
    cases, goals = {}, []
    for word in words:
        model, case = {**MODELS, **OTHERS}[word], f"choice {word}"
        options = {"planned": ",".join(TYPES), **{kind: kind for kind in TYPES}}
        cases[case] = {name: lambda model=model, kinds=kinds: prediction.train(model, ranks, "-tables_sharding_types", kinds, "-tables_min_partition", "32", "-plan_proposers", "auto")
                       for name, kinds in options.items()}
        goals.append(common.Goal(f"plan of {word}, samples/s", (case, "planned", SPEED), [(case, kind, SPEED) for kind in TYPES], CHOICE, of="fastest forced"))
        goals += [common.Goal(f"plan of {word}, predicted ms", (case, name, "predicted step"), (case, name, "measured step"), of=f"measured, {name}") for name in options]
    return cases, goals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", metavar="BINARY", help="trshard")
    parser.add_argument("--models", default=",".join(MODELS), help="list, others, or '' for none (default: %(default)s)")
    parser.add_argument("--ranks", default="1,2", help="list (default: %(default)s)")
    parser.add_argument("--choice", default="pooling,mixed", help="models whose plan is held against forced ones, on the most ranks; '' for none (default: %(default)s)")
    parser.add_argument("--rates", metavar="FOLDER", help="keep the rates there, topology_<ranks>_<round>.opts, and take those that are there")
    parser.add_argument("--bench-options", default="", metavar="WORDS", help="more options of -task bench")
    bench_torchrec.add_training_options(parser)
    common.add_options(parser, "bench_prediction")
    parser.set_defaults(plot="", warmup=10)
    args = parser.parse_args()
    args.binary, known = os.path.abspath(args.binary), {**MODELS, **OTHERS}
    words, chosen = [(",".join(OTHERS) if text == "others" else text).split(",") if text else [] for text in (args.models, args.choice)]
    if unknown := set(words + chosen) - set(known):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    ranks = [int(x) for x in args.ranks.split(",")]
    suite = common.Suite(args)
    with tempfile.TemporaryDirectory(prefix="trshard-bench-") as folder:
        prediction = Prediction(args, folder)
        cases = {f"{word} on {n}": {"trshard": lambda word=word, n=n: prediction.train(known[word], n)} for n in ranks for word in words}
        more, goals = choices(prediction, chosen, max(ranks))
        for turn in range(args.rounds):
            prediction.turn = turn
            for n in ranks:
                prediction.rates(n)
            for case, contestants in {**cases, **more}.items():
                for name, contestant in contestants.items():
                    suite.sample(case, name, turn, contestant)
        print_models(suite.samples, cases, args.foreign)
        if prediction.foreign > args.foreign:
            print(f"rates were measured while other programs used {prediction.foreign:.0%} of the processors: predictions say little")
        return suite.finish(goals, f"the planner's choice: {common.machine()}")


if __name__ == "__main__":
    sys.exit(main())
