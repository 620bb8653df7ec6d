// Measures how fast Tessera writes and reads checkpoints, and how fast dd writes and reads a file on the same disk.
// Checkpoints and dd take turns, because the speed of a disk varies over time:
//   store_bench FOLDER [GIB]
// A write ends when all bytes are on the disk. "dd read" and "verify" read files that were dropped from the page cache.
// "verify" opens a checkpoint, which reads and checks every byte. "read" then copies the arrays from this checkpoint.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/store/checkpoint.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 3;
constexpr int64_t kArrayElems = int64_t{12} << 20;  // the weights of a transformer block with 1024 channels

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run_dd(const std::string& words) {
  if (std::system(("dd bs=16M status=none " + words).c_str()) != 0) throw RunError("dd", "failed");
}

void forget(const fs::path& path) {
  const File file = File::open_to_read(path);
  posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
}

void measure(const fs::path& folder, int64_t gib) {
  ThreadPool pool;
  const auto world = make_self_communicator();
  std::vector<float> values(kArrayElems);
  for (size_t i = 0; i < values.size(); i += 4) {
    const auto words = philox(1, i, 0);
    for (size_t k = 0; k < 4; ++k) values[i + k] = static_cast<float>(words[k]);
  }
  const View array = view_of(values.data(), {kArrayElems});
  const int64_t num_arrays = (gib << 30) / array.bytes();
  const double gigabytes = static_cast<double>(num_arrays * array.bytes()) * 1e-9;
  const auto range = [](int64_t i) { return ArrayRange{fmt::format("a{}", i), kArrayElems, 0, kArrayElems}; };
  const auto write_part = [&](CheckpointPart& part) {
    for (int64_t i = 0; i < num_arrays; ++i) part.declare(range(i), DType::f32);
    for (int64_t i = 0; i < num_arrays; ++i) part.write(range(i).name, array);
  };

  const std::string plain = folder / "dd.bin";
  std::map<std::string, std::vector<double>> rates;
  const auto add = [&](const char* name, const std::function<void()>& work) {
    rates[name].push_back(gigabytes / seconds_of(work));
    fmt::print("{:<18} {:6.2f} GB/s\n", name, rates[name].back());
  };
  for (int round = 0; round < kRounds; ++round) {
    const int64_t blocks = num_arrays * array.bytes() >> 24;
    add("dd write", [&] { run_dd(fmt::format("if=/dev/zero of={} count={} conv=fsync", plain, blocks)); });
    add("checkpoint write", [&] { write_checkpoint(folder, 0, *world, write_part, &pool); });
    const fs::path checkpoint_path = checkpoint_folder(folder, 0);
    forget(plain);
    add("dd read", [&] { run_dd(fmt::format("if={} of=/dev/null", plain)); });
    for (const auto& entry : fs::directory_iterator(checkpoint_path)) forget(entry.path());
    std::optional<Checkpoint> checkpoint;
    add("verify", [&] { checkpoint = Checkpoint::open_verified(checkpoint_path, &pool); });
    add("read", [&] {
      for (int64_t i = 0; i < num_arrays; ++i) checkpoint->read_range(range(i), array, &pool);
    });
    fs::remove(plain);
    fs::remove_all(checkpoint_path);
  }
  const auto median = [&](const char* name) {
    auto& values_of_name = rates[name];
    std::sort(values_of_name.begin(), values_of_name.end());
    return values_of_name[kRounds / 2];
  };
  fmt::print(
      "{:.1f} GB, {} threads, medians: write {:.2f} GB/s, dd {:.2f} (ratio {:.2f}); verify {:.2f} GB/s, dd {:.2f} "
      "(ratio {:.2f}); then read {:.2f} GB/s\n",
      gigabytes, pool.num_threads(), median("checkpoint write"), median("dd write"),
      median("checkpoint write") / median("dd write"), median("verify"), median("dd read"),
      median("verify") / median("dd read"), median("read"));
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: store_bench FOLDER [GIB]\n");
    return 2;
  }
  tessera::measure(argv[1], argc > 2 ? std::atoll(argv[2]) : 3);
}
