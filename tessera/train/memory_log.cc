#include "tessera/train/memory_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/comm/launcher_link.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/log/progress.h"
#include "tessera/log/stream_writer.h"
#include "tessera/store/file.h"
#include "tessera/store/process.h"

namespace tessera {

namespace {

// Facts about a rank that the other ranks need.
struct RankFacts {
  int pid = 0;
  std::string gpu;  // PCI address of the rank's GPU; empty: the rank uses no GPU

  std::string to_text() const { return fmt::format("{} {}", pid, gpu); }
  static RankFacts of_text(const std::string& text) {
    const size_t blank = text.find(' ');
    return {std::stoi(text.substr(0, blank)), text.substr(blank + 1)};
  }
};

// The roots of the process trees that the log samples. If the launcher of --nproc started this rank, the launcher is
// the only root. Otherwise the ranks of this node are the roots.
std::vector<int> roots_of(const std::vector<RankFacts>& node) {
  if (find_launcher(environment_of_process())) {
    if (const int launcher = ancestor_with_same_program()) return {launcher};
  }
  std::vector<int> roots;
  for (const RankFacts& rank : node) roots.push_back(rank.pid);
  return roots;
}

std::vector<LoggedGpu> gpus_of(const std::vector<RankFacts>& node, const Nvml& nvml) {
  std::vector<LoggedGpu> gpus;
  for (const RankFacts& rank : node) {
    if (rank.gpu.empty()) continue;
    const Nvml::Gpu gpu = nvml.gpu_at(rank.gpu);
    gpus.push_back({gpu, nvml.identity(gpu)});
  }
  std::ranges::sort(gpus, {}, [](const LoggedGpu& gpu) { return gpu.identity.index; });
  return gpus;
}

// Sets the GPUs of `sources`. Returns an empty text, or the reason why no GPU can be sampled.
std::string find_gpus(MemorySources& sources, const RankFacts& mine, const std::vector<RankFacts>& node,
                      bool is_first_of_node) {
  if (mine.gpu.empty()) return "The run uses no GPU";
  try {
    const auto nvml = std::make_shared<const Nvml>();
    sources.own_gpu = nvml->gpu_at(mine.gpu);
    if (is_first_of_node) sources.node_gpus = gpus_of(node, *nvml);
    sources.nvml = nvml;
    return "";
  } catch (const RunError& error) {
    sources.own_gpu.reset();
    return error.what();
  }
}

}  // namespace

MemoryLog::MemoryLog(const MemoryLogNames& names, MemorySources sources, double interval_s,
                     std::function<void(const std::string&)> warn, std::function<double()> now_s)
    : files_(names, std::move(sources)), warn_(std::move(warn)), now_s_(std::move(now_s)), begin_s_(now_s_()) {
  sample();
  thread_.emplace("the memory log", interval_s, [this] { sample(); });
}

void MemoryLog::sample() {
  if (failed_) return;
  try {
    files_.sample(now_s_() - begin_s_, std::chrono::system_clock::now(), step_.load(std::memory_order_relaxed));
  } catch (const std::exception& error) {
    failed_ = true;
    warn_(fmt::format("warning: the memory log ends here, and the run continues: {}", error.what()));
  }
}

Record MemoryLog::finish() {
  thread_->stop();
  return files_.statistics();
}

std::unique_ptr<MemoryLog> start_memory_log(const Settings& settings, const Worker& worker, Console& console) {
  const MemoryLogPlace& place = settings.memory_log;
  if (place.folder.empty()) return nullptr;
  const bool on_gpu = worker.device().kind() == DeviceKind::cuda;
  const RankFacts mine{getpid(), on_gpu ? cuda_pci_address_of(worker.device()) : ""};
  const std::vector<std::string> texts = worker.world().all_gather_text(mine.to_text(), "memory log");
  const std::vector<int> nodes = worker.nodes();
  const int my_node = nodes[static_cast<size_t>(worker.rank())];
  std::vector<RankFacts> node;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (nodes[rank] == my_node) node.push_back(RankFacts::of_text(texts[rank]));
  }
  const bool is_first_of_node = node[0].pid == mine.pid;
  MemorySources sources{.device = &worker.device().ledger(), .host = &worker.host().ledger()};
  const std::string why_no_gpus = find_gpus(sources, mine, node, is_first_of_node);
  if (!why_no_gpus.empty()) console.note(why_no_gpus + ": --memory-log writes no gpu_memory_log.csv");
  if (is_first_of_node) sources.tree.emplace(roots_of(node));
  create_folders(place.folder);
  if (access(place.folder.c_str(), W_OK) != 0) {
    throw RunError(place.folder, fmt::format("cannot be written: {}", std::strerror(errno)),
                   "Give --memory-log another folder");
  }
  const MemoryLogNames names{.folder = place.folder,
                             .rank = worker.rank(),
                             .host = ProcessIdentity::self().host,
                             .has_other_nodes = std::ranges::max(nodes) > 0};
  const auto warn = [&console, is_first = worker.is_first(), is_first_of_node](const std::string& line) {
    if (is_first) {
      console.note(line);
    } else if (is_first_of_node) {  // one warning per node is enough; the console of this rank is muted
      StreamWriter(STDERR_FILENO).write(line + "\n");
    }
  };
  return std::make_unique<MemoryLog>(names, std::move(sources), place.interval_s, warn, steady_seconds);
}

}  // namespace tessera
