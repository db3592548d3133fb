/* SPDX-License-Identifier: BSD-3-Clause */
/*
  The words that options, files and code share, each defined once: the optimizers of embedding
  tables and their numbers, the optimizers of dense layers, interactions, losses, tasks, devices,
  codecs for messages, and compute kernels.

  A list is a macro that calls X once for each word. Enums, option choices, states in checkpoints
  and the planner's bytes are made from these lists. Enums and -help have the order of the lists.

  This header includes no other header, and every folder may include it (src/folders.txt).
*/
#pragma once

/*
  The choices of an option: TRS_CHOICES(LIST) is the string "a,b,c". X's second argument is the
  word.
*/
#define TRS_CHOICES(LIST)         (&("" LIST(TRS_COMMA_WORD))[1])
#define TRS_COMMA_WORD(KIND, ...) "," TRS_FIRST_TEXT(__VA_ARGS__, )
#define TRS_FIRST_TEXT(word, ...) #word

/*
  The words of a list as an array are {LIST(TRS_WORD_TEXT)}. Their number is 0 LIST(TRS_COUNT_WORD).
*/
#define TRS_WORD_TEXT(KIND, ...) TRS_FIRST_TEXT(__VA_ARGS__, ),
#define TRS_COUNT_WORD(...)      +1 /* NOLINT(bugprone-macro-parentheses): a term of a sum */

/* --- optimizers of embedding tables --- */

/*
  A state is a tensor that an optimizer keeps for a table. It has one number per row or one per
  element.
*/
typedef enum { TRS_STATE_ABSENT, TRS_STATE_ROW, TRS_STATE_ELEMENT } TrsStateShape;

/*
  X(KIND, word, shape, name, shape, name, planned, columns, decay)

  shape, name  shape and name of the first and of the second state
  planned      the states that the planner counts, as TorchRec's planner does: the real states of
               adam, sgd and rowwise_adagrad, and one number per weight for all others
  columns      COUPLED: the update depends on the whole row, so that a column shard differs from the
               table (src/RULES.md, rule A12); BY_SQUARES: it depends only on the sum of the row's
               squared gradients; APART: each element is independent
  decay        DECAYS, or KEEPS: no weight decay

  If compute/ or gpu/ has no kernels for a word, the set-up of a run rejects the word.
*/
#define TRS_EMBEDDING_OPTIMIZERS(X) \
  X(NONE, none, ABSENT, "", ABSENT, "", NONE, APART, DECAYS) \
  X(SGD, sgd, ABSENT, "", ABSENT, "", NONE, APART, KEEPS) \
  X(ADAGRAD, adagrad, ELEMENT, "momentum1", ABSENT, "", ONE, APART, KEEPS) \
  X(ROWWISE_ADAGRAD, rowwise_adagrad, ROW, "momentum1", ABSENT, "", ROWWISE, BY_SQUARES, DECAYS) \
  X(ADAM, adam, ELEMENT, "exp_avg", ELEMENT, "exp_avg_sq", TWO, APART, DECAYS) \
  X(PARTIAL_ROWWISE_ADAM, partial_rowwise_adam, ELEMENT, "exp_avg", ROW, "exp_avg_sq", ONE, BY_SQUARES, \
    DECAYS) \
  X(LAMB, lamb, ELEMENT, "exp_avg", ELEMENT, "exp_avg_sq", ONE, COUPLED, DECAYS) \
  X(PARTIAL_ROWWISE_LAMB, partial_rowwise_lamb, ELEMENT, "exp_avg", ROW, "exp_avg_sq", ONE, COUPLED, DECAYS) \
  X(LARS_SGD, lars_sgd, ELEMENT, "momentum1", ABSENT, "", ONE, COUPLED, DECAYS) \
  X(LION, lion, ELEMENT, "exp_avg", ABSENT, "", ONE, APART, DECAYS) \
  X(FTRL, ftrl, ELEMENT, "z", ELEMENT, "n", TWO, APART, KEEPS) \
  X(SHAMPOO, shampoo, ABSENT, "", ABSENT, "", ONE, APART, DECAYS) /* known, but always rejected */

