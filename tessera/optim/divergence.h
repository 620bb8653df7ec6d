// Detects that training diverges while the loss is still finite. The rules are in docs/outputs.md.
//
// The smoothed loss is the median of the last kWindow losses: single spikes do not move it. A run is compared with its
// own lowest smoothed loss, and with ln(vocabulary), the loss of a model that gives all tokens the same probability.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tessera {

class LossWatch {
 public:
  static constexpr int64_t kWindow = 15;

  enum class Verdict {
    usual,     // no reason for doubt
    in_doubt,  // the last losses are high: this may be noise, or the start of a divergence
    diverges,  // the smoothed loss is far above its lowest value, or the last loss has exploded
    hopeless,  // for many steps, the loss was far above the start of the run and ln(vocabulary)
  };

  // The state, which checkpoints contain.
  struct State {
    std::optional<double> first;  // the first loss
    double lowest = 0;            // lowest smoothed loss; only valid with `first`
    double noise = 0;             // mean difference between consecutive losses, without large differences
    double excess = 0;            // how long and how far the loss is above hopeless_above()
    std::vector<double> recent;   // the last losses, at most kWindow, oldest first
    bool operator==(const State&) const = default;
  };

  explicit LossWatch(int64_t vocab_size);

  // Adds the finite loss of a step.
  void add(double loss);
  Verdict verdict() const;
  // The verdict on a run that ends now: at the end, two very large losses suffice for `hopeless`. `evaluated`: the loss
  // of an evaluation of the last parameters, if there is one. It is a mean over many samples, so it is no noise, and
  // counts like the losses of two steps.
  Verdict verdict_at_end(std::optional<double> evaluated = std::nullopt) const;
  double smoothed() const;  // needs a loss, like is_lowest()
  // Whether the smoothed loss is the lowest so far.
  bool is_lowest() const { return smoothed() <= state_.lowest; }
  const State& state() const { return state_; }
  void restore(State state) { state_ = std::move(state); }

 private:
  double usual_limit() const;
  double hopeless_above() const;

  double uniform_loss_;  // ln(vocabulary)
  State state_;
};

}  // namespace tessera
