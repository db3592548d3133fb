# SPDX-License-Identifier: BSD-3-Clause
"""Option files, .opts and .yaml."""
import os

from badinput import Case
from prepare import fifo, holds


def opts(name, status, message, content):
    return Case(name, status, message, "-options_file bad.opts", holds("bad.opts", content), without=("-batch_size", "-steps"))


def yaml(name, status, message, content):
    return Case(name, status, message, "-options_file bad.yaml", holds("bad.yaml", content), without=("-batch_size", "-steps"))


def relative(folder):
    os.makedirs(os.path.join(folder, "inputs"))
    os.rename(os.path.join(folder, "train.h5"), os.path.join(folder, "inputs", "train.h5"))
    holds("inputs/run.opts", "-data_train train.h5\n")(folder)


CASES = [
    Case("missing", 66, r'option file "bad\.opts" cannot be opened: No such file', "-options_file bad.opts"),
    Case("missing_three_ranks", 66, r'option file "bad\.opts"', "-options_file bad.opts", ranks=3),
    Case("no_name", 64, r"-options_file .*value is missing", "-options_file"),
    Case("directory", 66, r'option file "out" is not a regular file but a directory', "-options_file out"),
    Case("fifo", 66, r'option file "bad\.opts" is not a regular file', "-options_file bad.opts", fifo("bad.opts")),
    Case("device", 66, r'option file "/dev/zero" is not a regular file', "-options_file /dev/zero"),
    opts("includes_itself", 64, r"-options_file \(bad\.opts:2\): an option file cannot name another", "-batch_size 8\n-options_file bad.opts\n"),
    opts("binary", 64, r"bad\.opts:1: not a text", b"-batch_size 8\x00\x01\x7f\n"),
    opts("nul_in_the_middle", 64, r"bad\.opts:2: not a text", b"-batch_size 8\n-ste\x00ps 3\n"),
    opts("too_large", 64, r'option file "bad\.opts" has \d+ bytes; at most', b"# nothing\n" * 2000000),
    opts("unknown_option", 64, r"-bach_size \(bad\.opts:3\): unknown option; .*-batch_size", "# a comment\n\n-bach_size 8\n"),
    opts("missing_value", 64, r"-batch_size \(bad\.opts:1\): the value is missing", "-batch_size\n-steps 3\n"),
    opts("wrong_type", 64, r'-batch_size "many" \(bad\.opts:2\): expected an integer', "-steps 3\n-batch_size many\n"),
    opts("given_twice", 64, r'-steps is given twice .*"3" \(bad\.opts:1\) and "4" \(bad\.opts:3\)', "-steps 3\n-batch_size 8\n-steps 4\n"),
    opts("word_without_option", 64, r'bad\.opts:1: "batch_size" belongs to no option', "batch_size 8\n"),
    opts("open_quote", 64, r"bad\.opts:2: a quote is opened but not closed", '-steps 3\n-data_train "train.h5\n'),
    opts("windows_line_ends", 0, "", "\ufeff-batch_size 8\r\n-steps 3\r\n"),
    opts("early_petsc_option", 64, r"-malloc_debug \(bad\.opts:1\)", "-malloc_debug\n"),
    yaml("yaml_syntax", 64, r"bad\.yaml:\d+: not valid YAML", "steps: 3\nbatch_size: [1, 2\n"),
    yaml("yaml_tab", 64, r"bad\.yaml:\d+: not valid YAML", "steps: 3\n\tbatch_size: 4\n"),
    yaml("yaml_list_at_top", 64, r"bad\.yaml:1: expected keys and values", "- steps\n- 3\n"),
    yaml("yaml_unknown_key", 64, r"-table_user_embeding_dim \(bad\.yaml:3\).*-table_user_embedding_dim", "table:\n  user:\n    embeding_dim: 4\n"),
    yaml("yaml_bomb", 64, r"bad\.yaml", "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9))),
    yaml("yaml_aliases_of_a_long_value", 64, r"bad\.yaml:2: names and values have more than 16777216 bytes",
         f"table_a_features: &a {'x' * 20000}\ntable: {{{','.join(f't{i}: *a' for i in range(40000))}}}\n"),
    yaml("yaml_aliases_of_a_long_list", 64, r"bad\.yaml:\d+: names and values have more than 16777216 bytes",
         f"table_a_features: &a [{','.join(chr(39) * 2 for _ in range(30000))}]\ntable:\n" + "".join(f"  t{i}: *a\n" for i in range(20000))),
    yaml("yaml_many_anchors", 64, r"bad\.yaml: 40000 anchors \(&name\) and 0 aliases", "".join(f"t{i}: &t{i} 1\n" for i in range(40000))),
    yaml("yaml_many_directives", 64, r"bad\.yaml: more than 64 lines begin with %", "".join(f"%TAG !a{i}! tag:x{i}\n" for i in range(40000)) + "---\nsteps: 3\n"),
    yaml("yaml_alias_good", 0, "", "tables_embedding_dim: &d 4\ntable:\n  user: {embedding_dim: *d}\nsteps: 3\nbatch_size: 8\n"),
    yaml("yaml_deep", 64, r"bad\.yaml.*deep", "steps: " + "[" * 20000 + "]" * 20000 + "\n"),
    yaml("yaml_given_twice", 64, r"-steps is given twice", "steps: 3\nsteps: 4\n"),
    yaml("yaml_good", 0, "", "steps: 3\nbatch_size: 8\ntables:\n  pooling: mean\n"),
    Case("two_dashes", 64, r'-batch_size "x" .*bad\.opts', "--options_file bad.opts", holds("bad.opts", "-batch_size x\n"), without=("-batch_size",)),
    Case("two_dashes_missing", 66, r'option file "bad\.opts"', "--options_file bad.opts"),
    Case("paths_are_relative_to_the_file", 0, "", "-options_file inputs/run.opts", relative, without=("-data_train",)),
]