#define TRS_OPTIMIZER_KIND(KIND, ...) TRS_OPTIM_##KIND,
typedef enum { TRS_EMBEDDING_OPTIMIZERS(TRS_OPTIMIZER_KIND) } TrsSparseOptimizerKind;

enum {
  TRS_N_OPTIMS = 0 TRS_EMBEDDING_OPTIMIZERS(TRS_COUNT_WORD),
  TRS_OPTIMIZER_STATES = 2 /* largest number of states */
};

/*
  The parameters of the optimizers, X(word, default, range, help). Each parameter is a field of
  TrsSparseOptimizerArgs, and an option -embedding_<word>, -tables_<word> or -table_<name>_<word>.
*/
#define TRS_OPTIMIZER_NUMBERS(X) \
  X(learning_rate, "0.01", "[0,]", "learning rate of the embedding tables") \
  X(eps, "1e-8", "[0,]", "number that the adagrads, adams and lambs add to the root") \
  X(beta1, "0.9", "[0,1)", "decay of the mean of the gradient: adams, lambs, lion") \
  X(beta2, "0.999", "[0,1)", \
    "decay of the mean of the squared gradient: adams, lambs; lion: decay of the mean of the gradient") \
  X(weight_decay, "0", "[0,]", \
    "weight decay; not for sgd, adagrad and ftrl; rowwise_adagrad needs a mode for it") \
  X(eta, "0.001", "[0,]", "lars_sgd: trust coefficient") \
  X(momentum, "0.9", "[0,1)", "lars_sgd: momentum") \
  X(beta, "1", "[0,]", \
    "ftrl: the rate of a weight is learning_rate / (beta + sqrt(n)), n the sum of its squared gradients") \
  X(l1, "0", "[0,]", "ftrl: L1 penalty; a weight is 0 while the penalty outweighs the gradients so far") \
  X(l2, "0", "[0,]", "ftrl: L2 penalty")

/* --- optimizers of the dense layers --- */

/*
  X(KIND, word, name, name, eps, decay)

  name   name of the first and of the second state, which have one number per weight; "" means no
         state
  eps    default of -dense_eps
  decay  default of -dense_weight_decay

  The defaults come from torch.optim, LAMB's defaults from its authors' code.
*/
#define TRS_DENSE_OPTIMIZERS(X) \
  X(SGD, sgd, "", "", 1e-10, 0.0) \
  X(ADAGRAD, adagrad, "sum", "", 1e-10, 0.0) \
  X(ADAM, adam, "exp_avg", "exp_avg_sq", 1e-8, 0.0) \
  X(ADAMW, adamw, "exp_avg", "exp_avg_sq", 1e-8, 0.01) \
  X(LAMB, lamb, "exp_avg", "exp_avg_sq", 1e-6, 0.0)

#define TRS_DENSE_KIND(KIND, ...) TRS_DENSE_##KIND,
typedef enum { TRS_DENSE_OPTIMIZERS(TRS_DENSE_KIND) } TrsDenseOptimizerKind;

/*
  --- policies of learning-rate schedules: a stage's factor at step s, counted from 0 at the start
  of the run ---

  linear           from value to 1 over end_step steps
  constant         value
  poly             (1 - s / decay_steps) ^ value, 0 after decay_steps
  step             value ^ floor(s / decay_steps)
  inv_sqrt         1 / sqrt(s), 1 at s = 0
  cosine           from 1 to value over decay_steps, half a cosine wave
  cosine_restarts  consecutive half waves from 1 to value: the first takes decay_steps steps, each
                   later wave cycle_factor times as many as the wave before
*/
#define TRS_SCHEDULES(X) \
  X(NONE, none) \
  X(LINEAR, linear) \
  X(CONSTANT, constant) \
  X(POLY, poly) \
  X(STEP, step) \
  X(INV_SQRT, inv_sqrt) \
  X(COSINE, cosine) \
  X(COSINE_RESTARTS, cosine_restarts)

#define TRS_SCHEDULE_KIND(KIND, ...) TRS_SCHEDULE_##KIND,
typedef enum { TRS_SCHEDULES(TRS_SCHEDULE_KIND) } TrsSchedulePolicy;

