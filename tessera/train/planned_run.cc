#include "tessera/train/planned_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/counted.h"
#include "tessera/base/host_resources.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/load/data_report.h"
#include "tessera/load/datasets.h"
#include "tessera/load/model_files.h"
#include "tessera/load/model_place.h"
#include "tessera/plan/known_gpus.h"
#include "tessera/plan/machines.h"
#include "tessera/session/session.h"
#include "tessera/settings/engine_options.h"
#include "tessera/train/auto_precision.h"
#include "tessera/train/calendar.h"
#include "tessera/train/chosen_settings.h"
#include "tessera/train/trainer.h"
#include "tessera/train/training_work.h"

namespace tessera {
namespace {

// An upper bound of the work, for a plan without --dataset. It assumes that every sample has --max-length tokens, and
// that every token is a target. With --batch-tokens, the bound for the number of sequences instead assumes samples of
// one token.
WorkBounds largest_work(const Settings& settings) {
  WorkBounds work;
  if (settings.batch_tokens > 0) {
    const int64_t tokens = settings.batch_tokens;
    work.training = {tokens, std::min(tokens, kMaxBatchSequences), tokens, settings.max_length};
  } else {
    const int64_t tokens = settings.batch_size * settings.max_length;
    work.training = {tokens, settings.batch_size, tokens};
  }
  work.micro_batches = settings.grad_accum;
  if (!settings.has_eval_data()) return work;
  const int64_t eval_tokens = settings.eval_batch_size * settings.max_length;
  work.evaluation = {eval_tokens, settings.eval_batch_size, eval_tokens};
  if (settings.eval_generation) {
    work.generation = {eval_tokens, settings.eval_batch_size, 0};
    work.max_new_tokens = settings.max_new_tokens;
  }
  return work;
}

// A plan without data assumes samples of --max-length tokens. Throws UsageError if the context of the model is
// shorter than --max-length.
void check_planned_length(const Settings& settings, const ModelConfig& config) {
  if (config.max_positions == 0 || settings.max_length <= config.max_positions) return;
  throw UsageError(option_place("max_length"),
                   fmt::format("{} tokens are more than the context of the model, {} (max_position_embeddings "
                               "and the scaling of its positions)",
                               settings.max_length, counted(config.max_positions, "token")),
                   fmt::format("Give at most {}, or the --dataset if its rows are shorter", config.max_positions));
}

struct PlannedData {
  std::optional<Dataset> train, eval;  // both empty without --dataset; `eval` also empty without evaluation data
};

PlannedData planned_data(Session& session) {
  const Settings& settings = session.settings();
  if (settings.dataset.empty()) return {};
  session.read_tokenizer();
  TrainingData data = load_training_data(settings, session.tokenizer(), session.config(), session.pool(),
                                         {.console = &session.console()});
  return {std::move(data.train), std::move(data.eval)};
}

// Returns a function that computes the work of `data`. If `data` is empty, the function returns an upper bound. `data`
// must outlive the function.
WorkOf work_of_data(const PlannedData& data) {
  if (!data.train) return largest_work;
  return [&data](const Settings& s) { return training_work(s, *data.train, data.eval ? &*data.eval : nullptr); };
}

PlannedRank first_rank_of(const Settings& settings) {
  PlannedRank rank;
  rank.world_size = static_cast<int>(std::max<int64_t>(1, settings.nproc));
  rank.ranks_per_node = settings.ranks_per_node > 0 ? static_cast<int>(settings.ranks_per_node) : rank.world_size;
  const int local = std::min(rank.world_size, rank.ranks_per_node);
  rank.num_threads = ThreadPool(threads_to_use(settings.threads, local)).num_threads();
  rank.device = uses_cuda(settings) ? DeviceKind::cuda : DeviceKind::cpu;
  return rank;
}

// The settings with the micro-batches of a step as one. nullopt if this one would be too large.
std::optional<Settings> as_one(Settings settings) {
  int64_t& size = settings.batch_tokens > 0 ? settings.batch_tokens : settings.batch_size;
  if (size > kMaxBatchTokens / settings.grad_accum) return {};
  size *= std::exchange(settings.grad_accum, 1);
  return settings;
}

// Mean micro-batches of `data`, or the largest ones without data.
WorkOf typical_of_data(const PlannedData& data, int world_size, bool fused = false) {
  if (!data.train) return [fused](const Settings& s) { return largest_work(fused ? *as_one(s) : s); };
  return [&data, world_size, fused](const Settings& s) {
    return typical_work(s, *data.train, data.eval ? &*data.eval : nullptr, world_size, fused);
  };
}

// A run may fuse the micro-batches of a step: it then computes them as one large micro-batch. Returns this work, or
// nullopt if the kernels do not support it.
std::optional<WorkBounds> fused_work(const Settings& settings, const ModelConfig& config, const PlannedData& data) {
  WorkBounds work;
  if (data.train) {
    work = training_work(settings, *data.train, data.eval ? &*data.eval : nullptr, true);
  } else {
    const auto one = as_one(settings);
    if (!one) return {};
    work = largest_work(*one);
  }
  return is_supported(work.training, config) ? std::optional(work) : std::nullopt;
}

// Fusing needs a GPU whose memory is known, and large enough.
bool may_fuse(const Settings& settings, const PlannedRank& rank, const MemoryLimits& limits) {
  return settings.fuse_micro_batches != Settings::FuseMicroBatches::off && rank.device == DeviceKind::cuda &&
         limits.device_bytes < MemoryLimits{}.device_bytes;
}

// The engine that counts runs on no GPU, so it cannot know whether the planned one has products in 8 bits.
void check_float8(const Settings& settings, const KnownGpu* known) {
  const CudaInfo here = cuda_info();
  const bool on_gpu = settings.device == Settings::DeviceChoice::cuda ||
                      (settings.device == Settings::DeviceChoice::automatic && !here.devices.empty());
  if (settings.matmul_precision != Settings::MatmulPrecision::fp8 || !on_gpu) return;
  std::string other;
  if (known) {
    if (known->fp8_tflops == 0) other = known->name;
  } else if (settings.machine.empty() && !here.devices.empty()) {
    const CudaDeviceInfo& gpu = here.devices[0];
    if (gpu.major != 9 || gpu.minor != 0) other = gpu.name;
  }
  if (other.empty()) return;
  throw UsageError(
      option_place("matmul_precision"),
      fmt::format("fp8 needs a GPU with compute capability 9.0, such as an H100 or H200. The {} has another "
                  "one",
                  other),
      "Leave the setting out");
}

}  // namespace

PlanReport plan_of_run(const ResolvedSettings& given, Console& console) {
  ResolvedSettings resolved = given;
  settle_planned_precision(resolved);
  Settings settings = resolved.settings;
  if (names_a_shape(settings)) settings.init = Settings::Init::random;
  // The name of a GPU is also the choice of a device.
  const KnownGpu* const known = known_gpu_by_word(settings.machine);
  const bool names_gpu = known != nullptr;
  if (names_gpu && settings.device == Settings::DeviceChoice::automatic) settings.device = Settings::DeviceChoice::cuda;
  check_float8(settings, known);
  Session session(settings, console);
  session.read_config();
  check_trains(session.config(), settings);
  const PlannedData data = planned_data(session);
  const ModelConfig& config = session.config();
  if (!data.train) check_planned_length(settings, config);
  const WorkOf work_of = work_of_data(data);
  PlanReport report;
  if (data.train) report.train_data = data.train->use;
  if (data.eval) report.eval_data = data.eval->use;
  report.settings = settings;
  report.rank = first_rank_of(settings);
  report.limits = planned_limits(settings, report.rank);
  const WorkOf typical_of = typical_of_data(data, report.rank.world_size);
  if (has_search(settings)) {
    const std::set<std::string> fixed = fixed_settings(given);
    report.assumed_machine = assumed_machine(settings, report.rank);
    FitRequest request{config,     settings,    fixed,         work_of,
                       typical_of, report.rank, report.limits, report.assumed_machine};
    if (may_fuse(settings, report.rank, report.limits)) {
      request.fused_of = [&](const Settings& s) { return fused_work(s, config, data); };
      request.fused_typical_of = typical_of_data(data, report.rank.world_size, true);
    }
    report.fit = find_fit(request);
    if (!report.fit->best) refuse_to_fit(*report.fit, report.limits, settings);
    report.settings = report.fit->best->settings;
    report.start = start_command(given, fixed, report.settings, report.rank);
  } else {
    report.to_find_fit = fit_command(given);
  }
  report.work = work_of(report.settings);
  report.first = plan_training(config, report.settings, report.work, report.rank);
  if (report.settings.grad_accum > 1 && may_fuse(settings, report.rank, report.limits)) {
    const auto work = fused_work(report.settings, config, data);
    const auto plan = work ? std::optional(plan_training(config, report.settings, *work, report.rank)) : std::nullopt;
    report.fused = plan && plan->device.peak_total() <= report.limits.device_bytes;
    if (report.fused) report.work = *work, report.first = *plan;
  }
  if (report.rank.world_size > 1) {
    PlannedRank second = report.rank;
    second.rank = 1;
    report.other = plan_training(config, report.settings, report.work, second);
  }
  report.typical =
      report.fused ? typical_of_data(data, report.rank.world_size, true)(report.settings) : typical_of(report.settings);
  report.machine = planned_machine(report.settings, report.rank);
  report.unknown_speeds =
      !report.machine ? "speeds of this machine" : unknown_speeds_of(*report.machine, report.rank, report.settings);
  if (report.unknown_speeds.empty()) {
    report.time = step_time(config, engine_options(report.settings), report.typical, report.rank, *report.machine);
  }
  if (!settings.svg.empty()) {
    report.step_memory = step_memory(config, engine_options(report.settings), report.work, report.rank,
                                     held_beside(report.settings), report.time ? &*report.machine : nullptr);
  }
  session.note_model();
  if (data.train) note_data(data.train->use, settings, console);
  if (data.train && settings.batch_tokens > 0) {
    const std::vector<int64_t> lengths = lengths_of(data.train->samples);
    report.fill = BatchPlan(batch_options(settings, lengths), 0).fill();
    note_fill(*report.fill, settings, console);
  }
  if (data.eval) note_data(data.eval->use, settings, console);
  return report;
}

}  // namespace tessera
