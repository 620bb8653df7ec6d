/// @file
/// Training.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <tessera/export.h>
#include <tessera/log.h>
#include <tessera/loss.h>
#include <tessera/metrics.h>
#include <tessera/options.h>
#include <tessera/rows.h>

TESSERA_BEGIN_NAMESPACE

/// What a run does after a step.
enum class Next {
  proceed,  ///< the next step
  stop,     ///< saves a checkpoint and ends: train() with the same options continues there
  finish,   ///< ends as if this were the last step: saves the model
};

/// What a program does during a run. Every member may be empty. All functions run on the thread of train(). If one of
/// them throws, train() ends without a checkpoint and throws this exception.
struct Hooks {
  std::function<Next(const StepMetrics&)> on_step{};
  std::function<void(const Evaluation&)> on_evaluation{};
  /// Asked before each step and during evaluations: whether to stop, as Next::stop does.
  std::function<bool()> stop_requested{};
  /// The same, for another thread: std::stop_source::request_stop().
  std::stop_token stop{};
  Log log{};
  Loss loss{};       ///< replaces the cross-entropy in training and evaluation
  Rows rows{};       ///< replace the files of "dataset"
  Rows eval_rows{};  ///< replace the files of "eval-dataset"
};

/// The end of a run.
struct TrainResult {
  bool finished = false;  ///< false: the run was stopped, and can be continued
  std::int64_t steps = 0;
  double epoch = 0;
  std::optional<double> train_loss;  ///< mean over all steps
  std::int64_t num_samples = 0, num_tokens = 0, num_targets = 0;
  std::vector<Evaluation> evaluations;  ///< after steps; of a continued run, also those of its earlier parts
  double runtime_s = 0;
  std::string output_dir;    ///< the folder of the run
  std::string model;         ///< the folder of the saved model; empty if the run was stopped
  std::string summary_json;  ///< the content of summary.json; empty if the run was stopped
};

/// Trains a model. The options are those of `tessera train`: "model", "output-dir" and "dataset" are required
/// ("dataset" unless the hooks have rows). The run writes the same files as the program, and continues an earlier run
/// in "output-dir" in the same way.
TESSERA_API TrainResult train(const Options& options, const Hooks& hooks = {});

TESSERA_END_NAMESPACE
