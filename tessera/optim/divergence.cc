#include "tessera/optim/divergence.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

// The excess that makes a run hopeless, during the run and at its end. A loss of 8 times hopeless_above() adds 2 per
// step, and a loss of 128 times or more adds kLargestExcess.
constexpr double kHopeless = 24, kHopelessAtEnd = 6, kLargestExcess = 6;
constexpr double kExplosion = 10;  // a single loss above this multiple of hopeless_above() is no noise

}  // namespace

LossWatch::LossWatch(int64_t vocab_size)
    : uniform_loss_(std::log(static_cast<double>(std::max<int64_t>(vocab_size, 2)))) {}

void LossWatch::add(double loss) {
  constexpr double kNoiseSteps = 25;                        // the noise is a mean over about this many steps
  constexpr double kFirstNoise = 0.15, kLargestChange = 3;  // relative to a loss; relative to the noise
  const bool is_first = !state_.first;
  if (is_first) {
    state_.first = loss;
    state_.noise = kFirstNoise * std::max(uniform_loss_, loss);
  } else {
    const double change = std::abs(loss - state_.recent.back());
    state_.noise += (std::min(change, kLargestChange * state_.noise) - state_.noise) / kNoiseSteps;
  }
  state_.recent.push_back(loss);
  if (std::ssize(state_.recent) > kWindow) state_.recent.erase(state_.recent.begin());
  state_.lowest = is_first ? loss : std::min(state_.lowest, smoothed());
  // At twice hopeless_above(), the excess does not change. It grows with the logarithm of the loss, so one enormous
  // loss counts like a few large ones.
  const double excess = std::log2(std::max(loss, 1e-9) / hopeless_above()) - 1;
  state_.excess = std::clamp(state_.excess + std::min(excess, kLargestExcess), 0.0, kHopeless);
}

double LossWatch::smoothed() const {
  std::vector<double> losses = state_.recent;
  const auto middle = losses.begin() + std::ssize(losses) / 2;
  std::nth_element(losses.begin(), middle, losses.end());
  return *middle;
}

// The smoothed loss of a sound run is below this limit: above its lowest value by less than one nat, a quarter, half of
// the distance to ln(vocabulary), and 4 times the noise, whichever is largest. The median of few losses is noisier.
double LossWatch::usual_limit() const {
  const double lowest = state_.lowest;
  const double noise =
      4 * state_.noise * std::sqrt(static_cast<double>(kWindow) / static_cast<double>(state_.recent.size()));
  return lowest + std::max({1.0, lowest / 4, (uniform_loss_ - lowest) / 2, noise});
}

// ln(vocabulary), or the first loss of a run that started above it and has not come below it yet.
double LossWatch::hopeless_above() const {
  return state_.lowest < uniform_loss_ ? uniform_loss_ : std::max(uniform_loss_, *state_.first);
}

LossWatch::Verdict LossWatch::verdict() const {
  if (!state_.first) return Verdict::usual;
  if (state_.excess >= kHopeless) return Verdict::hopeless;
  const double last = state_.recent.back();
  if (smoothed() > usual_limit() || last > kExplosion * hopeless_above()) return Verdict::diverges;
  return state_.excess > 0 || last > usual_limit() ? Verdict::in_doubt : Verdict::usual;
}

LossWatch::Verdict LossWatch::verdict_at_end(std::optional<double> evaluated) const {
  if (!state_.first) return Verdict::usual;
  const auto is_above = [&](double loss) { return loss > 2 * hopeless_above(); };
  const auto is_hopeless = [&](const State& state) {
    return state.excess >= kHopelessAtEnd && is_above(state.recent.back());
  };
  if (is_hopeless(state_)) return Verdict::hopeless;
  if (!evaluated || !is_above(*evaluated)) return std::min(verdict(), Verdict::diverges);
  LossWatch end = *this;
  for (int i = 0; i < 2; ++i) end.add(*evaluated);
  return is_hopeless(end.state_) ? Verdict::hopeless : Verdict::diverges;
}

}  // namespace tessera
