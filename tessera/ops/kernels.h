// The operations of the models on views. Each device has one Kernels object. All calls run in order on the device's
// compute stream.
//
// Letters: B sequences, N tokens (all sequences of a micro-batch concatenated, no padding), C channels, I input and O
// output channels of a linear layer, H heads of queries, K heads of keys and values, D head dimension, W channels of a
// row of qkv, F inner channels of a gated layer, V vocabulary, M selected rows, P elements of a flat array.
//
// Floating-point views of one call share one type T, unless stated otherwise: f32, bf16, f16, or f64 for gradient
// checks. With a 16-bit T, statistics (stats, rstd, log_sum_exp) are f32, and gradients of parameters (d_weight,
// d_bias) are f32 or T. A call overwrites results and adds to gradients of parameters. Results must not overlap inputs,
// unless a comment says "may be". Where a comment says "or empty", the View may be empty: the input is then absent, or
// the caller does not need the result. All kernels are deterministic: the same inputs on the same device give the same
// bits, for any number of threads.
//
// A call with more than three views takes one struct of arguments, and its caller names each member: {.x = x, .y = y}.
// The members have the order of all calls: inputs first, results last. A member with a default may be left out. The
// compiler rejects a list without names, and GCC warns if a list leaves out a member without a default.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "tessera/device/device.h"
#include "tessera/ops/float8_matrix.h"
#include "tessera/ops/flops.h"

namespace tessera {

// Limits of a call, the same on every device. A caller checks its sizes against them.
inline constexpr int64_t kMaxBatchTokens = int64_t{1} << 22, kMaxBatchSequences = 65535;
// The maximum number of tokens of a call if `group` query heads share a head of keys and values. The backward pass of
// attention on a GPU needs scratch for each token and each query head of a group, and the scratch has a fixed size.
inline int64_t max_batch_tokens(int64_t group) {
  return std::min(kMaxBatchTokens, kMaxBatchTokens * 3 / 2 / group);
}
inline constexpr int64_t kMaxHeadDim = 512;           // channels of an attention head
inline constexpr int64_t kMaxNormChannels = 16384;    // channels of a norm, if their number is a multiple of 8
inline constexpr int64_t kMaxAnyNormChannels = 4096;  // channels of a norm, if their number is not a multiple of 8

// Linear layers support all activations except silu. Gated layers support silu and gelu_tanh.
enum class Activation { none, gelu_tanh, relu, silu };

// The first member of each struct of arguments. Neither a View nor {} initializes it, so the compiler rejects a list of
// arguments without names. Nobody would notice two swapped views in such a list.
class ByName {
 public:
  explicit ByName() = default;
};

// Inverted dropout: kept elements are divided by (1 − rate). The mask of element (row, column) depends only on (seed,
// site, row_ids[row], column), and not on the row's place in a batch. Therefore the mask is the same after recomputing
// or re-sharding.
struct Dropout {
  float rate = 0;     // 0: no dropout, and the other members are ignored
  uint64_t seed = 0;  // of the run; masks differ between updates because the row ids differ
  uint32_t site = 0;  // a different number for each dropout of the model
  View row_ids;       // [N] i64
};

// How to draw a token from the softmax of a row of logits. First, the logits are divided by the temperature. Second,
// the top_k tokens with the greatest logits are kept, and their probabilities are scaled to the sum 1. Third, of these
// tokens, the most likely ones are kept, until their probabilities sum to at least top_p. If a token is as
// likely as the least likely token that the second or third step keeps, that step keeps it too.
struct Sampling {
  double temperature = 1;  // greater than 0
  int64_t top_k = 0;       // 0: all tokens
  double top_p = 1;        // in [0, 1]; 1: all tokens, 0: only the most likely ones
};

struct LinearEpilogue {
  Activation activation = Activation::none;
  Dropout dropout = {};
  View residual = {};  // [N, O] or empty; may be the same view as the result
};

// The places of a head's queries, keys and values in a row of qkv [N, W]. Query head h uses the keys and values of head
// h / (H / K), for K heads of keys and values.
enum class QkvLayout {
  interleaved,  // query, key and value of a head at head · 3D + {0, D, 2D}; needs K = H (BLOOM)
  blocked,      // all queries, then all keys, then all values; a head is at head · D in each of these three parts
};

struct AttentionShape {
  int64_t num_heads = 0, head_dim = 0;
  QkvLayout layout = QkvLayout::interleaved;
  View alibi_slopes;         // [H] f32 on the device, or empty for no position bias
  int64_t num_kv_heads = 0;  // K, divides H; 0: as many as num_heads
  int64_t window = 0;        // a query sees at most this many keys, its own included; 0: all keys up to its own

