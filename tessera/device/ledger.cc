#include "tessera/device/ledger.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

const char* name_of(Category category) {
  constexpr const char* names[kNumCategories] = {"parameters",    "master",      "gradients", "optimizer",
                                                 "gathered",      "activations", "kv_cache",  "batch",
                                                 "communication", "staging",     "workspace", "context"};
  return names[static_cast<size_t>(category)];
}

const char* name_of(Phase phase) {
  constexpr const char* names[kNumPhases] = {"load", "step", "evaluation", "save", "resume"};
  return names[static_cast<size_t>(phase)];
}

void Ledger::add(Category category, int64_t bytes) {
  current_[index(category)].add(bytes);
  total_.add(bytes);
  raise();
}

void Ledger::remove(Category category, int64_t bytes) {
  current_[index(category)].add(-bytes);
  total_.add(-bytes);
  TESSERA_ASSERT(current_[index(category)] >= 0);
}

void Ledger::enter(Phase phase) {
  phase_ = static_cast<int64_t>(phase);
  raise();
}

void Ledger::raise() {
  Peaks& peaks = peaks_[index(phase())];
  for (size_t c = 0; c < kNumCategories; ++c)
    peaks.by_category[c] = std::max<int64_t>(peaks.by_category[c], current_[c]);
  peaks.total = std::max<int64_t>(peaks.total, total_);
}

int64_t Ledger::peak_total() const {
  int64_t peak = 0;
  for (const Peaks& phase : peaks_) peak = std::max(peak, phase.total);
  return peak;
}

}  // namespace tessera
