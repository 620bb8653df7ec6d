#include "tessera/plan/machines.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/base/host_resources.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/store/atomic_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// "NVIDIA H200" → "nvidia-h200"
std::string slug_of(const std::string& name) {
  std::string slug;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (slug.ends_with('-')) slug.pop_back();
  return slug.empty() ? "machine" : slug;
}

Machine read_machine(const std::string& path) {
  return machine_from(record_from_json(read_file(path, {}), path), path);
}

}  // namespace

std::string name_of_device(DeviceKind device, int num_threads) {
  if (device == DeviceKind::cuda) {
    const CudaInfo info = cuda_info();
    return info.devices.empty() ? "" : info.devices[0].name;
  }
  return fmt::format("{}, {} threads", value_of_key("/proc/cpuinfo", "model name").value_or("CPU"), num_threads);
}

std::string machine_file(const std::string& device_name, int ranks_of_node) {
  const std::string name =
      slug_of(device_name) + (ranks_of_node > 1 ? fmt::format("-x{}", ranks_of_node) : "") + ".json";
  const fs::path folder = cache_folder("machines");
  return folder.empty() ? "" : (folder / name).string();
}

void save_machine(const Machine& machine, const std::string& path) {
  std::error_code ignored;  // write_file_atomically() reports the error
  fs::create_directories(fs::path(path).parent_path(), ignored);
  write_file_atomically(path, to_pretty_json(record_of(machine)) + "\n");
}

void print_machine(const Machine& m, Console& console) {
  const auto line = [&](const char* what, double value, const char* unit) {
    if (value > 0) console.print(fmt::format("{:<28}  {:.3g} {}", what, value, unit));
  };
  for (const Arithmetic type : {Arithmetic::bf16, Arithmetic::f16, Arithmetic::tf32, Arithmetic::f32}) {
    double most = 0;
    for (const Machine::Product& p : m.products) most = std::max(most, p.type == type ? p.flops_per_s : 0);
    line(fmt::format("products in {}, up to", name_of(type)).c_str(), most * 1e-12, "TFLOP/s");
  }
  const Machine::Memory& largest = m.memory.back();
  line("kernels on large arrays", static_cast<double>(largest.bytes) / largest.seconds * 1e-9, "GB/s");
  line("launch of a kernel", m.launch_s * 1e6, "us");
  if (m.launch_s > 0) line("copies to the GPU", m.to_device_bytes_per_s * 1e-9, "GB/s");
  if (m.launch_s > 0) line("copies to the host", m.to_host_bytes_per_s * 1e-9, "GB/s");
  line("AdamW on the host", m.host_bytes_per_s * 1e-9, "GB/s");
  line("files, written", m.file_write_bytes_per_s * 1e-9, "GB/s");
  line("files, read", m.file_read_bytes_per_s * 1e-9, "GB/s");
  line("collectives within a node", m.within_node.bytes_per_s * 1e-9, "GB/s per rank");
  line("collectives between nodes", m.between_nodes.bytes_per_s * 1e-9, "GB/s per rank");
}

std::string unknown_speeds_of(const Machine& machine, const PlannedRank& rank, const Offload& offload) {
  const auto unknown = [](const Machine::Link& link) { return link.bytes_per_s <= 0; };
  if (rank.world_size > 1 && rank.ranks_per_node > 1 && unknown(machine.within_node)) return "links within a node";
  if (rank.world_size > rank.ranks_per_node && unknown(machine.between_nodes)) return "links between nodes";
  const bool has_files = machine.file_read_bytes_per_s > 0 && machine.file_write_bytes_per_s > 0;
  return offload.uses(Tier::file) && !has_files ? "speeds of files" : "";
}

std::optional<Machine> planned_machine(const Settings& settings, const PlannedRank& rank) {
  std::error_code error;
  if (!settings.machine.empty()) {
    if (!fs::exists(settings.machine, error)) {
      throw UsageError(option_place("machine"), fmt::format("\"{}\" does not exist", printable(settings.machine)),
                       "Give a file that tessera doctor --measure has written");
    }
    Machine machine = read_machine(settings.machine);
    const bool is_gpu = machine.num_multiprocessors > 0, wants_gpu = rank.device == DeviceKind::cuda;
    if (is_gpu == wants_gpu) return machine;
    throw UsageError(
        option_place("machine"),
        fmt::format("{} has the speeds of a {}, but the plan is for {}s", printable(settings.machine),
                    is_gpu ? "GPU" : "CPU", wants_gpu ? "GPU" : "CPU"),
        fmt::format("Give {} {}, or the file of another machine", option("device"), is_gpu ? "cuda" : "cpu"));
  }
  const std::string name = name_of_device(rank.device, rank.num_threads);
  if (name.empty()) return {};
  for (const int ranks : {std::min(rank.world_size, rank.ranks_per_node), 1}) {
    const std::string path = machine_file(name, ranks);
    if (path.empty() || !fs::exists(path, error)) continue;
    try {
      return read_machine(path);
    } catch (const InputError&) {  // the plan does without times, and says how to measure them again
    }
  }
  return {};
}

}  // namespace tessera
