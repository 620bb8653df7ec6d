/// @file
/// A loss of the program's own, in place of the cross-entropy.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <tessera/export.h>

TESSERA_BEGIN_NAMESPACE

/// Some of the tokens with loss of a batch: `num_rows` rows of logits, each with the token that it must predict. The
/// model computes the logits in chunks of rows, so the logits of a complete batch are never in memory. All memory is
/// host memory and belongs to the library. With fp32 on a CPU, these are the logits that the model has computed. On a
/// GPU, or in 16 bits, they are a copy in fp32, and the gradients are copied back: a copy of one chunk
/// (at most 128 MiB of logits on a CPU) is not a part of the plan.
struct LossChunk {
  std::int64_t num_rows = 0, vocab_size = 0;
  float* logits = nullptr;                  ///< [num_rows, vocab_size], row after row
  std::span<const std::int32_t> targets;    ///< [num_rows] the token that each row must predict
  std::span<const std::int32_t> positions;  ///< [num_rows] of the token before the target, in its sample
  /// [num_rows] the number of the row that the sample comes from, in the order in which the program gave its rows; -1
  /// for data of files.
  std::span<const std::int64_t> rows;
  /// In training, the function must replace each logit by `scale` times the derivative of its result by this logit.
  /// In evaluation, `scale` is 0: the logits need no gradients, and their contents do not matter afterwards.
  double scale = 0;

  bool needs_gradients() const { return scale != 0; }

  /// The cross-entropy of all rows, as the library computes it: writes the gradients, if they are needed, and returns
  /// the sum of the losses. On a CPU, a loss that only calls it gives the bits of the loss that is built in.
  double cross_entropy() const { return compute(0, num_rows, 1); }
  /// `weight` times the cross-entropy of one row. With weights of 0 and 1, this selects tokens.
  double cross_entropy(std::int64_t row, double weight) const { return compute(row, 1, weight); }

  /// Of the library: what cross_entropy() calls.
  std::function<double(std::int64_t first, std::int64_t count, double weight)> compute;
};

/// Returns the sum of the losses of the rows. The loss of a step is the sum over all chunks, divided by the number of
/// tokens with loss. It runs on the thread of the call. It must not call the model that it belongs to.
using Loss = std::function<double(const LossChunk& chunk)>;

TESSERA_END_NAMESPACE
