#include "tessera/base/instruction_sets.h"

#include <tessera_instruction_sets.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "tessera/base/conversions.h"
#include "tessera/base/error.h"

#define TESSERA_DECLARE(set) extern "C" const tessera::Conversions* tessera_conversions_##set();
TESSERA_FOR_EACH_INSTRUCTION_SET(TESSERA_DECLARE)
#undef TESSERA_DECLARE

namespace tessera {

namespace {

#define TESSERA_POINTER(set) &tessera_conversions_##set,
constexpr const Conversions* (*kBuilt[])() = {TESSERA_FOR_EACH_INSTRUCTION_SET(TESSERA_POINTER)};
#undef TESSERA_POINTER
constexpr int kNumBuilt = std::size(kBuilt);

// Whether the machine and its operating system can run code of this level. __builtin_cpu_supports() also asks whether
// the operating system saves the registers.
bool runs_here([[maybe_unused]] std::string_view level) {
#if defined(__x86_64__)
  if (level == "x86-64-v2") return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  if (level == "x86-64-v3" || level == "x86-64-v4") {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kFma = 1u << 12, kMovbe = 1u << 22, kF16c = 1u << 29, kLzcnt = 1u << 5;
    constexpr unsigned kNeeded = kFma | kMovbe | kF16c;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kNeeded) != kNeeded) return false;
    if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || (c & kLzcnt) == 0) return false;
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    if (level == "x86-64-v3") return v3;
    return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
  }
#endif
  return true;
}

int count_usable() {
  int count = 0;
  while (count < kNumBuilt && runs_here(conversions_of(count).instruction_set)) ++count;
  return count;
}

int num_usable() {
  static const int kCount = count_usable();
  return kCount;
}

std::vector<std::string> first_names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(conversions_of(i).instruction_set);
  return names;
}

std::atomic<int> chosen{-1};

}  // namespace

const Conversions& conversions_of(int position) {
  return *kBuilt[position]();
}

std::vector<std::string> built_instruction_sets() {
  return first_names(kNumBuilt);
}

std::vector<std::string> usable_instruction_sets() {
  return first_names(num_usable());
}

int chosen_instruction_set() {
  const int position = chosen.load(std::memory_order_relaxed);
  if (position >= 0) return position;
  if (num_usable() == 0) {
    throw RunError("",
                   std::string("this program needs a processor with the instructions of ") +
                       conversions_of(0).instruction_set + ", and this machine lacks some of them",
                   "Use a program that was built with -DTESSERA_MARCH=portable");
  }
  chosen.store(num_usable() - 1, std::memory_order_relaxed);
  return num_usable() - 1;
}

std::string name_of_chosen_instruction_set() {
  return conversions_of(chosen_instruction_set()).instruction_set;
}

void choose_instruction_set(int position) {
  TESSERA_ASSERT(position >= 0 && position < num_usable());
  chosen.store(position, std::memory_order_relaxed);
}

}  // namespace tessera
