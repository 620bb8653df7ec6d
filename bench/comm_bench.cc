// Measures the bandwidth of collectives and of memory: mpirun -n 2 --bind-to none comm_bench [MIB]
// It measures arrays of MIB (default: 256) MiB, 4 MiB and 64 KiB. With the environment variable TRANSPORT=messages, the
// ranks send messages. Otherwise, each rank reads the memory of the other ranks.
//
// GB/s counts the bytes that a rank receives. For R ranks, all_gather and reduce_scatter receive (R−1)/R of the full
// array. all_reduce receives twice as many bytes, and broadcast receives the full array. Collectives cannot be faster
// than memory, because each rank must at least write the bytes that it receives. memcpy shows the speed of memory. It
// runs on all ranks at the same time, because the ranks of a node share the bandwidth of its memory.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tessera/comm/world.h"

extern char** environ;

namespace tessera {
namespace {

// The shortest of five times, in seconds. Each time is that of the slowest rank.
template <typename Work>
double best_seconds(Communicator& communicator, const Work& work) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    communicator.barrier("measurement");
    const auto begin = std::chrono::steady_clock::now();
    work();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    double slowest = 0;
    for (const auto& text : communicator.all_gather_text(fmt::format("{}", seconds), "measurement")) {
      slowest = std::max(slowest, std::stod(text));
    }
    best = std::min(best, slowest);
  }
  return best;
}

void measure(World& world, Communicator& communicator, Device& device, int64_t bytes, const char* transport) {
  const int64_t elems = bytes / 4 / communicator.size() * communicator.size();
  const Buffer full_buffer = device.allocate(elems * 4, Category::workspace);
  const Buffer shard_buffer = device.allocate(elems * 4 / communicator.size(), Category::workspace);
  const View full = full_buffer.view({elems}, DType::f32);
  const View shard = shard_buffer.view({elems / communicator.size()}, DType::f32);
  std::memset(full.data, 0, static_cast<size_t>(full.bytes()));
  std::memset(shard.data, 0, static_cast<size_t>(shard.bytes()));
  const View own = full.rows(shard.num_elems() * communicator.rank(), shard.num_elems() * (communicator.rank() + 1));
  Stream& stream = device.compute_stream();
  const double received = static_cast<double>(shard.bytes()) * (communicator.size() - 1);
  const auto show = [&](const char* name, double moved, double seconds) {
    if (world.rank() > 0) return;
    fmt::print("{:<10} {:<24} {:>8} KiB  {:8.3f} ms  {:6.2f} GB/s\n", transport, name, full.bytes() >> 10,
               seconds * 1e3, moved / seconds * 1e-9);
  };
  show("memcpy of half", static_cast<double>(full.bytes() / 2), best_seconds(communicator, [&] {
         std::memcpy(full.data, full.data + full.bytes() / 2, static_cast<size_t>(full.bytes() / 2));
       }));
  show("all_gather", received, best_seconds(communicator, [&] { communicator.all_gather(own, full, stream, "b"); }));
  show("reduce_scatter", received,
       best_seconds(communicator, [&] { communicator.reduce_scatter(full, shard, stream, "b"); }));
  show("all_reduce", 2 * received, best_seconds(communicator, [&] { communicator.all_reduce(full, stream, "b"); }));
  show("broadcast", static_cast<double>(full.bytes()),
       best_seconds(communicator, [&] { communicator.broadcast(full, 0, stream, "b"); }));
  show("barrier", 0, best_seconds(communicator, [&] { communicator.barrier("b"); }));
}

int run(int64_t mib) {
  const auto ranks = detect_ranks(environment_of_process());
  const Transport transport = std::getenv("TRANSPORT") && std::string(std::getenv("TRANSPORT")) == "messages"
                                  ? Transport::messages
                                  : Transport::direct;
  const auto world = make_world(ranks, {.timeout_s = 60, .transport = transport});
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  const auto communicator = world->make_communicator(*device);
  const char* name = transport == Transport::direct ? "direct" : "messages";
  for (const int64_t bytes : {mib << 20, int64_t{4} << 20, int64_t{64} << 10}) {
    measure(*world, *communicator, *device, bytes, name);
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  return tessera::run(argc > 1 ? std::atoll(argv[1]) : 256);
}