/* --- interactions of the dense vector with the embeddings --- */

#define TRS_INTERACTIONS(X) \
  X(DOT, dot) \
  X(DCN, dcn) \
  X(DCN_FULL, dcn_full) \
  X(DCN_VECTOR, dcn_vector) \
  X(DCN_MIXTURE, dcn_mixture) \
  X(CAT, cat) \
  X(NONE, none) \
  X(FM, fm) \
  X(DEEPFM, deepfm) \
  X(PROJECTION, projection) \
  X(TWO_TOWER, two_tower)

#define TRS_INTERACTION_KIND(KIND, ...) TRS_INTERACTION_##KIND,
typedef enum { TRS_INTERACTIONS(TRS_INTERACTION_KIND) } TrsInteractionKind;

/*
  The parameters of the interactions, X(word, type, default, range, help). Each parameter has an
  option -<word>. The word begins with the name of its interaction in TRS_INTERACTIONS.
*/
#define TRS_INTERACTION_NUMBERS(X) \
  X(dcn_num_layers, INT, "3", "[1,1000]", "cross layers of dcn, dcn_full, dcn_vector and dcn_mixture") \
  X(dcn_low_rank_dim, INT, "512", "[1,1000000]", \
    "rank of the cross layers of dcn, and of dcn_mixture's experts") \
  X(dcn_num_experts, INT, "4", "[1,1000]", "experts of each cross layer of dcn_mixture") \
  X(deepfm_arch, INTS, "64", "[1,1000000]", "output sizes of deepfm's deep layers, each ending in ReLU") \
  X(projection_arch1, INTS, "256", "[1,1000000]", \
    "output sizes of projection's first branch, each ending in ReLU; the last is a multiple of the " \
    "embeddings' dim") \
  X(projection_arch2, INTS, "256", "[1,1000000]", \
    "output sizes of projection's second branch, each ending in ReLU; the last is a multiple of the " \
    "embeddings' dim")

/* --- activations of perceptrons: trs_layer_<word> of model/layer.h --- */

#define TRS_MLP_ACTIVATIONS(X) \
  X(RELU, relu) \
  X(SIGMOID, sigmoid) \
  X(TANH, tanh) \
  X(SWISH_LAYERNORM, swish_layernorm)

#define TRS_MLP_ACTIVATION_KIND(KIND, ...) TRS_MLP_##KIND,
typedef enum { TRS_MLP_ACTIVATIONS(TRS_MLP_ACTIVATION_KIND) } TrsMlpActivation;

/* --- poolings of a sequence table's bags --- */

/*
  X(KIND, word) for the poolings that are layers of the model. Such a layer computes a vector from a
  bag's rows, with parameters. Each word has a table of functions, trs_sequence_<word>, in
  model/sequence_<word>.c.
*/
#define TRS_SEQUENCE_LAYERS(X) X(GRU, gru) X(DIN, din) X(TRANSFORMER, transformer)

/* X(KIND, word) for all poolings of a sequence table. */
#define TRS_SEQUENCE_POOLINGS(X) X(MEAN, mean) X(MAX, max) X(CONCAT, concat) TRS_SEQUENCE_LAYERS(X)

#define TRS_SEQUENCE_POOLING_KIND(KIND, ...) TRS_SEQUENCE_POOLING_##KIND,
typedef enum { TRS_SEQUENCE_POOLINGS(TRS_SEQUENCE_POOLING_KIND) } TrsSequencePoolingKind;
enum { TRS_N_SEQUENCE_LAYERS = 0 TRS_SEQUENCE_LAYERS(TRS_COUNT_WORD) };

