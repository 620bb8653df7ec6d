// Prints the memory that a training run needs, before it starts.
//
//     plan recipes/quickstart/model
#include <cstdio>

#include <tessera/tessera.h>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: plan MODEL\n");
    return 2;
  }
  try {
    const tessera::Plan plan =
        tessera::plan({{"model", argv[1]}, {"batch-size", 8}, {"max-length", 256}, {"device", "cpu"}, {"threads", 2}});
    std::printf("%lld bytes at most\n", static_cast<long long>(plan.peak_bytes));
    for (const tessera::PlannedBytes& bytes : plan.bytes) {
      if (bytes.phase != "step" || bytes.device_bytes == 0) continue;
      std::printf("  %-12s %lld\n", bytes.category.c_str(), static_cast<long long>(bytes.device_bytes));
    }
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", tessera::name_of(error.kind()), error.what());
    return 1;
  }
}
