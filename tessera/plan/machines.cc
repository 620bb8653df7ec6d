#include "tessera/plan/machines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/base/host_resources.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/plan/known_gpus.h"
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

std::string machine_text(const Machine& machine) {
  const Record record = record_of(machine);
  std::string text = "{";
  for (const auto& [key, value] : record.items()) {
    text += fmt::format("{}\n\"{}\": ", text.size() > 1 ? "," : "", key);
    if (!value.is_array()) {
      text += to_json(value);
      continue;
    }
    for (size_t i = 0; i < value.size(); ++i) text += (i == 0 ? "[\n" : ",\n") + to_json(value[i]);
    text += value.empty() ? "[]" : "\n]";
  }
  return text + "\n}\n";
}

void save_machine(const Machine& machine, const std::string& path) {
  std::error_code ignored;  // write_file_atomically() reports the error
  fs::create_directories(fs::path(path).parent_path(), ignored);
  write_file_atomically(path, machine_text(machine));
}

void print_machine(const Machine& m, Console& console) {
  const auto line = [&](const char* what, double value, const char* unit) {
    if (value > 0) console.print(fmt::format("{:<28}  {:.3g} {}", what, value, unit));
  };
  using enum Arithmetic;
  for (const Arithmetic type : {fp8, bf16, f16, tf32, f32}) {
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

std::string unknown_speeds_of(const Machine& machine, const PlannedRank& rank, const Settings& settings) {
  const bool has_float8 =
      std::ranges::any_of(machine.products, [](const Machine::Product& p) { return p.type == Arithmetic::fp8; });
  if (settings.matmul_precision == Settings::MatmulPrecision::fp8 && rank.device == DeviceKind::cuda && !has_float8) {
    return "products in fp8";
  }
  const auto unknown = [](const Machine::Link& link) { return link.bytes_per_s <= 0; };
  if (rank.world_size > 1 && rank.ranks_per_node > 1 && unknown(machine.within_node)) return "links within a node";
  if (rank.world_size > rank.ranks_per_node && unknown(machine.between_nodes)) return "links between nodes";
  const bool has_files = machine.file_read_bytes_per_s > 0 && machine.file_write_bytes_per_s > 0;
  return settings.offload.uses(Tier::file) && !has_files ? "speeds of files" : "";
}

namespace {

// The ranks of a node share its cores, memory and disks.
void divide_host(Machine& machine, double shares) {
  for (double* rate :
       {&machine.host_bytes_per_s, &machine.host_parameters_bytes_per_s, &machine.host_moments_bytes_per_s,
        &machine.file_read_bytes_per_s, &machine.file_write_bytes_per_s}) {
    *rate /= shares;
  }
}

// A machine with data-sheet GPUs. The measured host is the part of a node that belongs to one of its GPUs; a node has
// the memory bandwidth of about three such parts.
Machine machine_of_node(const KnownGpu& gpu, const PlannedRank& rank) {
  constexpr double kParts = 3;
  Machine machine = machine_of(gpu);
  const double ranks = std::min(rank.world_size, rank.ranks_per_node);
  const double read = machine.file_read_bytes_per_s, write = machine.file_write_bytes_per_s;
  divide_host(machine, std::max(1.0, ranks / kParts));
  machine.file_read_bytes_per_s = read / ranks;
  machine.file_write_bytes_per_s = write / ranks;
  double& network = machine.between_nodes.bytes_per_s;
  network = std::min(network * ranks, machine.within_node.bytes_per_s);
  return machine;
}

// The measured speeds of this machine, or those of its GPU's data sheet.
std::optional<Machine> this_machine(const PlannedRank& rank) {
  const std::string name = name_of_device(rank.device, rank.num_threads);
  if (name.empty()) return {};
  std::error_code error;
  for (const int ranks : {std::min(rank.world_size, rank.ranks_per_node), 1}) {
    const std::string path = machine_file(name, ranks);
    if (path.empty() || !fs::exists(path, error)) continue;
    try {
      Machine machine = read_machine(path);
      if (ranks == 1) divide_host(machine, std::min(rank.world_size, rank.ranks_per_node));
      return machine;
    } catch (const InputError&) {  // the plan does without times, and says how to measure them again
    }
  }
  if (rank.device != DeviceKind::cuda) return {};
  const KnownGpu* known = known_gpu_by_name(name, cuda_info().devices[0].memory_bytes);
  return known ? std::optional(machine_of_node(*known, rank)) : std::nullopt;
}

Machine named_machine(const Settings& settings, const PlannedRank& rank) {
  const KnownGpu* known = known_gpu_by_word(settings.machine);
  std::error_code error;
  if (!known && !fs::exists(settings.machine, error)) {
    std::vector<std::string> words;
    for (const KnownGpu& gpu : known_gpus()) words.push_back(gpu.word);
    throw UsageError(
        option_place("machine"), fmt::format("\"{}\" is neither a file nor a known GPU", printable(settings.machine)),
        fmt::format("Give a file that tessera doctor --measure has written, or one of {}", joined(words, ", ")));
  }
  Machine machine = known ? machine_of_node(*known, rank) : read_machine(settings.machine);
  const bool is_gpu = machine.num_multiprocessors > 0, wants_gpu = rank.device == DeviceKind::cuda;
  if (is_gpu == wants_gpu) return machine;
  throw UsageError(option_place("machine"),
                   fmt::format("{} has the speeds of a {}, but the plan is for {}s", printable(settings.machine),
                               is_gpu ? "GPU" : "CPU", wants_gpu ? "GPU" : "CPU"),
                   fmt::format("Give {} {}, or another machine", option("device"), is_gpu ? "cuda" : "cpu"));
}

bool is_known(const Machine::Link& link) {
  return link.bytes_per_s > 0;
}

// Fills in the links that `machine` lacks.
void take_links(Machine& machine, const Machine& from) {
  if (!is_known(machine.within_node)) machine.within_node = from.within_node;
  if (!is_known(machine.between_nodes)) machine.between_nodes = from.between_nodes;
}

Machine typical_machine(const PlannedRank& rank) {
  return rank.device == DeviceKind::cuda ? machine_of_node(*known_gpu_by_word("h200"), rank)
                                         : typical_cpu(rank.num_threads);
}

}  // namespace

std::optional<Machine> planned_machine(const Settings& settings, const PlannedRank& rank) {
  std::optional<Machine> machine =
      settings.machine.empty() ? this_machine(rank) : std::optional(named_machine(settings, rank));
  if (!machine || rank.device != DeviceKind::cuda) return machine;
  const bool lacks_within = rank.world_size > 1 && rank.ranks_per_node > 1 && !is_known(machine->within_node),
             lacks_between = rank.world_size > rank.ranks_per_node && !is_known(machine->between_nodes);
  if (!lacks_within && !lacks_between) return machine;
  const KnownGpu* known = known_gpu_by_name(machine->name, 0);
  take_links(*machine, known ? machine_of_node(*known, rank) : typical_machine(rank));
  machine->source += lacks_within && lacks_between ? ", links: typical"
                     : lacks_within                ? ", links within a node: typical"
                                                   : ", links between nodes: typical";
  return machine;
}

Machine assumed_machine(const Settings& settings, const PlannedRank& rank) {
  const Machine typical = typical_machine(rank);
  std::optional<Machine> machine = planned_machine(settings, rank);
  if (!machine) {
    machine = typical;
    machine->source = "assumed";
  }
  take_links(*machine, typical);
  if (machine->file_read_bytes_per_s <= 0 || machine->file_write_bytes_per_s <= 0) {
    machine->file_read_bytes_per_s = typical.file_read_bytes_per_s;
    machine->file_write_bytes_per_s = typical.file_write_bytes_per_s;
  }
  return *machine;
}

}  // namespace tessera