  int64_t kv_heads() const { return num_kv_heads > 0 ? num_kv_heads : num_heads; }
  int64_t channels() const { return num_heads * head_dim; }                // H·D: of the queries, and of the result
  int64_t kv_channels() const { return kv_heads() * head_dim; }            // K·D: of the keys, and of the values
  int64_t row_channels() const { return channels() + 2 * kv_channels(); }  // W: of a row of qkv
};

// The number of f32 elements of the workspace that attention_backward() needs for activations of type `dtype`.
// attention_backward() may overwrite the workspace. On Hopper, it sums the queries' gradients there.
inline int64_t attention_workspace_elems(DType dtype, const AttentionShape& shape, int64_t num_tokens) {
  if (size_of(dtype) != 2 || shape.head_dim > 128) return 0;
  return num_tokens * shape.num_heads * (shape.head_dim <= 64 ? 64 : 128);
}

// The norms that Qwen3 has on each head of the queries and of the keys before their rotation: rms_norm over D. Empty
// weights: no norms.
struct HeadNorms {
  View query_weight, key_weight;  // [D]; both are set, or both are empty
  double epsilon = 0;
};

// Which results an AdamW step writes. Writing parameters first and moments later, from the same gradients, gives the
// same bits as writing all at once. Kernels that cannot write parameters and moments separately accept only `all`.
enum class AdamWWrites { all, parameters, moments };

// The place of a factor in the matrix of join_factors(): a block of r columns that starts at (row, column).
struct FactorPlace {
  View factor;  // [O_i, r_i]
  double scale = 1;
  int64_t row = 0, column = 0;
};
inline constexpr size_t kMaxFactors = 4;  // of a call

struct BiasGradient {
  View d_y;     // [N, O]; all entries of a call have the same N
  View d_bias;  // [O] +=
};

struct AdamWStep {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double bias_correction1 = 1, bias_correction2 = 1;  // 1 − βᵗ
  double gradient_scale = 1;                          // multiplies the gradient when it is read (clipping, loss scale)
  int64_t num_decayed = 0;                            // weight decay applies to elements [0, num_decayed) only
  AdamWWrites writes = AdamWWrites::all;
  // The random bits that round bf16 states depend on these three values (stochastic_rounding.h).
  uint64_t seed = 0;
  int64_t number = 1;      // of the update; the first update has number 1
  int64_t first_elem = 0;  // index of the arrays' first element among the trainable elements of the model
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // ---- complete arrays ----------------------------------------------------------------------------------------------
  virtual void fill(View x, double value) = 0;
  // Converts each element of `from` to the type of `to`. The shapes are equal. Both types are floating-point types.
  // `to` may also have a rest type (base/dtype.h). A rest is the part of an f32 value that is lost when the value is
  // rounded to f16 or bf16. If both types are equal, the call copies. fill(), fill_normal() and fill_uniform() accept
  // the same types for x as this function accepts for `to`.
  virtual void convert(View from, View to) = 0;
  // Restores f32 values x from their f16 or bf16 values `narrow` and their rests. The shapes are equal.
  virtual void join(View narrow, View rest, View x) = 0;
  // The weights of NF4 groups (nf4.h), rounded once to the type of `values`.
  virtual void dequantize(View groups /*[⌈n / 16384⌉] nf4*/, View values /*n elements*/) = 0;
  // Element i of x gets number first_elem + i of the random sequence (seed, stream). A shard therefore gets the same
  // values as in the full array. `stream` is a number here, and not a stream of the device.
  virtual void fill_normal(View x, double mean, double std, uint64_t seed, uint64_t stream, int64_t first_elem) = 0;
  virtual void fill_uniform(View x, double low, double high, uint64_t seed, uint64_t stream, int64_t first_elem) = 0;
  virtual void add(View x, View sum) = 0;  // sum += x: equal shapes; equal types, or x of 16 bits and sum f32
  // sums[i] += Σ x² of arrays[i], for each array, in f64 and in a fixed order. Separate calls, one per array, give the
  // same bits.
  virtual void add_sums_of_squares(std::span<const View> arrays, View sums /*[arrays] f64*/) = 0;
  void add_sum_of_squares(View x, View sum /*[1] f64*/) { add_sums_of_squares({&x, 1}, sum); }

