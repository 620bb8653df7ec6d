#include "tessera/app/preflight.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/app/net_report.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/log/console.h"

namespace tessera {

LeastMemory least_memory(Worker& worker) {
  const int64_t mine = free_bytes_for_buffers(worker.device(), worker.local_ranks().count);
  LeastMemory least;
  const auto all = worker.world().all_gather_text(std::to_string(mine), "memory for messages");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int64_t bytes = std::stoll(all[rank]);
    if (rank == 0 || bytes < least.bytes) least = {bytes, static_cast<int>(rank)};
  }
  return least;
}

int64_t fitting_size(int64_t bytes, int64_t memory_bytes) {
  while (bytes > memory_bytes && bytes > 1024) bytes /= 2;
  return bytes;
}

namespace {

NetResult measure(const Settings& settings, World* world) {
  Worker worker(settings, world);
  const bool on_gpus = worker.device().kind() == DeviceKind::cuda;
  // A message has at most a quarter of the bytes that are free on the rank with the least free memory. This check must
  // not run out of memory if the run itself fits.
  const int64_t bytes = fitting_size(on_gpus ? int64_t{1} << 30 : int64_t{16} << 20, least_memory(worker).bytes / 4);
  const NetTest test{
      .bytes = bytes, .warmup = 5, .iterations = 20, .seed = static_cast<uint64_t>(settings.seed), .longest_s = 3};
  Buffer buffer = worker.device().allocate(net_buffer_bytes(test, worker.num_ranks()), Category::communication);
  return run_net_test(worker.world(), worker.device(), buffer, test);
}

}  // namespace

Record run_preflight(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  if (settings.preflight == Settings::Preflight::none) return nullptr;
  Record record{{"check", "nettest"}};
  if (!invocation.world || invocation.world->size() == 1) {
    record["skipped"] = "there is one rank";
    return record;
  }
  invocation.world->enter_phase("preflight");
  NetResult result;
  run_among_ranks(invocation, [&] {
    result = measure(settings, invocation.world);
    return 0;
  });
  record.update(net_record(result));
  record["min_busbw"] = settings.preflight_min_busbw;
  if (invocation.world->rank() == 0) {
    Console::of_process({}, Console::LostOutput::is_noted)
        .note(fmt::format("Preflight: all_reduce of {} among {}: bus bandwidth {:.4g} GB/s, {}",
                          format_bytes(result.message.bytes), counted(invocation.world->size(), "rank"), result.busbw,
                          counted(result.wrong, "wrong element")));
  }
  const NetVerdict verdict =
      verdict_of(result.busbw, result.wrong, settings.preflight_min_busbw, "--preflight-min-busbw");
  if (verdict.code == ExitCode::kDone) return record;
  throw CommunicationError(option_place("preflight") + " nettest", verdict.error, verdict.remedy);
}

}  // namespace tessera
