#include "tessera/session/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "tessera/base/host_resources.h"
#include "tessera/base/instruction_sets.h"
#include "tessera/base/option_names.h"
#include "tessera/device/cuda/architectures.h"
#include "tessera/plan/fit.h"
#include "tessera/plan/limits.h"
#include "tessera/settings/engine_options.h"
#include "tessera/settings/setting.h"

namespace tessera {

void check_gpus(const std::vector<std::string>& gpus) {
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].empty() != gpus[0].empty()) {
      throw UsageError(option_place("device") + " auto",
                       fmt::format("finds {} on rank 0, but {} on rank {}", gpus[0].empty() ? "no GPU" : "a GPU",
                                   gpus[rank].empty() ? "none" : "one", rank),
                       "Start every rank where it has a GPU of its own, or use --device cpu");
    }
    if (gpus[rank].empty()) continue;
    const auto first = static_cast<size_t>(std::find(gpus.begin(), gpus.end(), gpus[rank]) - gpus.begin());
    if (first == rank) continue;
    throw UsageError(
        option_place("device"), fmt::format("ranks {} and {} have the same GPU", first, rank),
        "Start at most one rank per GPU. Let CUDA_VISIBLE_DEVICES show each rank all GPUs of its machine, or a "
        "GPU of its own. Or use --device cpu");
  }
}

void check_code(const CudaInfo& info, const CudaDeviceInfo& gpu) {
  if (!has_no_code_for(10 * gpu.major + gpu.minor, info.architectures)) return;
  throw UsageError(
      option_place("device"),
      fmt::format("this program has no code for {} of compute capability {}.{}. It has code for {}", gpu.name,
                  gpu.major, gpu.minor, info.architectures),
      fmt::format("Build Tessera with -DTESSERA_CUDA_ARCHITECTURES={}{}, or use --device cpu", gpu.major, gpu.minor));
}

bool has_bf16(const CudaDeviceInfo& gpu) {
  return gpu.major >= 8;
}

void check_precision(Settings::Precision precision, const CudaDeviceInfo& gpu) {
  using P = Settings::Precision;
  if (has_bf16(gpu) || (precision != P::bf16 && precision != P::tf32)) return;
  throw UsageError(option_place("precision"),
                   fmt::format("{} needs a GPU of compute capability 8.0 or later, but {} has {}.{}",
                               precision == P::bf16 ? "bf16" : "tf32", gpu.name, gpu.major, gpu.minor),
                   "Use fp16 or fp32");
}

std::string note_of_no_gpu(const CudaInfo& info, const std::function<const char*(const char*)>& variable) {
  if (!info.devices.empty()) return "";
  std::string sign = info.has_driver ? "this machine has a driver" : "";
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    const char* const value = variable(name);
    if (!value) continue;
    const std::string_view list = value;
    if (list.empty() || list == "-1") return "";  // the user wants no GPU
    if (sign.empty()) sign = fmt::format("{} is {}", name, list);
  }
  if (sign.empty()) return "";
  std::string note = fmt::format("No GPU is used, although {}. Reason: {}", sign, info.problem);
  if (!info.built || info.has_driver) return note;
  return note + ". In a container, start it with --nv (Apptainer) or --gpus all (Docker)";
}

namespace {

std::unique_ptr<Device> make_gpu(const Settings& settings, int local_rank) {
  const int ordinal = cuda_ordinal_of_rank(local_rank);
  auto device = make_cuda_device(ordinal);
  const CudaInfo info = cuda_info();
  const CudaDeviceInfo& gpu = info.devices[static_cast<size_t>(ordinal)];
  check_code(info, gpu);
  check_precision(settings.precision, gpu);
  return device;
}

// Chooses the same set on all ranks: replicas of parameters and states would otherwise differ in the last bits.
void choose_instruction_set_for(const Settings& settings, World* world) {
  const std::vector<std::string> built = built_instruction_sets(), usable = usable_instruction_sets();
  auto least = static_cast<int64_t>(usable.size());
  if (world) least = -world->communicator().max(-least, "the instruction sets of each rank");
  const std::string asked = std::get<std::string>(find_setting("instruction_set")->get(settings));
  if (settings.instruction_set == Settings::InstructionSet::automatic) {
    if (least > 0) choose_instruction_set(static_cast<int>(least) - 1);
    return;
  }
  const auto position = std::ranges::find(built, asked) - built.begin();
  if (position < least) return choose_instruction_set(static_cast<int>(position));
  const bool is_built = position < std::ssize(built);
  throw UsageError(option_place("instruction_set"),
                   !is_built                       ? fmt::format("this program has no code for {}", asked)
                   : position < std::ssize(usable) ? fmt::format("the processor of another rank lacks {}", asked)
                                                   : fmt::format("this machine's processor lacks {}", asked),
                   fmt::format("Use auto{}", least > 0 ? " or " + built[static_cast<size_t>(least) - 1] : ""));
}

std::unique_ptr<Device> make_device(const Settings& settings, World* world, ThreadPool& pool) {
  const bool cuda = uses_cuda(settings);
  auto device = cuda ? make_gpu(settings, world ? world->local_rank() : 0) : make_cpu_device(pool);
  if (world) check_gpus(world->communicator().all_gather_text(cuda ? cuda_uuid_of(*device) : "", "each rank's GPU"));
  return device;
}

std::unique_ptr<Device> make_host(const Settings& settings, World* world, ThreadPool& pool) {
  // A search may choose to offload.
  const bool pins = pins_host_memory(settings) || (settings.pin_memory && has_search(settings));
  if (!uses_cuda(settings) || !pins) return make_cpu_device(pool);
  const int64_t bytes = usable_memory_bytes().value_or(std::numeric_limits<int64_t>::max());
  return make_pinned_host_device(pool, pinnable_bytes(bytes / (world ? world->local_size() : 1)));
}

}  // namespace