  // ---- rows by index; an embedding is gather_rows(weight, ids, y) ---------------------------------------------------
  virtual void embedding_backward(View ids /*[N] i32*/, View d_y /*[N, C]*/, View d_weight /*[V, C] +=*/) = 0;
  virtual void gather_rows(View x /*[N, C]*/, View rows /*[M] i32*/, View y /*[M, C]*/) = 0;
  // Sets y[rows[i]] = x[i] and all other rows of y to zero. Rows are distinct.
  virtual void scatter_rows(View x /*[M, C]*/, View rows /*[M] i32*/, View y /*[N, C]*/) = 0;

  // ---- norms over C
  // layer_norm: y = (x − mean) · rstd · weight + bias, rstd = 1 / √(variance + epsilon)
  // (torch.nn.functional.layer_norm)
  // rms_norm: y = x · rstd · weight, rstd = 1 / √(mean(x²) + epsilon) (torch.nn.functional.rms_norm)

  struct NormForward {
    ByName by_name{};
    View x;          // [N, C]
    View weight;     // [C]
    View bias = {};  // [C]; layer_norm only
    double epsilon;
    View y;                // [N, C]; may be x; empty with y8
    Float8Matrix y8 = {};  // y [N, C] in 8 bits, like `rows` of Quantize, without squares
    View stats = {};       // layer_norm: [N, 2]: mean, rstd; rms_norm: [N, 1]: rstd; or empty
  };
  virtual void layer_norm_forward(const NormForward& call) = 0;
  virtual void rms_norm_forward(const NormForward& call) = 0;

  // d_x = residual + gradient through the norm. y gets the output of the forward call again, with the same bits.
  struct NormBackward {
    ByName by_name{};
    View d_y, x;         // [N, C]
    View weight;         // [C]
    View bias = {};      // [C]; layer_norm only, and only if y is not empty
    View stats;          // as in NormForward
    View residual = {};  // [N, C] or empty; may be d_x
    View d_x;            // [N, C]; may be d_y
    View d_weight;       // [C] +=
    View d_bias = {};    // [C] +=; layer_norm only
    View y = {};         // [N, C] or empty
  };
  virtual void layer_norm_backward(const NormBackward& call) = 0;
  virtual void rms_norm_backward(const NormBackward& call) = 0;

  // ---- rotary positions (Su et al. 2021): queries and keys of head dimension D, as pairs (x_j, x_{j + D/2}), j < D/2

