/// @file
/// What a run measures.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/export.h>

TESSERA_BEGIN_NAMESPACE

/// A step of training. All values cover all ranks.
struct StepMetrics {
  std::int64_t step = 0, num_steps = 0;  ///< `step` counts from 1
  double epoch = 0;                      ///< 1.5: in the middle of the second epoch
  std::optional<double> loss;            ///< mean over the tokens with loss; nothing if no token of the step has one
  std::optional<double> gradient_norm;   ///< before clipping
  double learning_rate = 0;
  double loss_scale = 1;         ///< above 1 only in fp16
  bool updated = false;          ///< false: the update was skipped, because a value was not finite
  std::int64_t num_targets = 0;  ///< tokens with loss
  std::int64_t num_tokens = 0, num_samples = 0;
  double runtime_s = 0;  ///< since the start of the run, including earlier parts of a continued run
};

/// Scores of generated answers, from 0 to 1.
struct AnswerScores {
  double exact_match = 0, f1 = 0;
};

/// An evaluation, of a model or during training.
struct Evaluation {
  std::int64_t step = 0;  ///< in training: the number of steps before it
  double epoch = 0;
  double loss = 0, perplexity = 0;
  std::optional<AnswerScores> answers;  ///< with "eval-generation"
  std::int64_t num_samples = 0;
  double runtime_s = 0;
};

TESSERA_END_NAMESPACE
