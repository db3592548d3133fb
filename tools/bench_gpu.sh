#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs a GPU's benchmark: kernels compared with the copy bandwidth, training compared with PyTorch on the same card, and the work hidden behind compute.
#
#   tools/bench_gpu.sh FOLDER [PEER_PYTHON] [--device cuda] [--tables 26] [--rows 1000000] [--dims 64,128,256] [--batch 8192] [--pooling 10] [--rounds 9] [--copy_bytes 1GiB]
#                      [--kernels all|none] [--models DLRM,DCN,MLPerf] [--precisions fp32,tf32,bf16] [--seconds 12 | --steps N] [--model_dim 128] [--data FILE]
#                      [--mlperf_data FILE] [--mlperf_rows_by 1] [--budget SECONDS] [--variants LIST] [--under COMMAND]
#
# FOLDER is a build folder (with its tests) or an unpacked bundle (tools/bundle.sh). Its bench_make_data makes datasets of random ids. PEER_PYTHON is a
# python whose torch finds the GPU, or none. DLRM and DCN have one id per feature. MLPerf is input/dlrm_dcnv2.yaml, with 204 M rows as fp16 (52 GB, or
# divided by --mlperf_rows_by; from 100000 on, for a trial, its layers are small, too) and 214 ids per sample; its reference is HugeCTR's rate on a DGX H100. DLRM and DCN are also trained with an eighth of the
# batch, without and with -dense_graphs. Four batches are read once and repeated, as in the PyTorch peer; bench_reader measures reading. A training takes
# --seconds; a short training before it determines the number of steps.
# Prints the measurements, then a table of goals: met, NOT MET, or not compared. It takes about 8 minutes. With --budget, work that would end later than
# this many seconds from now is not begun: a line "late" names it, and the table has the rest. With TRSHARD_RESULTS=FOLDER the output of the trainings,
# including -log_view, goes to FOLDER/training.txt, and traces go to FOLDER.
# With --variants, each model is instead trained once for each word of the list, without PyTorch, and compared with the first: plain, graphs
# (-dense_graphs), algorithms (8 for each product), both, nearest (no stochastic rounding), all, kernels (-log_view_kernels and -log_view_products, whose
# lines are printed: the time of each kernel, and of each algorithm for each product). --under COMMAND runs trainings under a profiler.
# The column "predicted" has the predictions of a hardware model (gpu_expected.txt). `bench_gpu.sh --expected` prints only these, without a GPU.
# Exit: 0 for any verdicts; 1 if a part did not run. The machine should be otherwise idle. Needs neither root nor python.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
device=cuda tables=26 rows=1000000 dims=64,128,256 batch=8192 pooling=10 rounds=9 copy_bytes=1GiB kernels=all models=DLRM,DCN,MLPerf precisions=fp32,tf32,bf16 seconds=12 steps=""
model_dim=128 data="" mlperf_data="" mlperf_rows_by=1 budget=1000000 variants="" under=""
usage() { sed -n '3,/^set -e/{/^set -e/!s/^# \{0,1\}//p;}' "$0"; exit "$1"; }
# The numbers of kernels and the bytes of a step on any GPU, as the stand-in counted them.
print_expected() {
  echo
  awk -F'|' -v batch="$batch" '
    $1 == "step" {
      if (!said++) printf "%-24s %9s %9s %7s %24s\n", "step of batch " batch, "launches", "products", "copies", "GB of products, copies"
      printf "%-24s %9d %9d %7d %24.3f\n", $2, $3, $4, $5, ($6 + batch * $7) * 1e-9
    }' "$here/gpu_expected.txt"
}
case ${1:-} in --expected) print_expected && sed -n 's/^range|\([^|]*\)|\([^|]*\)|\([^|]*\)$/predicted  \1: \2 to \3/p' "$here/gpu_expected.txt" && exit 0 ;; esac
case ${1:-} in '' | -*) usage 64 ;; esac
folder=$(cd "$1" && pwd)
shift
peer=none
case ${1:-} in '' | -*) ;; *) peer=$1 && shift ;; esac
while [ $# -gt 0 ]; do
  case $1 in
    --device | --tables | --rows | --dims | --batch | --pooling | --rounds | --copy_bytes | --kernels | --models | --precisions | --seconds | --steps | --model_dim | --data | \
      --mlperf_data | --mlperf_rows_by | --budget | --variants | --under) ;;
    *) usage 64 ;;
  esac
  [ $# -ge 2 ] || usage 64
  eval "${1#--}=\$2"
  shift 2
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ends=$(($(date +%s) + budget))
left() { echo $((ends - $(date +%s))); }
at_most() { echo $(($(left) < $1 ? ($(left) > 1 ? $(left) : 1) : $1)); } # SECONDS, or the time that is left
late() {                                                                 # NAME SECONDS: succeeds if it is too late to begin
  [ "$(left)" -lt "$2" ] && echo "late  bench: $1, the time is over"
}
if [ -x "$folder/run" ]; then # a bundle
  test_program() { timeout -k 5 "$(at_most 120)" "$folder/run" "$@"; }
  # shellcheck disable=SC2086
  train() { timeout -k 5 "$(at_most 180)" $under "$folder/run" trshard "$@"; }
else
  test_program() {
    program=$1
    shift
    timeout -k 5 "$(at_most 120)" "$folder/regression/bench/$program" "$@"
  }
  # shellcheck disable=SC2086
  train() { timeout -k 5 "$(at_most 180)" $under "$folder/trshard" "$@"; }
fi
if [ -z "$data" ]; then
  data=$work/bench.h5
  test_program bench_make_data -output "$data" -samples $((4 * batch)) -features "$tables" -rows "$rows" > /dev/null
fi
failed=0
: > "$work/goals" # name|figure|reference|least ratio
goal() { printf '%s|%s|%s|%s\n' "$@" >> "$work/goals"; }

# --- kernels ---
kernel_goals() { # DIM DTYPE: ratios of the copy's rate, as bench_embedding prints them
  awk -v dim="$1" -v dtype="$2" '
    / of copy$/ {
      name = substr($0, 1, 24); sub(/ +$/, "", name); line = substr($0, 25); split(line, word, " ")
      if (name == "copy") copy = word[3]
      least = ""
      if (name == "forward" || name == "forward to bf16") least = dim >= 128 ? 0.75 : 0.65
      if (name ~ /^backward/) least = 0.40
      if (name ~ /^update[+]/ || name == "update from bf16") least = 0.50
      if (name == "regroup" && dtype == "fp32") least = 0.95
      if (name ~ /^(en|de)code/ && dtype == "fp32") least = 0.85
      if (least != "") printf "%s, D %d %s, GB/s of copy|%s|%s|%s\n", name, dim, dtype, word[3], copy, least
    }' "$work/kernels" >> "$work/goals"
}
[ "$kernels" = all ] || dims=''
for dim in $(echo "$dims" | tr , ' '); do
  for dtype in fp32 fp16; do
    if late "kernels of dim $dim, $dtype" 20; then continue; fi
    if test_program bench_embedding -device "$device" -dtype $dtype -dim "$dim" -tables "$tables" -rows "$rows" -pooling "$pooling" -batch_size "$batch" -rounds "$rounds" -copy_bytes "$copy_bytes" \
      > "$work/kernels" 2> "$work/error"; then
      cat "$work/kernels"
      kernel_goals "$dim" $dtype
    else
      failed=1
      echo "FAILED: kernels of dim $dim, $dtype: $(cat "$work/kernels" "$work/error")"
    fi
  done
done

# --- training ---
mlps="-dense_arch 512,256,$model_dim -over_arch 1024,1024,512,256,1 -tables_embedding_dim $model_dim -tables_num_embeddings $rows -data_train $data"
described="$tables tables of $rows rows of $model_dim, one id a feature"
mlperf_yaml=$here/../input/dlrm_dcnv2.yaml
mlperf_list() { # KEY, or name: of the model's tables, with commas
  awk -v key="$1" -v by="$mlperf_rows_by" '/^table:/ {tables = 1} tables && /^  [a-z]/ && key == "name" {sub(":", ""); printf "%s%s", n++ ? "," : "", $1}
    tables && $1 == key ":" {printf "%s%d", n++ ? "," : "", (key == "num_embeddings" && by > 1 ? $2 / by + 1 : $2)}' "$mlperf_yaml"
}
make_mlperf_data() {
  mlperf_data=$work/mlperf.h5
  test_program bench_make_data -output "$mlperf_data" -samples $((4 * batch)) -names "$(mlperf_list name)" -rows "$(mlperf_list num_embeddings)" \
    -pooling "$(mlperf_list pooling_factors)" > "$work/made" 2>&1
}
mlperf_rows() { # options for fewer rows
  [ "$mlperf_rows_by" = 1 ] || mlperf_list num_embeddings | tr , '\n' | awk '{printf "-table_cat_%d_num_embeddings %d ", NR - 1, $1}'
}
model_options() { # MODEL
  case $1 in
    DLRM) echo "$mlps" ;;
    DCN) echo "$mlps -interaction dcn -dcn_num_layers 3 -dcn_low_rank_dim 512" ;;
    MLPerf)
      echo "-options_file $mlperf_yaml -tables_data_type fp16 -data_train $mlperf_data $(mlperf_rows)"
      [ "$mlperf_rows_by" -lt 100000 ] || echo "-dense_arch 8,128 -over_arch 8,1 -dcn_low_rank_dim 8" ;;
  esac
}
# Samples/s: the median of the progress lines except the first, which includes the warm-up; for a short run the rate of the whole run.
samples_per_s() {
  awk '/^step / && / samples\/s/ {if (n++ > 0) rate[n - 1] = $(NF - 3)} /^trained on/ {for (i = 1; i < NF; i++) if ($(i + 1) == "samples/s,") all = $i}
    END {
      n--
      for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (rate[j] < rate[i]) {t = rate[i]; rate[i] = rate[j]; rate[j] = t}
      print (n > 0 ? rate[int((n + 1) / 2)] : all)
    }' "$1"
}
peer_samples_per_s() { # MODEL PRECISION
  if [ "$peer" = none ]; then return; fi
  LD_LIBRARY_PATH=${TRSHARD_USERS_LIBRARY_PATH-${LD_LIBRARY_PATH-}} timeout -k 5 "$(at_most 180)" "$peer" "$here/bench_gpu_peer.py" --device "$device" --model "$1" \
    --precision "$2" --tables "$tables" --rows "$rows" --dim "$model_dim" --batch "$batch" 2> "$work/peer" || echo "# peer: $(tail -1 "$work/peer")" >&2
}
# train_model STEPS OPTION...: its output is in $work/train
train_model() {
  n_steps=$1
  shift
  # shellcheck disable=SC2046
  train -device "$device" $(model_options "$model") -batch_size "$batch" -steps "$n_steps" -dense_precision "$precision" -report_interval 1 \
    -data_repeat_batches 4 -log_view -error_traceback "$@" > "$work/train" 2>&1
}
step_ms() { awk '/^device .* in stages of the compute stream/ {for (i = 1; i < NF; i++) if ($i == "took") print $(i + 1)}' "$work/train"; }
# The number of steps in `seconds`, from a short training. If the time of a step is unknown, the training's whole time is used, including the warm-up.
steps_in_time() {
  train_model 100 -trace_first_step 50 || return 1
  { step_ms && awk '/^trained on / {for (i = 1; i < NF; i++) if ($i == "in") print 10 * $(i + 1)}' "$work/train"; } |
    awk -v s="$seconds" 'NR == 1 {n = int(1000 * s / ($1 > 0 ? $1 : 1)); print (n < 100 ? 100 : n < 1000000 ? n : 1000000)}'
}
train_and_judge() {
  if [ "$device" = cuda ] && grep -q 'own kernel for matrix products' "$work/train"; then
    failed=1
    echo "FAILED: $model $precision ran without cuBLASLt: $(grep -o 'own kernel for matrix products.*' "$work/train" | head -1)"
    return
  fi
  echo "# $model, batch $batch, $described, $precision, $n_steps steps"
  grep -E '^(overlap|exposed|device|idle|trained on|stages|memory) ' "$work/train"
  if [ "$model" = MLPerf ]; then
    # HugeCTR's samples/s per GPU on one DGX H100, with 6,912 samples per GPU, including the all-to-all: 209.7 M samples in 14.444 s on 8 GPUs,
    # mlcommons/training_results_v3.0, NVIDIA/results/dgxh100_ngc23.04_merlin_hugectr/dlrm_dcnv2/result_0.txt
    goal "$model $precision, samples/s of 1,815,000" "$(samples_per_s "$work/train")" 1815000 "$([ "$mlperf_rows_by" != 1 ] || [ "$precision" != bf16 ] || echo 1.1)"
  else
    goal "$model $precision, samples/s of PyTorch" "$(samples_per_s "$work/train")" "$(peer_samples_per_s "$model" "$precision")" "$([ "$model" = DCN ] || echo 1.5)"
  fi
  hidden=$(awk '/^overlap +(H2D copy|input_dist):/ {for (i = 1; i < NF; i++) if ($i ~ /%$/) {all += $(i + 2); hidden += $i / 100 * $(i + 2); break}} END {if (all > 0) print hidden / all}' "$work/train")
  goal "$model $precision, share of H2D and input_dist hidden" "$hidden" 1 0.9
  # a step takes at most 1.15 times its kernels' time. Here this time is that of the compute stream's stages, including gaps between their kernels
  device_ms=$(awk '/^device .* in stages of the compute stream/ {print $2}' "$work/train")
  goal "$model $precision, compute stages of a step, ms" "$device_ms" "$(step_ms)" 0.87
}
# A batch that is so small that launches take longer than the work, without and with graphs of the dense layers' launches.
train_with_graphs() {
  whole_batch=$batch
  batch=$(((batch + 7) / 8))
  for graphs in false true; do
    rates="${rates:-} $({ wanted=${steps:-$(steps_in_time)} && train_model "$wanted" -dense_graphs $graphs && samples_per_s "$work/train"; } || echo failed)"
  done
  echo "# $model, batch $batch, $precision, samples/s without and with -dense_graphs:$rates"
  # shellcheck disable=SC2086
  set -- $rates
  case $rates in
    *failed*) failed=1 && tail -3 "$work/train" ;;
    *) goal "$model $precision, batch $batch, samples/s with graphs" "$2" "$1" 1.2 ;;
  esac
  batch=$whole_batch rates=""
}
variant_options() { # WORD
  case $1 in
    plain) ;;
    graphs) echo "-dense_graphs" ;;
    algorithms) echo "-dense_product_algorithms 8" ;;
    both) echo "-dense_graphs -dense_product_algorithms 8" ;;
    nearest) echo "-embedding_stochastic_rounding false" ;;
    all) echo "-dense_graphs -dense_product_algorithms 8 -embedding_stochastic_rounding false" ;;
    kernels) echo "-log_view_kernels -log_view_products" ;;
    *) echo "bench_gpu.sh: no variant $1" >&2 && exit 64 ;;
  esac
}
train_variants() {
  first=''
  for variant in $(echo "$variants" | tr , ' '); do
    name="$model $precision $variant"
    if late "$name" 10; then continue; fi
    options=$(variant_options "$variant") || exit 64
    [ -z "${TRSHARD_RESULTS:-}" ] || [ "$variant" = kernels ] || options="$options -trace $TRSHARD_RESULTS/$model-$precision-$variant.json -trace_first_step 100 -trace_steps 100"
    # shellcheck disable=SC2086
    if wanted=${steps:-$(steps_in_time)} && train_model "$wanted" $options; then
      echo "# $name, batch $batch, $n_steps steps"
      grep -E '^(overlap|exposed|device|idle|trained on|stages|memory|choice|kernels|kernel|product) ' "$work/train"
      rate=$(samples_per_s "$work/train")
      goal "$name, samples/s" "$rate" "${first:-$rate}" ""
      first=${first:-$rate}
    elif ! late "$name" 2; then
      failed=1
      echo "FAILED: $name: $(grep 'trshard: error' "$work/train" || tail -20 "$work/train")"
    fi
    [ -z "${TRSHARD_RESULTS:-}" ] || { echo "=== $name" && cat "$work/train"; } >> "$TRSHARD_RESULTS/training.txt"
  done
}
for model in $(echo "$models" | tr , ' '); do
  if [ "$model" = MLPerf ]; then
    described="204 M rows of 128 in 26 tables as fp16, by $mlperf_rows_by, 214 ids a sample"
    if [ -z "$mlperf_data" ] && ! make_mlperf_data; then
      failed=1
      echo "FAILED: no data for MLPerf: $(tail -1 "$work/made")"
      continue
    fi
  fi
  for precision in $(echo "$precisions" | tr , ' '); do
    if [ "$precision" != fp32 ] && [ "$device" = cpu ]; then continue; fi
    if [ "$variants" ]; then
      train_variants
      continue
    fi
    if late "$model $precision" $((10 + (${#steps} ? 0 : 2 * seconds))); then continue; fi
    if wanted=${steps:-$(steps_in_time)} && train_model "$wanted" ${TRSHARD_RESULTS:+-trace "$TRSHARD_RESULTS/$model-$precision.json" -trace_first_step 100}; then
      train_and_judge
    elif late "$model $precision" 2; then
      continue
    else
      failed=1
      echo "FAILED: $model $precision: $(grep 'trshard: error' "$work/train" || tail -20 "$work/train")"
    fi
    if [ "$precision" = tf32 ] && [ "$model" != MLPerf ] && ! late "$model $precision with graphs" $((10 + (${#steps} ? 0 : 4 * seconds))); then train_with_graphs; fi
    [ -z "${TRSHARD_RESULTS:-}" ] || { echo "=== $model $precision" && cat "$work/train"; } >> "$TRSHARD_RESULTS/training.txt"
  done
done

echo
awk -F'|' '
  BEGIN {printf "%-52s %12s %12s %7s %15s %7s  %s\n", "work", "figure", "reference", "ratio", "predicted", "goal", "verdict"}
  /^#/ {next}
  $1 == "range" {range[$2] = sprintf("%.4g-%.4g", $3, $4); next}
  $1 == "step" {next}
  {
    ratio = $2 != "" && $3 > 0 ? $2 / $3 : ""
    verdict = $4 == "" ? "" : ratio == "" ? "not compared" : ratio >= $4 ? "met" : "NOT MET"
    work = $1
    sub(/, GB.s of copy$/, "", work)
    sub(/, samples.s of .*/, ", samples/s", work) # the prediction is of the figure, not of its reference
    printf "%-52s %12s %12s %7s %15s %7s  %s\n", $1, $2 == "" ? "" : sprintf("%.4g", $2), $3 == "" ? "" : sprintf("%.4g", $3), ratio == "" ? "" : sprintf("%.2f", ratio),
      range[work], $4 == "" ? "" : ">= " $4, verdict
  }' "$here/gpu_expected.txt" "$work/goals"
print_expected
exit $failed