  // The angle of row i and pair j is positions[i] · frequencies[j]. Column j of rotations is scale · cos(angle), and
  // column j + D/2 is scale · sin(angle). Rotations have the type of statistics: f32, or f64 for gradient checks.
  virtual void rotary_angles(View positions /*[N] i32*/, View frequencies /*[D/2] f32*/, double scale,
                             View rotations /*[N, D]*/) = 0;
  // Copies qkv to y. In y, each pair (x_j, x_{j+D/2}) of a query or key is rotated: it becomes (x_j·cos −
  // x_{j+D/2}·sin, x_{j+D/2}·cos + x_j·sin). The norms, if any, are applied before the rotation. The layout must be
  // blocked.
  struct RotateHeads {
    ByName by_name{};
    View qkv;        // [N, W]
    View rotations;  // [N, D]
    AttentionShape shape;
    HeadNorms norms = {};
    View y;  // [N, W]; may be qkv without norms
  };
  virtual void rotate_heads(const RotateHeads& call) = 0;
  // The gradient through rotate_heads.
  struct RotateHeadsBackward {
    ByName by_name{};
    View d_y;        // [N, W]
    View qkv = {};   // [N, W], the input of rotate_heads; empty without norms
    View rotations;  // [N, D]
    AttentionShape shape;
    HeadNorms norms = {};
    View d_qkv;                                   // [N, W]; may be d_y
    View d_query_weight = {}, d_key_weight = {};  // [D] +=; empty without norms
  };
  virtual void rotate_heads_backward(const RotateHeadsBackward& call) = 0;

  // ---- gated feed-forward layers: h = activation(gate) ∘ up; columns [0, F) of gate_up are gate, [F, 2F) are up

  virtual void gated_forward(View gate_up /*[N, 2F]*/, Activation activation, View h /*[N, F]*/) = 0;
  // h gets the output of gated_forward again, with the same bits.
  struct GatedBackward {
    ByName by_name{};
    View d_h;      // [N, F]
    View gate_up;  // [N, 2F]
    Activation activation;
    View d_gate_up;  // [N, 2F]; may be gate_up
    View h = {};     // [N, F], may be d_h; or empty
  };
  virtual void gated_backward(const GatedBackward& call) = 0;

  // The same with 8-bit matrices, like `rows` and `columns` of Quantize for arrays of the type of gate_up and d_h. Only
  // h_columns may have squares. With a matrix that has 2F channels, F must be a multiple of kFloat8Block.
  struct GatedForward8 {
    ByName by_name{};
    View gate_up;  // [N, 2F]
    Activation activation;
    Float8Matrix h;             // rows [N, F]
    Float8Matrix rounded = {};  // rows [N, 2F]: gate_up; or empty
  };
  virtual void gated_forward8(const GatedForward8& call) = 0;
  struct GatedBackward8 {
    ByName by_name{};
    View d_h;              // [N, F]
    Float8Matrix gate_up;  // rows [N, 2F]
    Activation activation;
    Float8Matrix d_gate_up_rows = {}, d_gate_up_columns = {};  // [N, 2F], [2F, float8_terms(N)]; or empty
    Float8Matrix h_columns = {};                               // [F, float8_terms(N)]; or empty
  };
  virtual void gated_backward8(const GatedBackward8& call) = 0;

  // ---- linear: pre = x · weightᵀ + bias + added; y = residual + dropout(activation(pre))
  // The factors of a product have the type of the other views, or both are 8-bit matrices. An 8-bit matrix sums over
  // its columns, so that the two backward products need transposed matrices. On a GPU, a left factor has a multiple of
  // 4 rows and no squares, and a right factor has squares.