Worker::Worker(const Settings& settings, World* world)
    : world_(world), pool_(threads_to_use(settings.threads, world ? world->ranks_on_these_cores() : 1)) {
  choose_instruction_set_for(settings, world);
  device_ = make_device(settings, world, pool_);
  host_ = make_host(settings, world, pool_);
  // The check before the run compares its plan with these sizes. A plan that is wrong must not take more either.
  const auto limit = [](Device& of, int64_t bytes) {
    if (bytes > 0) of.limit_to(bytes);
  };
  limit(*device_, std::max(settings.fit, settings.device_memory));
  limit(*host_, settings.host_memory / (world ? world->local_size() : 1));
  group_ = world ? world->make_communicator(*device_) : make_self_communicator();
  const int found = world ? world->ranks_per_node() : 1;
  const auto asked = static_cast<int>(settings.ranks_per_node);
  ranks_per_node_ = asked > 0 ? asked : found > 0 ? found : group_->size();
  const bool is_hybrid = row_of(settings.strategy).within_nodes;
  if (is_hybrid && found == 0 && asked == 0 && settings.shard_group_size == 0) {
    throw UsageError(option_place("strategy"),
                     "hybrid strategies shard within a node, but the nodes have different numbers of ranks, or ranks "
                     "that are not consecutive",
                     "Set --shard-group-size. Or start the same number of ranks on each node, one node after the "
                     "other (mpirun --map-by slot, srun --distribution=block)");
  }
}

LocalRanks Worker::local_ranks() const {
  if (!world_) return {};
  return {.count = world_->local_size(),
          .with_first = world_->nodes()[static_cast<size_t>(rank())] == world_->nodes()[0]};
}

std::vector<int> Worker::nodes() const {
  return world_ ? world_->nodes() : std::vector<int>{0};
}

bool Worker::is_first_of_node() const {
  const std::vector<int> nodes = this->nodes();
  return std::ranges::find(nodes, nodes[static_cast<size_t>(rank())]) - nodes.begin() == rank();
}

PlannedRank Worker::planned_rank() const {
  return {.world_size = num_ranks(),
          .rank = rank(),
          .ranks_per_node = ranks_per_node_,
          .num_threads = pool_.num_threads(),
          .device = device_->kind()};
}

void Worker::note_precision(const Settings& settings, Console& console) const {
  std::string device = "the CPU";
  if (device_->kind() == DeviceKind::cuda) {
    device = cuda_info().devices[static_cast<size_t>(cuda_ordinal_of_rank(world_ ? world_->local_rank() : 0))].name;
  }
  const std::string reason =
      settings.precision_reason.empty() ? "" : fmt::format(" (--precision {})", settings.precision_reason);
  console.note(fmt::format("Computing in {} on {}{}", std::get<std::string>(find_setting("precision")->get(settings)),
                           device, reason));
}

void Worker::note_device(const Settings& settings, Console& console) const {
  if (settings.device == Settings::DeviceChoice::automatic) {
    const std::string note = note_of_no_gpu(cuda_info(), [](const char* name) { return std::getenv(name); });
    if (!note.empty()) console.note(note);
  }
  const std::string newest = usable_instruction_sets().back(), chosen = name_of_chosen_instruction_set();
  if (settings.instruction_set == Settings::InstructionSet::automatic && chosen != newest) {
    console.note(
        fmt::format("The processors of some ranks lack {}, so CPU kernels use {} on all ranks", newest, chosen));
  }
  const DType dtype = engine_options(settings).dtype;
  if (device_->kind() != DeviceKind::cpu || size_of(dtype) != 2) return;
  console.note(std::string("The CPU emulates ") + name_of(dtype) +
               ": it computes in fp32 and rounds the results. This is slower than --precision fp32");
}

void Worker::note_unpinned(Console& console) const {
  const std::string reason = reason_of_unpinned(*host_);
  if (reason.empty()) return;
  console.note(
      fmt::format("warning: a part of the host memory is not pinned, so copies to and from the GPU are slower: "
                  "{}. Use --no-pin-memory to pin nothing",
                  reason));
}

void Worker::enter(Phase phase) {
  device_->ledger().enter(phase);
  host_->ledger().enter(phase);
  if (world_) world_->enter_phase(name_of(phase));
}

}  // namespace tessera