/*
  X(key, type, default, range, choices, unit, KIND, help) for the keys of a table that only one of
  these poolings uses.
*/
#define TRS_SEQUENCE_KEYS(X) \
  X(sequence_length, INT, NULL, "[1,65536]", NULL, "rows", CONCAT, \
    "sequence_pooling concat: rows of a sample; must be given") \
  X(gru_hidden_size, INT, NULL, "[1,65536]", NULL, "columns", GRU, \
    "sequence_pooling gru: width of the state, which is the embedding that the model uses (default: " \
    "embedding_dim)") \
  X(din_target, STRING, NULL, NULL, NULL, NULL, DIN, \
    "sequence_pooling din: the feature, or the table of one feature, whose pooled embedding is " \
    "compared with the rows; must be given. If the feature is of the same table, its embedding is its " \
    "row, or the mean of its rows") \
  X(din_arch, INTS, "80,40", "[1,65536]", NULL, NULL, DIN, \
    "sequence_pooling din: sizes of the layers between the comparison and a row's weight") \
  X(din_activation, ENUM, "sigmoid", NULL, TRS_CHOICES(TRS_MLP_ACTIVATIONS), NULL, DIN, \
    "sequence_pooling din: function after each of these layers") \
  X(din_softmax, BOOL, "false", NULL, NULL, NULL, DIN, \
    "sequence_pooling din: weights of a sample's rows are positive and add up to 1") \
  X(transformer_layers, INT, "1", "[1,100]", NULL, NULL, TRANSFORMER, \
    "sequence_pooling transformer: number of encoder layers") \
  X(transformer_heads, INT, "2", "[1,1024]", NULL, NULL, TRANSFORMER, \
    "sequence_pooling transformer: heads of the attention; they divide embedding_dim") \
  X(transformer_dim_feedforward, INT, NULL, "[1,1000000]", NULL, "columns", TRANSFORMER, \
    "sequence_pooling transformer: width between the two linear layers (default: 4 embedding_dim)") \
  X(transformer_causal, BOOL, "false", NULL, NULL, NULL, TRANSFORMER, \
    "sequence_pooling transformer: a row attends only to itself and to the rows before it")

/* --- losses of learning tasks, and the tasks' layers above the interaction --- */

/*
  X(KIND, word, labels). A label is a PROBABILITY in [0, 1], any finite NUMBER, or a CLASS 0, 1, 2
  and so on. Each word has a kernel with the same name (TRS_KERNELS).
*/
#define TRS_LOSSES(X) \
  X(BCE, bce, PROBABILITY) \
  X(MSE, mse, NUMBER) \
  X(HUBER, huber, NUMBER) \
  X(SOFTMAX, softmax, CLASS)

#define TRS_LOSS_KIND(KIND, ...) TRS_LOSS_##KIND,
typedef enum { TRS_LOSSES(TRS_LOSS_KIND) } TrsLossKind;
typedef enum { TRS_LABEL_PROBABILITY, TRS_LABEL_NUMBER, TRS_LABEL_CLASS } TrsLabelKind;

/*
  The way in which an id becomes a row: unchanged, by its remainder, or by the remainder of its
  64-bit hash. QUOTIENT and REMAINDER are for the two parts of id_map qr (spec/table_options.c): the
  remainder is divided by `collisions`, and the row is the quotient or the remainder of this
  division. With ZCH and DYNAMIC an id stays unchanged until it arrives at the owner of its bucket,
  which gives it a row (embed/placement.h).
*/
typedef enum {
  TRS_ID_MAP_NONE,
  TRS_ID_MAP_MODULO,
  TRS_ID_MAP_HASH,
  TRS_ID_MAP_QUOTIENT,
  TRS_ID_MAP_ZCH,
  TRS_ID_MAP_DYNAMIC,
  TRS_ID_MAP_REMAINDER
} TrsIdMapKind;

/* The words for id_map in the order of TrsIdMapKind. qr stands for both of its parts. */
#define TRS_ID_MAP_WORDS "none,modulo,hash,qr,zch,dynamic"

/*
  X(KIND, word) for the policies that decide which ids keep a row of a zch table. Below: for the
  filters that decide which ids of an interval compete for rows.
*/
#define TRS_ZCH_POLICIES(X) \
  X(LFU, lfu) \
  X(LRU, lru) \
  X(DISTANCE_LFU, distance_lfu)
#define TRS_ZCH_FILTERS(X) \
  X(NONE, none) \
  X(AVERAGE, average) \
  X(DYNAMIC, dynamic)
