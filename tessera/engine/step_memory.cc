#include "tessera/engine/step_memory.h"

#include <optional>

#include "tessera/device/counting/timeline.h"

namespace tessera {
namespace {

StepMemory::Bytes booked_in(const Ledger& ledger) {
  StepMemory::Bytes bytes;
  for (int c = 0; c < kNumCategories; ++c) bytes[static_cast<size_t>(c)] = ledger.current(Category(c));
  return bytes;
}

}  // namespace

StepMemory step_memory(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work,
                       const PlannedRank& rank, const HeldBeside& beside, const Machine* machine) {
  std::optional<Timeline> timeline;
  if (machine) timeline.emplace(*machine, rank.ranks_per_node);
  Timeline* const time = timeline ? &*timeline : nullptr;
  const auto device = make_counting_device({rank.device, rank.num_threads, time}),
             host = make_counting_device({DeviceKind::cpu, rank.num_threads, time});
  const auto world = make_counting_communicator(*device, rank.rank, rank.world_size);
  Engine engine({*device, *host, *world, rank.ranks_per_node}, config, options);
  engine.prepare(work);
  const std::shared_ptr<void> held = beside ? beside(engine, *world) : nullptr;

  StepMemory memory;
  memory.timed = machine != nullptr;
  memory.micro_batches = std::min<int64_t>(work.micro_batches, 2);
  WorkBounds training;
  training.training = work.training;
  const auto step = [&] { engine.rehearse(training, memory.micro_batches); };
  constexpr int kSettle = 4;  // late moments adapt to the times of earlier steps
  for (int i = 0; i < kSettle; ++i) step();

  // The watched step ends when the next one begins its forward. So two steps run, and the second one is cut off.
  int64_t stack_bytes = 0;
  double begin = 0;
  bool ended = false;
  const auto now = [&] {
    return time ? device->compute_stream().clock() - begin : static_cast<double>(memory.points.size());
  };
  const auto add_point = [&] {
    memory.points.push_back({now(), booked_in(device->ledger()), booked_in(host->ledger()), stack_bytes});
  };
  engine.watch({.on_part =
                    [&](StepPart part) {
                      if (part == StepPart::forward && !memory.parts.empty() &&
                          memory.parts.back().part == StepPart::update) {
                        if (!ended) memory.end = now();
                        ended = true;
                      }
                      if (ended) return;
                      if (memory.parts.empty()) {
                        if (time) begin = device->compute_stream().clock();
                        memory.points.clear();
                        add_point();
                      }
                      memory.parts.push_back({now(), part});
                    },
                .on_stack =
                    [&](int64_t height_bytes) {
                      stack_bytes = height_bytes;
                      if (!ended) add_point();
                    }});
  step();
  step();
  device->compute_stream().synchronize();
  engine.watch({});
  return memory;
}

}  // namespace tessera
