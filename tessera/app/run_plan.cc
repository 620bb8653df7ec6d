// tessera plan: what a training run will hold in memory, compute and send, before it starts.
#include <fmt/format.h>

#include "tessera/app/datasets.h"
#include "tessera/app/machine.h"
#include "tessera/app/model_files.h"
#include "tessera/app/plan_report.h"
#include "tessera/app/trainer.h"
#include "tessera/app/verbs.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/report/text.h"

namespace tessera {
namespace {

// Without data every sample is as long as it may be, and every token carries loss: no run needs more.
WorkBounds largest_work(const Settings& settings) {
  WorkBounds work;
  const auto tokens_of = [&](const char* name, int64_t batch_size) {
    if (batch_size <= kMaxPlannedTokens / settings.max_length) return batch_size * settings.max_length;
    throw UsageError(
        find_setting(name)->flag(),
        fmt::format("{} samples of {} tokens are more than the {} tokens of a micro-batch that can be planned",
                    batch_size, settings.max_length, kMaxPlannedTokens),
        "Use a smaller --max-length, or give the --dataset");
  };
  const int64_t tokens = tokens_of("batch_size", settings.batch_size);
  work.training = {tokens, settings.batch_size, tokens};
  work.micro_batches = settings.grad_accum;
  if (settings.eval_dataset.empty()) return work;
  const int64_t eval_tokens = tokens_of("eval_batch_size", settings.eval_batch_size);
  work.evaluation = {eval_tokens, settings.eval_batch_size, eval_tokens};
  if (settings.eval_generation) {
    work.generation = {eval_tokens, settings.eval_batch_size, 0};
    work.max_new_tokens = settings.max_new_tokens;
  }
  return work;
}

// With data, what its samples are; they live as long as the function.
WorkOf work_of_settings(const Settings& settings, ModelConfig& config) {
  if (settings.dataset.empty()) return largest_work;
  ThreadPool pool(threads_to_use(settings.threads));
  const Tokenizer tokenizer = tokenizer_of(settings, config);
  const auto train = std::make_shared<Dataset>(
      load_dataset(settings, DatasetUse::training, tokenizer, config.eos_token_id, false, pool));
  const auto eval =
      std::make_shared<std::optional<Dataset>>(eval_dataset_of(settings, tokenizer, config.eos_token_id, pool));
  return [train, eval](const Settings& s) { return training_work(s, *train, *eval ? &**eval : nullptr); };
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

// --fit or --device-memory, else what this machine has for each of the ranks of a node.
MemoryLimits limits_of(const Settings& settings, const PlannedRank& rank) {
  const bool cuda = rank.device == DeviceKind::cuda;
  const int64_t given = settings.fit > 0 ? settings.fit : settings.device_memory;
  if (given > 0) return {.device_bytes = given, .one_memory = !cuda};
  std::optional<int64_t> of_this_machine = usable_memory_bytes();
  if (of_this_machine) *of_this_machine /= std::min(rank.world_size, rank.ranks_per_node);
  if (cuda) {
    const CudaInfo info = cuda_info();
    if (info.devices.empty()) return {};  // of another machine nothing is known
    return {.device_bytes = info.devices[0].memory_bytes,
            .host_bytes = of_this_machine.value_or(MemoryLimits{}.host_bytes)};
  }
  if (!of_this_machine) return {};
  return {.device_bytes = *of_this_machine, .one_memory = true};
}

// Of the settings that --fit searches, those that the command line or DeepSpeed's file gives.
std::set<std::string> fixed_settings(const ResolvedSettings& resolved) {
  std::set<std::string> fixed;
  for (const auto& [name, origin] : resolved.origins) {
    if (origin.kind == Origin::Kind::flag || origin.kind == Origin::Kind::deepspeed) fixed.insert(name);
  }
  return fixed;
}

// The settings under which a run's micro-batches are one, if they run so: on a GPU that is known to have the memory.
std::optional<Settings> fused(const Settings& settings, const ModelConfig& config, const WorkOf& work_of,
                              const PlannedRank& rank, const MemoryLimits& limits) {
  if (settings.fuse_micro_batches == Settings::FuseMicroBatches::off || settings.grad_accum == 1) return {};
  const int64_t most_sequences = kMaxPlannedTokens / settings.max_length;
  if (limits.device_bytes == MemoryLimits{}.device_bytes) return {};
  if (rank.device != DeviceKind::cuda || settings.grad_accum > most_sequences / settings.batch_size) return {};
  Settings one = settings;
  one.batch_size *= one.grad_accum;
  one.grad_accum = 1;
  if (plan_training(config, one, work_of(one), rank).device.peak_total() > limits.device_bytes) return {};
  return one;
}

[[noreturn]] void nothing_fits(const FitResult& fit, const MemoryLimits& limits) {
  const Configuration& least = *fit.smallest;
  throw OutOfMemoryError(
      "--fit",
      fmt::format("nothing fits into {}: the least, {}, needs {} ({}: {})", format_bytes(limits.device_bytes),
                  to_json(searched_settings(least.settings)),
                  format_bytes(least.excess.limit_bytes + least.excess.bytes), name_of(least.excess.largest),
                  format_bytes(least.excess.largest_bytes)),
      "Use more ranks, a smaller --max-length or a smaller model, or leave free what the command line fixes");
}

}  // namespace

int run_plan(const Invocation& invocation) {
  Settings settings = invocation.settings();
  if (!std::filesystem::exists(settings.model)) settings.init = Settings::Init::random;  // a shape is enough
  ModelConfig config = model_config_of(settings);
  const WorkOf work_of = work_of_settings(settings, config);
  PlanReport report;
  report.settings = settings;
  report.rank = first_rank_of(settings);
  report.limits = limits_of(settings, report.rank);
  if (settings.fit > 0) {
    report.fit = find_fit({config, settings, fixed_settings(invocation.resolved), work_of, report.rank, report.limits});
    if (!report.fit->best) nothing_fits(*report.fit, report.limits);
    report.settings = report.fit->best->settings;
  }
  report.work = work_of(report.settings);
  if (const auto one = fused(report.settings, config, work_of, report.rank, report.limits)) {
    report.work = work_of(*one);
    report.fused = true;
  }
  report.first = plan_training(config, report.settings, report.work, report.rank);
  if (report.rank.world_size > 1) {
    PlannedRank second = report.rank;
    second.rank = 1;
    report.other = plan_training(config, report.settings, report.work, second);
  }
  Console console = Console::of_process();
  if (settings.json) {
    console.print(to_json(plan_record(report)));
  } else {
    print_plan(report, console);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
