# SPDX-License-Identifier: BSD-3-Clause
"""Plan files given by -plan_input."""
import json
import os

import trsrun
from badinput import Case
from prepare import fifo
from trsrun import check


def plan(change=None, text=None, options="-tables_sharding_types row_wise"):
    """A prepare function: plan.json is the planner's own plan for the good case, with a change."""
    def prepare(folder):
        path = os.path.join(folder, "plan.json")
        trsrun.run(os.environ["TRS_BINARY"], 1, Case("plan", 0, options="-task plan -topology_world_size 2 -topology_compute_device cpu "
                   f"{options} -plan_output plan.json", without=("-output", "-checkpoint_final")).words(), folder)
        with open(path, encoding="utf-8") as file:
            made = file.read()
        if change:
            tree = json.loads(made)
            change(tree)
            made = json.dumps(tree)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text(made) if text else made)
    return prepare


def hole(name, n_bytes):
    """A prepare function: a sparse file of zeros, which takes no space on the disk."""
    def prepare(folder):
        with open(os.path.join(folder, name), "wb") as out:
            out.truncate(n_bytes)
    return prepare


huge, zeros = hole("huge.json", 5 << 30), hole("zeros.json", 1 << 20)


def case(name, message, change=None, text=None, status=65, **more):
    return Case(name, status, message, "-plan_input plan.json", plan(change, text), **more)


def says(*lines):
    """An after function: the output has these lines."""
    def after(folder, result):
        for line in lines:
            check(line in result.text, f"no line {line!r} in\n{result.text[-2000:]}")
    return after


def table(tree, index=0):
    return tree["tables"][index]


DRY = "-task plan -topology_world_size 2 -topology_compute_device"

