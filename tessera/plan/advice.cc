#include "tessera/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "tessera/base/process.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/report/text.h"
#include "tessera/settings/suggest.h"

namespace tessera {
namespace {

using S = Settings;

// The words of this process's command; none where the system does not show them.
std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

std::string quoted_for_shell(const std::string& word) {
  constexpr std::string_view kPlain = "_-./:,=+@%";
  const auto is_plain = [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// mpirun and srun have words of their own before the program's.
bool knows_whole_command(const FitRequest& request) {
  return request.rank.world_size == 1 || find_launcher(environment_of_process()).has_value();
}

// Evaluation and generation keep parameters alone.
std::optional<Configuration> find_forward_fit(const FitRequest& request) {
  using enum Tier;
  for (const Tier tier : {device, host, file}) {
    for (const ShardingStrategy strategy : {ShardingStrategy::no_shard, ShardingStrategy::full_shard}) {
      Settings settings = request.settings;
      settings.strategy = strategy;
      settings.offload = {.parameters = tier};
      if (tier == file) settings.offload_dir = offload_folder(settings);
      if (!is_consistent(settings, request.rank)) continue;
      for (int64_t size = settings.eval_batch_size; size > 0; size /= 2) {
        settings.eval_batch_size = size;
        Configuration c = plan_configuration(request, settings, 1);
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

std::string command_with(const std::vector<std::string>& command,
                         const std::vector<std::pair<std::string, std::string>>& flags) {
  std::vector<std::string> words;
  const auto replaced = [&](const std::string& word) {
    if (!word.starts_with("--")) return false;
    const Setting* setting = find_setting(word.substr(2, word.find('=') - 2));
    return setting && std::ranges::any_of(flags, [&](const auto& flag) { return flag.first == setting->flag(); });
  };
  for (size_t i = 0; i < command.size(); ++i) {
    if (!replaced(command[i])) {
      words.push_back(quoted_for_shell(command[i]));
    } else if (command[i].find('=') == std::string::npos) {
      ++i;  // its value
    }
  }
  for (const auto& [flag, value] : flags) {
    words.push_back(flag);
    words.push_back(quoted_for_shell(value));
  }
  return joined(words, " ");
}

static std::string command_to(const FitRequest& request, const Configuration& fit) {
  auto flags = flags_between(request.settings, fit.settings);
  if (!request.settings.fsdp.empty()) flags.insert(flags.begin(), {"--fsdp", ""});  // it would contradict them
  if (knows_whole_command(request)) return command_with(own_command(), flags);
  return command_with({"…"}, flags);
}

std::string advice(const FitRequest& request) {
  const auto memory_of = [&](const Configuration& c) {
    return format_bytes(request.limits.one_memory ? c.plan.peak_bytes() : c.plan.device.peak_total());
  };
  if (const std::optional<Configuration> fit = find_nearest_fit(request)) {
    const std::string files =
        fit->plan.file_bytes > 0 ? fmt::format(" and {} of files", format_bytes(fit->plan.file_bytes)) : "";
    return fmt::format("Start it as: {} # which needs {}{} a rank", command_to(request, *fit), memory_of(*fit), files);
  }
  FitRequest with_disk = request;
  with_disk.limits.disk_bytes = MemoryLimits{}.disk_bytes;
  if (const std::optional<Configuration> fit = find_nearest_fit(with_disk)) {
    const int64_t room = request.limits.disk_bytes;
    return fmt::format(
        "With an --offload-dir on a disk that has {} for each rank ({} has {}), start it as: {} # which needs {} a "
        "rank",
        format_bytes(fit->plan.file_bytes), offload_folder(request.settings), room > 0 ? format_bytes(room) : "none",
        command_to(request, *fit), memory_of(*fit));
  }
  const WorkBounds work = request.work_of(request.settings);
  const bool has_length = work.training.num_tokens + work.evaluation.num_tokens > 0;
  return fmt::format("No strategy, offload, batch size or checkpointing makes it fit. Use a smaller {}model{}",
                     has_length ? "--max-length, more ranks with a --strategy that shards, or a smaller " : "",
                     work.training.num_tokens > 0 ? "; tessera plan shows what takes how much" : "");
}

}  // namespace tessera