#define TRS_ZCH_POLICY_KIND(KIND, word) TRS_ZCH_##KIND,
#define TRS_ZCH_FILTER_KIND(KIND, word) TRS_ZCH_FILTER_##KIND,
typedef enum { TRS_ZCH_POLICIES(TRS_ZCH_POLICY_KIND) } TrsZchPolicy;
typedef enum { TRS_ZCH_FILTERS(TRS_ZCH_FILTER_KIND) } TrsZchFilter;

/*
  X(KIND, word) for the policies that decide which ids lose their row when a dynamic table is full.
*/
#define TRS_DYNAMIC_POLICIES(X) \
  X(LRU, lru) \
  X(LFU, lfu) \
  X(TTL, ttl)
#define TRS_DYNAMIC_POLICY_KIND(KIND, word) TRS_DYNAMIC_##KIND,
typedef enum { TRS_DYNAMIC_POLICIES(TRS_DYNAMIC_POLICY_KIND) } TrsDynamicPolicy;

/*
  X(KIND, word) for the row that ids without a row of their own use: it learns, it keeps its initial
  values, or it is zero.
*/
#define TRS_UNKNOWN_ROWS(X) \
  X(SHARED, shared) \
  X(INITIAL, initial) \
  X(ZERO, zero)
#define TRS_UNKNOWN_ROW_KIND(KIND, word) TRS_UNKNOWN_##KIND,
typedef enum { TRS_UNKNOWN_ROWS(TRS_UNKNOWN_ROW_KIND) } TrsUnknownRow;

/*
  X(KIND, word) for the loss of two towers: for each pair separately, or for a query among
  candidates.
*/
#define TRS_PAIR_LOSSES(X) \
  X(BCE, bce) \
  X(IN_BATCH_SOFTMAX, in_batch_softmax) \
  X(SAMPLED_SOFTMAX, sampled_softmax)

#define TRS_PAIR_LOSS_KIND(KIND, ...) TRS_PAIR_LOSS_##KIND,
typedef enum { TRS_PAIR_LOSSES(TRS_PAIR_LOSS_KIND) } TrsPairLossKind;

#define TRS_HEADS(X) \
  X(SHARED, shared) \
  X(MMOE, mmoe) \
  X(PLE, ple)

#define TRS_HEADS_KIND(KIND, ...) TRS_HEADS_##KIND,
typedef enum { TRS_HEADS(TRS_HEADS_KIND) } TrsHeadsKind;

/* --- tasks: X(KIND, word, Name), run by TrsRun<Name>() --- */

#define TRS_TASKS(X) \
  X(TRAIN, train, Train) \
  X(PLAN, plan, Plan) \
  X(EVAL, eval, Eval) \
  X(PREDICT, predict, Predict) \
  X(BENCH, bench, Bench)

#define TRS_TASK_KIND(KIND, ...) TRS_TASK_##KIND,
typedef enum { TRS_TASKS(TRS_TASK_KIND) } TrsTask;

/* --- devices; the option -device also accepts auto --- */

#define TRS_DEVICES(X) \
  X(CPU, cpu) \
  X(CUDA, cuda)
#define TRS_DEVICE_CHOICES(X) X(AUTO, auto) TRS_DEVICES(X)

#define TRS_DEVICE_CHOICE(KIND, ...) TRS_DEVICE_##KIND,
typedef enum { TRS_DEVICE_CHOICES(TRS_DEVICE_CHOICE) } TrsDeviceChoice;

/* --- exchanges between replicas of tables --- */

#define TRS_REPLICA_SYNCS(X) \
  X(AVERAGE, average) \
  X(GRADIENTS, gradients)

#define TRS_REPLICA_SYNC_KIND(KIND, ...) TRS_REPLICA_SYNC_##KIND,
typedef enum { TRS_REPLICA_SYNCS(TRS_REPLICA_SYNC_KIND) } TrsReplicaSyncKind;

/* --- codecs: X(KIND, word, bytes per value, bytes per value in exchanges that compute sums) --- */

#define TRS_CODECS(X) \
  X(FP32, fp32, 4, 4) \
  X(FP16, fp16, 2, 2) \
  X(BF16, bf16, 2, 2) \
  X(FP8, fp8, 1, 2) \
  X(INT8, int8, 1, 1)

