// Records every byte that a device holds, by category and phase. Both the plan of a run and the run itself use this
// class, so their numbers can be compared.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera {

enum class Category : uint8_t {
  parameters,     // the part of the parameters that this rank keeps, in the type of the computation
  master,         // the rests (base/dtype.h) that the optimizer joins with 16-bit parameters to get f32 parameters;
                  // also the optimizer's own copy of the parameters, if the optimizer and the parameters above are
                  // on different tiers (device, host or file)
  gradients,      // gradients, summed over the micro-batches of a step
  optimizer,      // AdamW's moments
  gathered,       // complete units (such as blocks): their parameters while the computation needs them, and their
                  // gradients before the reduction
  activations,    // the stack (stack.h): activations, their gradients, and scratch of the model's head and operators
  kv_cache,       // keys and values during generation
  batch,          // token ids, targets and similar arrays
  communication,  // scratch of collectives, and gradients in the type of the reduction
  staging,        // buffers for transfers between tiers, for loading and for saving
  workspace,      // fixed scratch of the kernels, and small arrays: constants of the model, sums
  context,        // memory of a GPU's driver, libraries and NCCL groups, as fixed estimates
};
inline constexpr int kNumCategories = 12;
const char* name_of(Category);

// What a run does now. The ledger keeps separate peaks for each phase.
enum class Phase : uint8_t { load, step, evaluation, save, resume };
inline constexpr int kNumPhases = 5;
const char* name_of(Phase);

template <typename Visit>
void for_each_phase(Visit&& visit) {
  for (int p = 0; p < kNumPhases; ++p) visit(static_cast<Phase>(p));
}

// A number that one thread changes and other threads may read at any time.
class WatchedNumber {
 public:
  WatchedNumber(int64_t value = 0) : value_(value) {}  // NOLINT: converts implicitly, as a number does
  WatchedNumber(const WatchedNumber& other) : value_(other) {}
  WatchedNumber& operator=(const WatchedNumber& other) {
    value_.store(other, std::memory_order_relaxed);
    return *this;
  }
  operator int64_t() const { return value_.load(std::memory_order_relaxed); }  // NOLINT: as above
  void add(int64_t change) { value_.store(*this + change, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_;
};

// Only one thread at a time may call add(), remove() and enter(). At the same time, other threads may call current(),
// current_total() and phase().
class Ledger {
 public:
  void add(Category category, int64_t bytes);
  void remove(Category category, int64_t bytes);
  // Starts a phase. Raises each peak of this phase to the bytes held now, if the peak is lower.
  void enter(Phase phase);

  int64_t current(Category category) const { return current_[index(category)]; }
  int64_t current_total() const { return total_; }
  Phase phase() const { return static_cast<Phase>(static_cast<int64_t>(phase_)); }
  // The most bytes that were held at the same time during a phase: peak() in one category, peak_total() in all
  // categories together. peak_total() without a phase covers all phases.
  int64_t peak(Phase phase, Category category) const { return peaks_[index(phase)].by_category[index(category)]; }
  int64_t peak_total(Phase phase) const { return peaks_[index(phase)].total; }
  int64_t peak_total() const;

 private:
  struct Peaks {
    std::array<int64_t, kNumCategories> by_category{};
    int64_t total = 0;
  };
  template <typename E>
  static size_t index(E e) {
    return static_cast<size_t>(e);
  }
  void raise();

  std::array<WatchedNumber, kNumCategories> current_{};
  WatchedNumber total_;
  std::array<Peaks, kNumPhases> peaks_{};
  WatchedNumber phase_ = static_cast<int64_t>(Phase::load);
};

}  // namespace tessera
