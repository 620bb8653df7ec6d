#include "tessera/comm/nettest/net_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/clock.h"
#include "tessera/base/host_resources.h"
#include "tessera/comm/nettest/pair_schedule.h"
#include "tessera/comm/nettest/pattern.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

constexpr const char* kWhat = "the network test";

// A collective with a message of one size: holds the views of its arrays, makes the call and checks the result.
class Trial {
 public:
  Trial(Communicator& group, Device& device, Buffer& buffer, const NetTest& test)
      : group_(group),
        device_(device),
        collective_(test.collective),
        message_(message_of(test.collective, test.bytes, size_of(test.dtype), group.size())),
        pattern_(test.dtype, group.size(), test.seed),
        full_(buffer.view({message_.num_elems}, test.dtype)),
        shard_(full_.rows(group.rank() * shard_elems(), (group.rank() + 1) * shard_elems())),
        stream_(device.make_stream()) {}

  const NetMessage& message() const { return message_; }

  void call() {
    switch (collective_) {
      case NetCollective::all_reduce:
        return group_.all_reduce(full_, *stream_, kWhat);
      case NetCollective::all_gather:
        return group_.all_gather(shard_, full_, *stream_, kWhat);
      case NetCollective::reduce_scatter:
        return group_.reduce_scatter(full_, shard_, *stream_, kWhat);
      case NetCollective::broadcast:
        return group_.broadcast(full_, kRoot, *stream_, kWhat);
    }
  }
  void wait() { stream_->synchronize(); }

  // Fills the array, makes one call and counts the wrong elements of this rank.
  int64_t check() {
    fill();
    group_.barrier(kWhat);
    call();
    wait();
    const int64_t wrong = wrong_elems();
    group_.barrier(kWhat);
    return wrong;
  }

 private:
  static constexpr int kRoot = 0;
  static constexpr int64_t kPiece = 128 * NetPattern::kPeriod;  // elements copied at a time

  int64_t shard_elems() const { return message_.num_elems / group_.size(); }
  size_t element_bytes() const { return size_of(full_.dtype); }

  void write(int64_t begin, int64_t end, const std::vector<std::byte>& period) {
    std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, end - begin)) * element_bytes());
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      write_pattern(piece.data(), at, count, element_bytes(), period);
      device_.copy_from_host(piece.data(), full_.rows(at, at + count));
    }
  }
  int64_t wrong_in(int64_t begin, int64_t end, const std::vector<std::byte>& period) {
    std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, end - begin)) * element_bytes());
    int64_t wrong = 0;
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t count = std::min(kPiece, end - at);
      device_.copy_to_host(full_.rows(at, at + count), piece.data());
      wrong += count_wrong(piece.data(), at, count, element_bytes(), period);
    }
    return wrong;
  }

  // Writes the input. Elements that all_gather or broadcast must get from other ranks are NaN before the call.
  void fill() {
    const int64_t all = message_.num_elems, shard = shard_elems();
    const int rank = group_.rank();
    const std::vector<std::byte> nan(static_cast<size_t>(NetPattern::kPeriod) * element_bytes(), std::byte{0xff});
    switch (collective_) {
      case NetCollective::all_reduce:
      case NetCollective::reduce_scatter:
        return write(0, all, pattern_.terms(rank));
      case NetCollective::all_gather:
        write(0, all, nan);
        return write(rank * shard, (rank + 1) * shard, pattern_.sent(rank));
      case NetCollective::broadcast:
        return write(0, all, rank == kRoot ? pattern_.sent(rank) : nan);
    }
  }
  int64_t wrong_elems() {
    const int64_t all = message_.num_elems, shard = shard_elems();
    int64_t wrong = 0;
    switch (collective_) {
      case NetCollective::all_reduce:
        return wrong_in(0, all, pattern_.sums());
      case NetCollective::reduce_scatter:
        return wrong_in(group_.rank() * shard, (group_.rank() + 1) * shard, pattern_.sums());
      case NetCollective::all_gather:
        for (int owner = 0; owner < group_.size(); ++owner) {
          wrong += wrong_in(owner * shard, (owner + 1) * shard, pattern_.sent(owner));
        }
        return wrong;
      case NetCollective::broadcast:
        return wrong_in(0, all, pattern_.sent(kRoot));
    }
    return wrong;
  }

  Communicator& group_;
  Device& device_;
  const NetCollective collective_;
  const NetMessage message_;
  const NetPattern pattern_;
  const View full_, shard_;
  const std::unique_ptr<Stream> stream_;
};

// Returns the seconds of one call: the mean over the iterations and the ranks.
double measure(Communicator& group, Trial& trial, int64_t iterations) {
  group.barrier(kWhat);
  const double begin = steady_seconds();
  for (int64_t i = 0; i < iterations; ++i) trial.call();
  trial.wait();
  const double mine = (steady_seconds() - begin) / static_cast<double>(std::max<int64_t>(iterations, 1));
  return group.sum({mine}, kWhat)[0] / group.size();
}

}  // namespace

int64_t net_buffer_bytes(const NetTest& test, int num_ranks) {
  return message_of(test.collective, test.bytes, size_of(test.dtype), num_ranks).bytes;
}