  // Rounds x to 8 bits, for products that sum over its columns (`rows`) and over its rows (`columns`). Either may be
  // empty. The scales of `rows` are quotients, those of `columns` powers of two (base/float8.h) unless kind_of_columns
  // says otherwise. With a norm, the call rounds the output that the norm had for x, with the same bits.
  struct AppliedNorm {
    ByName by_name{};
    View weight = {};  // [K]; empty: no norm
    View bias = {};    // [K]; layer_norm only
    View stats = {};   // as in NormForward
    double epsilon = 0;
  };
  struct Quantize {
    ByName by_name{};
    View x;  // [R, K]
    AppliedNorm norm = {};
    Float8Matrix rows = {};     // [R, K]
    Float8Matrix columns = {};  // [K, float8_terms(R)]: x transposed, and zeros
    // Of the squares of `columns`.
    Float8ScaleKind kind_of_columns = Float8ScaleKind::power_of_two;
  };
  virtual void quantize(const Quantize& call) = 0;
  // A part of an array with matrices that have at most kMaxFloat8Places places. Offsets, numbers of columns, `first`
  // and the number of values are multiples of 16. The places must stay valid until the stream has done the call.
  struct Float8Shard {
    ByName by_name{};
    View values;  // [n] bf16: elements [first, first + n) of the array
    int64_t first = 0;
    std::span<const Float8Place> places;
  };
  // The two calls round the matrices of an array whose parts are on different ranks to squares, with the same bits as
  // `rows` of quantize() has for a complete matrix. largest_of_squares() finds the largest magnitude of each square
  // among the values of a part: `largest` [T] f32, 0 for a square without any. quantize_shard() gets these of all R
  // parts, and computes the scales of all squares [T] f32, and the codes of its own part [n] e4m3. Codes outside of
  // the matrices are 0. Both run on the given stream of the device.
  virtual void largest_of_squares(Stream& stream, const Float8Shard& shard, View largest) = 0;
  virtual void quantize_shard(Stream& stream, const Float8Shard& shard, View largest /*[R, ≥ T] f32*/, View scales,
                              View codes) = 0;
  // to [K, R] gets the transpose of from [R, K]. Both have squares.
  virtual void transpose8(const Float8Matrix& from, const Float8Matrix& to) = 0;
  // The values of an 8-bit matrix [R, K]: x [R, K]. With `transposed`, x [k, R] gets its first k columns, as rows.
  virtual void dequantize8(const Float8Matrix& from, bool transposed, View x) = 0;
  // Why the device has no products in 8 bits, or an empty text.
  virtual std::string refusal_of_float8() const { return ""; }

  struct LinearForward {
    ByName by_name{};
    View x;                     // [N, I]; empty with x8
    View weight;                // [O, I]; empty with weight8
    Float8Matrix x8 = {};       // [N, I]
    Float8Matrix weight8 = {};  // [O, I]
    View bias = {};             // [O] or empty
    View added = {};            // [N, O] or empty; may be preactivation, or y if it is not the residual
    LinearEpilogue epilogue = {};
    View preactivation = {};  // [N, O], receives pre for the backward pass; or empty
    View y;                   // [N, O]
  };
  virtual void linear_forward(const LinearForward& call) = 0;
  // d_x = residual + (d_y · weight + added) ∘ dropout mask ∘ activation'(preactivation). The epilogue (activation and
  // dropout) and preactivation belong to the previous layer, not to this one. The residual [N, I] of the epilogue is a
  // gradient that is added to d_x. x gets dropout(activation(preactivation)) again: the output of the previous layer,
  // without a residual.
  struct LinearBackwardInput {
    ByName by_name{};
    View d_y;                   // [N, O]; empty with d_y8
    View weight;                // [O, I]; empty with weight8
    Float8Matrix d_y8 = {};     // [N, O]
    Float8Matrix weight8 = {};  // [I, O]
    View added = {};            // [N, I] or empty; may be d_x if it is not the residual
    LinearEpilogue epilogue = {};
    View preactivation = {};  // [N, I] or empty
    View d_x;                 // [N, I]
    View x = {};              // [N, I], may be preactivation; or empty
  };
  virtual void linear_backward_input(const LinearBackwardInput& call) = 0;
  // With `fresh`, d_weight has unspecified contents, and the call overwrites it. Otherwise the call adds to it.
  virtual void linear_backward_weight(View d_y /*[N, O]*/, View x /*[N, I]*/, bool fresh,
                                      View d_weight /*[O, I] = or +=*/) = 0;
  // The same from 8-bit matrices. N: float8_terms() of the tokens.
  virtual void linear_backward_weight8(const Float8Matrix& d_y /*[O, N]*/, const Float8Matrix& x /*[I, N]*/, bool fresh,
                                       View d_weight /*[O, I] = or +=*/) = 0;
  // Gradients of the biases of several layers in one call. One gradient is little work: on a GPU, a call for two
  // gradients takes little longer than a call for one.
  virtual void linear_backward_bias(std::span<const BiasGradient> gradients) = 0;
  // joined [O, R] gets scale · factor at the place of each factor, and zeros elsewhere. Places do not overlap.
  virtual void join_factors(std::span<const FactorPlace> factors, View joined) = 0;
  // The reverse for gradients: each factor gets scale · (its place in `joined`). With `fresh`, the call overwrites the
  // factor. Otherwise it adds to the factor.
  virtual void split_factors(View joined, std::span<const FactorPlace> factors, bool fresh) = 0;
  // d_x = d_y ∘ mask: the gradient through a dropout, and the dropout itself.
  virtual void dropout_backward(View d_y /*[N, O]*/, const Dropout& dropout, View d_x /*[N, O]; may be d_y*/) = 0;

