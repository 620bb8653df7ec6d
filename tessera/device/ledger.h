// Records every byte that a device holds, by category and phase. Planned and real runs use the same records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera {

enum class Category : uint8_t {
  parameters,     // this rank's kept parameters, in the type of the computation
  master,         // rests of 16-bit parameters, and the optimizer's own copy if they are kept on another tier
  gradients,      // sums over a step
  optimizer,      // AdamW's moments
  gathered,       // full units while they are needed, and their gradients before the reduction
  activations,    // the stack: activations, their gradients, and the scratch of head and operators
  kv_cache,       // keys and values of generation
  batch,          // token ids, targets and similar arrays
  communication,  // scratch of collectives
  staging,        // buffers for transfers between tiers
  workspace,      // fixed scratch of the kernels
  context,        // memory of a GPU's driver and libraries, by fixed estimates
};
inline constexpr int kNumCategories = 12;
const char* name_of(Category);

// What a run does now. Peaks are kept per phase.
enum class Phase : uint8_t { load, step, evaluation, save, resume };
inline constexpr int kNumPhases = 5;
const char* name_of(Phase);

class Ledger {
 public:
  void add(Category category, int64_t bytes);
  void remove(Category category, int64_t bytes);
  void enter(Phase phase);  // peaks of the phase start from the bytes held now

  int64_t current(Category category) const { return current_[index(category)]; }
  int64_t current_total() const { return total_; }
  // Highest bytes during a phase, of one category and of all categories together.
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

  std::array<int64_t, kNumCategories> current_{};
  int64_t total_ = 0;
  std::array<Peaks, kNumPhases> peaks_{};
  Phase phase_ = Phase::load;
};

}  // namespace tessera