NetResult run_net_test(Communicator& group, Device& device, Buffer& buffer, const NetTest& test) {
  TESSERA_ASSERT(buffer.bytes() >= net_buffer_bytes(test, group.size()));
  Trial trial(group, device, buffer, test);
  NetResult result{.collective = test.collective, .message = trial.message(), .iterations = test.iterations};
  int64_t wrong = trial.check(), warmup = test.warmup;
  if (test.longest_s > 0) {
    const double once = measure(group, trial, 1);  // the same on all ranks, like all values derived from it
    const auto affordable = static_cast<int64_t>(std::min(1e9, test.longest_s / std::max(once, 1e-9)));
    result.iterations = std::clamp<int64_t>(affordable * 4 / 5, 1, test.iterations);
    warmup = std::clamp<int64_t>(affordable / 5, 0, test.warmup);
  }
  measure(group, trial, warmup);
  result.seconds = measure(group, trial, result.iterations);
  wrong += trial.check();
  result.wrong = static_cast<int64_t>(std::llround(group.sum({static_cast<double>(wrong)}, kWhat)[0]));
  result.algbw = algorithm_bandwidth(result.message.bytes, result.seconds);
  result.busbw = result.algbw * bus_factor(test.collective, group.size());
  return result;
}

double average_busbw(const std::vector<NetResult>& results) {
  double sum = 0;
  for (const NetResult& result : results) sum += result.busbw;
  return results.empty() ? 0 : sum / static_cast<double>(results.size());
}

std::vector<NetPairResult> run_pair_tests(Communicator& world, Device& device, Buffer& buffer, const NetTest& test,
                                          const std::vector<int>& units) {
  using Json = nlohmann::json;
  const int num_units = units.empty() ? 0 : *std::max_element(units.begin(), units.end()) + 1;
  const int mine = units[static_cast<size_t>(world.rank())];
  std::vector<NetPairResult> results;
  for (const std::vector<Pair>& round : pair_rounds(num_units)) {
    int color = static_cast<int>(round.size());  // for a unit that has no partner in this round
    Pair pair{mine, mine};
    for (size_t i = 0; i < round.size(); ++i) {
      if (round[i].first == mine || round[i].second == mine) color = static_cast<int>(i), pair = round[i];
    }
    int rank = 0, size = 0;
    for (int r = 0; r < world.size(); ++r) {
      const int unit = units[static_cast<size_t>(r)];
      const bool is_member = unit == pair.first || unit == pair.second;
      rank += is_member && r < world.rank();
      size += is_member;
    }
    const std::unique_ptr<Communicator> group = world.split(color, rank, size);
    std::string text;
    if (pair.first != pair.second) {
      const NetResult result = run_net_test(*group, device, buffer, test);
      const Json values = {pair.first,           pair.second,    result.message.num_elems,
                           result.message.count, result.seconds, result.iterations,
                           result.algbw,         result.busbw,   result.wrong};
      if (rank == 0) text = values.dump();
    }
    for (const std::string& line : world.all_gather_text(text, kWhat)) {
      if (line.empty()) continue;
      const Json values = Json::parse(line);
      NetResult result;
      result.collective = test.collective;
      result.message = {values[2], values[3], values[2].get<int64_t>() * static_cast<int64_t>(size_of(test.dtype))};
      result.seconds = values[4];
      result.iterations = values[5];
      result.algbw = values[6];
      result.busbw = values[7];
      result.wrong = values[8];
      results.push_back({values[0], values[1], result});
    }
  }
  std::sort(results.begin(), results.end(), [](const NetPairResult& a, const NetPairResult& b) {
    return Pair(a.first, a.second) < Pair(b.first, b.second);
  });
  return results;
}

SlowUnit slowest_unit(const std::vector<NetPairResult>& results) {
  TESSERA_ASSERT(!results.empty());
  // For each unit: the sum of the busbw of its pairs, and the number of its pairs.
  std::map<int, std::pair<double, int>> sums;
  for (const NetPairResult& pair : results) {
    for (const int unit : {pair.first, pair.second}) {
      sums[unit].first += pair.result.busbw;
      ++sums[unit].second;
    }
  }
  std::optional<SlowUnit> slowest;
  for (const auto& [unit, sum] : sums) {
    const double mean = sum.first / sum.second;
    if (!slowest || mean < slowest->mean_busbw) slowest = SlowUnit{unit, mean};
  }
  return *slowest;
}

int64_t free_bytes_for_buffers(Device& device, int local_ranks) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  if (device.kind() == DeviceKind::cuda) {
    constexpr int64_t kNccl = int64_t{900} << 20;  // for NCCL's kernels and one group's buffers (NcclMemory)
    return std::max<int64_t>(0, cuda_memory_of(device).usable_bytes - kNccl);
  }
  int64_t bytes = usable_memory_bytes().value_or(kUnknown);
  if (const auto available = meminfo_bytes("MemAvailable")) bytes = std::min(bytes, *available);
  return bytes == kUnknown ? kUnknown : bytes / std::max(local_ranks, 1);
}

}  // namespace tessera