#define TRS_CODEC_KIND(KIND, ...) TRS_CODEC_##KIND,
typedef enum { TRS_CODECS(TRS_CODEC_KIND) } TrsCodecKind;

/* --- compute kernels of tables --- */

/* The memory in which the rows are stored. */
typedef enum { TRS_ROWS_DEVICE, TRS_ROWS_HOST } TrsRowsHome;

/*
  The lines in device memory that cache rows: no lines; lines that a run keeps; or lines that only
  the planner counts, as TorchRec's planner does, while a run reads rows directly.
*/
typedef enum { TRS_LINES_NONE, TRS_LINES_KEPT, TRS_LINES_PLANNED } TrsRowLines;

/*
  The use of a kernel: for replicas on all ranks, for shards that are trained, or for quantised
  shards.
*/
typedef enum { TRS_USE_REPLICAS, TRS_USE_TRAINED, TRS_USE_QUANTISED } TrsKernelUse;

/*
  X(KIND, word, home, lines, use). In a bit set of kernels, kernel <KIND> has bit TRS_KERNEL_<KIND>.
*/
#define TRS_COMPUTE_KERNELS(X) \
  X(DENSE, dense, DEVICE, NONE, REPLICAS) \
  X(FUSED, fused, DEVICE, NONE, TRAINED) \
  X(FUSED_UVM, fused_uvm, HOST, NONE, TRAINED) \
  X(FUSED_UVM_CACHING, fused_uvm_caching, HOST, KEPT, TRAINED) \
  X(QUANT, quant, DEVICE, NONE, QUANTISED) \
  X(QUANT_UVM, quant_uvm, HOST, NONE, QUANTISED) \
  X(QUANT_UVM_CACHING, quant_uvm_caching, HOST, PLANNED, QUANTISED)

#define TRS_COMPUTE_KERNEL_KIND(KIND, ...) TRS_KERNEL_##KIND,
typedef enum { TRS_COMPUTE_KERNELS(TRS_COMPUTE_KERNEL_KIND) } TrsComputeKernel;
enum { TRS_N_KERNELS = 0 TRS_COMPUTE_KERNELS(TRS_COUNT_WORD) };

/* --- words of tables --- */

#define TRS_DATA_TYPES(X) \
  X(FP32, fp32) \
  X(FP16, fp16) \
  X(BF16, bf16) \
  X(INT8, int8) \
  X(INT4, int4) \
  X(INT2, int2)
#define TRS_BOUNDS_CHECK_MODES(X) \
  X(FATAL, fatal) \
  X(WARNING, warning) \
  X(IGNORE, ignore) \
  X(NONE, none)
#define TRS_CACHE_ALGORITHMS(X) \
  X(LRU, lru) \
  X(LFU, lfu)
#define TRS_NO_WORDS(X)

/*
  The choices of a table that a plan may contain, X(KIND, word, form, words). The form is WORD, FLAG
  (true or false) or BYTES (a number).
*/
#define TRS_TABLE_CHOICES(X) \
  X(CACHE_ALGORITHM, cache_algorithm, WORD, TRS_CACHE_ALGORITHMS) \
  X(CACHE_RESERVED_MEMORY, cache_reserved_memory, BYTES, TRS_NO_WORDS) \
  X(CACHE_PRECISION, cache_precision, WORD, TRS_DATA_TYPES) \
  X(ENFORCE_HBM, enforce_hbm, FLAG, TRS_NO_WORDS) \
  X(STOCHASTIC_ROUNDING, stochastic_rounding, FLAG, TRS_NO_WORDS) \
  X(BOUNDS_CHECK_MODE, bounds_check_mode, WORD, TRS_BOUNDS_CHECK_MODES) \
  X(OUTPUT_DTYPE, output_dtype, WORD, TRS_DATA_TYPES)

#define TRS_TABLE_CHOICE_KIND(KIND, ...) TRS_CHOICE_##KIND,
typedef enum { TRS_TABLE_CHOICES(TRS_TABLE_CHOICE_KIND) } TrsTableChoiceKind;
enum { TRS_N_TABLE_CHOICES = 0 TRS_TABLE_CHOICES(TRS_COUNT_WORD) };