TWO_RANKS = True
CASES = [
    Case("device_group_of_another_device", 64, r'table "item" has device group cuda \(-table_item_device_group .*this run is on cpu', "-device cpu -table_item_device_group cuda"),
    Case("device_group_three_ranks", 64, r'table "user" has device group cuda', "-device cpu -tables_device_group cuda", ranks=3),
    Case("device_group_of_another_topology", 64, r'table "item" has device group cpu .*-topology_compute_device', "-device cpu -topology_compute_device cuda -table_item_device_group cpu"),
    Case("device_group_of_this_device", 0, "", "-device cpu -tables_device_group cpu"),
    Case("device_group_in_a_dry_run", 0, "", f"{DRY} cpu -table_item_device_group cuda", after=says("plan: 2 tables", "not in this plan: table item, whose device group is cuda"),
         without=("-output", "-checkpoint_final")),
    Case("device_group_of_all_in_a_dry_run", 0, "", f"{DRY} cuda -tables_device_group cpu", after=says("plan: 0 tables", "not in this plan: table user, whose device group is cpu"),
         without=("-output", "-checkpoint_final")),
    Case("missing", 66, r"-plan_input .*plan\.json can't be read", "-plan_input plan.json"),
    Case("directory", 66, r"-plan_input .*out can't be read: it is a directory", "-plan_input out"),
    Case("fifo", 65, r"-plan_input .*pipe is not a regular file", "-plan_input pipe", fifo("pipe")),
    Case("fifo_three_ranks", 65, r"-plan_input .*pipe is not a regular file", "-plan_input pipe", fifo("pipe"), ranks=3),
    Case("device", 65, r"-plan_input /dev/zero is not a regular file", "-plan_input /dev/zero", ranks=1),
    Case("too_large", 65, r"-plan_input .*huge\.json has 5368709120 bytes; at most 4294967296", "-plan_input huge.json", huge),
    Case("zeros", 65, r"zeros\.json:\d+:\d+: not JSON", "-plan_input zeros.json", zeros),
    case("empty", r"plan\.json:\d+:\d+: not JSON", text=lambda _: ""),
    case("malformed", r"plan\.json:\d+:\d+: not JSON", text=lambda made: made[: len(made) // 2]),
    case("binary", r"plan\.json:\d+:\d+: not JSON", text=lambda _: "\x01\x02\x03"),
    case("nested_without_end", r"plan\.json:\d+:\d+: not JSON", text=lambda _: "[" * 100000),
    case("key_twice", r"plan\.json:\d+:\d+: not JSON", text=lambda made: made.replace("{", '{"format": "trshard-plan", ', 1)),
    case("not_an_object", r"plan\.json: not a plan", text=lambda _: "[1, 2]"),
    case("other_format", r'plan\.json: format is "trshard-plan-error"', lambda tree: tree.update(format="trshard-plan-error")),
    case("newer_version", r"plan\.json: .*version is 2", lambda tree: tree.update(version=2)),
    case("no_tables", r'plan\.json: .*no field "tables"', lambda tree: tree.pop("tables")),
    case("other_world", r"plan\.json: the plan is for 2 ranks, but this run has 3", ranks=3),
    case("world_without_devices", r"plan\.json: world_size is 3, but there are 2 devices", lambda tree: tree.update(world_size=3)),
    case("lacks_a_table", r'plan\.json: the plan has no table "user"', lambda tree: tree["tables"].pop(0)),
    case("has_another_table", r'plan\.json: table "usr" of the plan|plan\.json: the plan has no table "user"', lambda tree: table(tree).update(name="usr")),
    case("table_twice", r'plan\.json: table "item" appears twice', lambda tree: tree["tables"].append(table(tree, 1))),
    case("rank_outside", r"plan\.json: .*rank 7", lambda tree: (table(tree)["ranks"].__setitem__(1, 7), table(tree)["shards"][1].update(rank=7))),
    case("ranks_disagree", r"plan\.json: .*rank 0 disagrees", lambda tree: table(tree)["shards"][1].update(rank=0)),
    case("rows_missing", r'plan\.json: .*table "user"', lambda tree: table(tree)["shards"][1]["size"].__setitem__(0, 20)),
    case("rows_overlap", r'plan\.json: table "user", shard 1', lambda tree: table(tree)["shards"][1]["offset"].__setitem__(0, 20)),
    case("sticks_out", r'plan\.json: table "user", shard 1', lambda tree: table(tree)["shards"][1]["size"].__setitem__(0, 1 << 40)),
    case("negative_offset", r"plan\.json: .*offset", lambda tree: table(tree)["shards"][0]["offset"].__setitem__(0, -1)),
    case("a_shard_missing", r"plan\.json: .*1 shards but 2 ranks", lambda tree: table(tree)["shards"].pop()),
    case("unknown_type", r'plan\.json: .*sharding_type "sideways" is not known', lambda tree: table(tree).update(sharding_type="sideways")),
    case("unknown_kernel", r'plan\.json: .*compute_kernel "fast" is not known', lambda tree: table(tree).update(compute_kernel="fast")),
    case("kernel_of_another_type", r"plan\.json: .*row_wise does not go with compute kernel dense", lambda tree: table(tree).update(compute_kernel="dense")),
    case("load_factor_one", r'plan\.json: table "user": cache_load_factor is 1.?, which must be above 0 and below 1',
         lambda tree: table(tree).update(compute_kernel="fused_uvm_caching", cache_load_factor=1.0)),
    case("cached_on_cpu", "", lambda tree: table(tree).update(compute_kernel="fused_uvm_caching", cache_load_factor=0.5), status=0),
    case("text_for_number", r"plan\.json: .*rank is not", lambda tree: table(tree)["shards"][0].update(rank="0")),
    case("hosts_overflow", r"plan\.json: pod_size 65536 and local_world_size 65536: their product overflows",
         lambda tree: (tree.update(pod_size=1 << 16, local_world_size=1 << 16), [one.pop("shards") for one in tree["tables"]], table(tree).update(sharding_type="grid_shard"))),
    case("negative_time", r"plan\.json: tables\[0\]\.shards\[1\]\.fwd_comms is -0\.5, which is negative", lambda tree: table(tree)["shards"][1]["perf"].update(fwd_comms=-0.5)),
    case("negative_bytes", r"plan\.json: devices\[1\]\.ddr is -1, not in \[0", lambda tree: tree["devices"][1]["storage"].update(ddr=-1)),
    case("bytes_beyond_64_bits", r"plan\.json: tables\[0\]\.shards\[0\]\.ddr is 4611686018427387904, not in \[0", lambda tree: [table(tree, i)["shards"][0]["storage"].update(ddr=1 << 62) for i in range(2)]),
    case("good", "", status=0),
]