  // ---- attention, causal, per sequence: o = dropout(softmax(q·kᵀ/√D + slope·position)) · v

  // Sequence b has rows starts[b] … starts[b+1]−1. `position` is the position of the key, from 0 in each sequence.
  struct AttentionForward {
    ByName by_name{};
    View qkv;     // [N, W]
    View starts;  // [B+1] i32
    AttentionShape shape;
    Dropout dropout = {};
    View o;                 // [N, H·D]
    View log_sum_exp = {};  // [N, H] of the scores; or empty
  };
  virtual void attention_forward(const AttentionForward& call) = 0;
  struct AttentionBackward {
    ByName by_name{};
    View qkv;          // [N, W]
    View o;            // [N, H·D]
    View log_sum_exp;  // [N, H]
    View d_o;          // [N, H·D]
    View starts;       // [B+1] i32
    AttentionShape shape;
    Dropout dropout = {};
    View d_qkv;           // [N, W]
    View workspace = {};  // f32 [attention_workspace_elems()]; or empty on CPUs
  };
  virtual void attention_backward(const AttentionBackward& call) = 0;

  // ---- generation: keys and values of sequence b are in cache rows cache_starts[b] + position -----------------------
  struct StoreKeysValues {
    ByName by_name{};
    View qkv;     // [N, W]
    View starts;  // [B+1] i32
    AttentionShape shape;
    View cache_starts;  // [B] i32
    View keys, values;  // [rows, K·D]
  };
  virtual void store_keys_values(const StoreKeysValues& call) = 0;
  // One new token per sequence: stores its key and value at position lengths[b], then computes its attention over the
  // positions 0 … lengths[b] or, with a window, over the last shape.window of these positions.
  struct AttentionDecode {
    ByName by_name{};
    View qkv;  // [B, W]
    AttentionShape shape;
    View cache_starts, lengths;  // [B] i32
    View keys, values;           // [rows, K·D]
    View o;                      // [B, H·D]
  };
  virtual void attention_decode(const AttentionDecode& call) = 0;

