#include "tessera/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/process.h"
#include "tessera/base/text.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/plan/start_command.h"
#include "tessera/settings/rules/sharding_rules.h"

namespace tessera {
namespace {

using S = Settings;

// Whether the arguments of this process are the complete command of the run. This is true for a run with one rank or
// with --nproc. If mpirun or srun started several ranks, the arguments do not contain the command of mpirun or srun.
bool knows_complete_command(const FitRequest& request) {
  return request.rank.world_size == 1 || find_launcher(environment_of_process()).has_value();
}

// For evaluation or generation. Returns the first configuration that fits, or nullopt. Tries every tier of the
// parameters, two strategies, and smaller batches. Ignores offload of gradients and optimizer states, because only
// training has them.
std::optional<Configuration> find_forward_fit(const FitRequest& request) {
  using enum Tier;
  for (const Tier tier : {device, host, file}) {
    for (const ShardingStrategy strategy : {ShardingStrategy::no_shard, ShardingStrategy::full_shard}) {
      Settings settings = request.settings;
      settings.strategy = strategy;
      settings.offload = {.parameters = tier};
      if (tier == file) settings.offload_dir = offload_folder(settings);
      if (fault_of_sharding(settings, request.rank.world_size, request.rank.ranks_per_node)) continue;
      for (int64_t size = settings.eval_batch_size; size > 0; size /= 2) {
        settings.eval_batch_size = size;
        Configuration c = plan_configuration(request, settings);
        if (c.excess.fits()) return c;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Configuration> find_nearest_fit(FitRequest request) {
  const WorkBounds work = request.work_of(request.settings);
  if (work.training.num_tokens == 0) return find_forward_fit(request);
  for (;; request.settings.eval_batch_size = std::max<int64_t>(1, request.settings.eval_batch_size / 8)) {
    FitResult result = find_fit(request);
    if (result.best) return std::move(result.best);
    if (work.evaluation.num_tokens == 0 || request.settings.eval_batch_size == 1) return std::nullopt;
  }
}

namespace {

std::string command_to(const FitRequest& request, const Configuration& fit) {
  auto flags = flags_between(request.settings, fit.settings);
  if (!request.settings.fsdp.empty())
    flags.insert(flags.begin(), {"--fsdp", ""});  // cancels the command's --fsdp, which would contradict `flags`
  if (knows_complete_command(request)) return command_with(own_command(), flags);
  return command_with({"…"}, flags);
}

}  // namespace

std::string advice(const FitRequest& request) {
  const auto memory_of = [&](const Configuration& c) {
    return format_bytes(request.limits.one_memory ? c.plan.peak_bytes() : c.plan.device.peak_total());
  };
  if (const std::optional<Configuration> fit = find_nearest_fit(request)) {
    const std::string files =
        fit->plan.file_bytes > 0 ? fmt::format(" and {} of disk space", format_bytes(fit->plan.file_bytes)) : "";
    return fmt::format("Start the run with: {} # needs {}{} per rank", command_to(request, *fit), memory_of(*fit),
                       files);
  }
  FitRequest with_disk = request;
  with_disk.limits.disk_bytes = MemoryLimits{}.disk_bytes;
  if (const std::optional<Configuration> fit = find_nearest_fit(with_disk)) {
    const int64_t room = request.limits.disk_bytes;
    return fmt::format(
        "Give an --offload-dir on a disk with {} of free space for each rank ({} has {}), and start the "
        "run with: {} # needs {} per rank",
        format_bytes(fit->plan.file_bytes), offload_folder(request.settings),
        room > 0 ? format_bytes(room) + " for each rank" : "none", command_to(request, *fit), memory_of(*fit));
  }
  const WorkBounds work = request.work_of(request.settings);
  const bool has_length = work.training.num_tokens + work.evaluation.num_tokens > 0;
  const bool by_tokens = work.training.num_tokens > 0 && request.settings.batch_tokens > 0;
  return fmt::format("No strategy, offload{} or checkpointing makes the run fit. Use a smaller {}{}model{}",
                     by_tokens ? "" : ", batch size", by_tokens ? "--batch-tokens, a smaller " : "",
                     has_length ? "--max-length, more ranks with a --strategy that shards, or a smaller " : "",
                     work.training.num_tokens > 0 ? "; tessera plan shows the memory by category" : "");
}

}  // namespace tessera