  // ---- head ---------------------------------------------------------------------------------------------------------
  // loss [1] f64 += Σ_i (log Σ exp logits[i] − logits[i, targets[i]]). If d_scale ≠ 0, logits become (softmax −
  // one-hot) · d_scale. Otherwise their contents are unspecified afterwards.
  virtual void softmax_cross_entropy(View logits /*[M, V]*/, View targets /*[M] i32*/, double d_scale,
                                     View loss /*[1] f64*/) = 0;
  virtual void argmax_rows(View logits /*[M, V]*/, View ids /*[M] i32*/) = 0;  // of equal maxima, the lowest id
  // Draws one id for each row. ops/sampling_numbers.h describes how probabilities are rounded. draws[i] is a uniform
  // random 64-bit number. ids[i] depends only on draws[i], `sampling` and the logits of row i, and not on other rows,
  // the number of threads or the device. A NaN is never drawn. If all logits of a row are NaN or −∞, its id is 0. V is
  // at most kMaxSampledVocabulary.
  virtual void sample_rows(View logits /*[M, V]*/, View draws /*[M] i64*/, const Sampling& sampling,
                           View ids /*[M] i32*/) = 0;

  // ---- optimizer: AdamW (Loshchilov & Hutter 2019, as torch.optim.AdamW) on flat arrays of P elements

  // Moments are f32 (or f64). Gradients have any floating-point type. Parameters have the type of the moments. f32
  // parameters may also be stored in two arrays: `parameters` has their f16 or bf16 values, and `rest` has the part of
  // each f32 that these values do not hold (base/dtype.h). If only moments are written, the call does not access
  // parameters. GPUs and x86 CPUs with fused multiply-add give the same f32 bits, except for NaN. As an exception,
  // moments and parameters may all be bf16, without a rest. The update then computes in f32, and computes new
  // parameters from new moments that are not yet rounded. It rounds the results stochastically when it stores them.
  // Moments of f32 parameters may also be q8_signed (m) and q8_unsigned (v), if P is a multiple of kQuantizedValues.
  // They then have P / kQuantizedValues elements. New parameters again come from new moments that are not yet rounded.
  struct AdamWArrays {
    ByName by_name{};
    View parameters = {};  // [P]; or empty if only moments are written
    View rest = {};        // [P] or empty
    View gradients;        // [P]
    View m, v;             // [P], or [P / kQuantizedValues] blocks
  };
  virtual void adamw(const AdamWArrays& arrays, const AdamWStep& step) = 0;
  // The same on another stream of the device, concurrently with the kernels of the compute stream.
  virtual void adamw_on(Stream& stream, const AdamWArrays& arrays, const AdamWStep& step) {
    stream.run([this, arrays, step] { adamw(arrays, step); });
  }
  // Whether adamw() accepts every value of AdamWStep::writes.
  virtual bool can_split_adamw() const { return false; }

  // While tuning is on, the first call with a shape may take longer, to find the fastest algorithm for later calls with
  // this shape. The results have the same bits as without tuning.
  virtual void set_tuning(bool) {}
  virtual bool tuning() const { return false; }

  // Floating-point operations of the linear layers since construction (ops/flops.h). Attention is not included: its
  // count depends on the lengths of the sequences, which the caller knows.
  int64_t flops() const { return flops_; }

  // The current size in bytes of the scratch for f32 copies of 16-bit views. Only the CPU's kernels use this scratch.
  // It grows to the needs of the largest call. The ledger books it under Category::workspace. A caller that knows its
  // largest call in advance can reserve the scratch, and then no call allocates.
  virtual int64_t scratch_bytes() const { return 0; }
  virtual void reserve_scratch(int64_t) {}

 protected:
  // Counts one product of a linear layer, in the forward or the backward pass.
  void count_linear(View rows /*[N, I]*/, View weight /*[O, I]*/) {
    flops_ += linear_flops(rows.shape[0], weight.shape[1], weight.shape[0]);
  }

  int64_t flops_ = 0;
};

// Kernels for `device`, which must outlive the kernels. All kernels hold a fixed scratch under Category::workspace,
// which scratch_bytes() does not count. The CPU's kernels emulate 16-bit types with f32 (ops/back_ends.h).
std::unique_ptr<Kernels> make_kernels(Device& device, bool allow_tf32 = false);

}  // namespace tessera
