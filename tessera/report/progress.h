// How far a loop over steps has come: a bar at the bottom of a terminal, elsewhere a line now and then.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/report/console.h"

namespace tessera {

double steady_seconds();  // since some moment, never going back

struct ProgressOptions {
  std::string description;  // "Training"
  int64_t first_step = 0;   // steps done before this run
  int64_t total_steps = 0;  // with those
  std::string unit = "samples";
  double every_s = 30;  // where there is no bar: a line when so many seconds have gone by without one
  std::function<double()> now_s = steady_seconds;
};

// What there is to show at a moment.
struct ProgressState {
  std::string description = {};
  int64_t step = 0, total_steps = 0;
  std::optional<double> loss = {};
  std::optional<double> units_per_s = {};
  std::string unit = {};
  std::optional<double> left_s = {};  // time to the end, as far as can be told
};

// The bar as a line of at most `columns` columns; it shrinks, then leaves out the bar, the rate, the time left, the
// loss and the description in this order until it fits.
//   Training  37% ━━━━━━━━━╸────────────────   370/1000  loss 4.895  73.2 samples/s  1:23 left
std::string render_bar(const ProgressState& state, const Terminal& terminal, int columns);
// The same as a line for a log file:
//   Training 370/1000 (37%), loss 4.895, 73.2 samples/s, 1:23 left
std::string render_progress_line(const ProgressState& state);

class Progress {
 public:
  Progress(Console& console, ProgressOptions options);  // shows the bar at once; the console must live longer
  ~Progress();                                          // takes away a bar that has not finished
  Progress(const Progress&) = delete;

  // After a step: `step` steps are done in all, `num_units` samples in those since the last call; the last loss given
  // stays on the screen. A bar is redrawn ten times a second at most.
  void update(int64_t step, int64_t num_units, std::optional<double> loss = {});

  // Around work that is no step of this loop (an evaluation, a checkpoint): it does not count as time, and the status
  // line is free for another Progress meanwhile.
  void pause();
  void resume();

  // Leaves a closing line with the mean rate and the time it took:
  //   Training 1000/1000, loss 2.345, 73.2 samples/s, in 1:23
  void finish();

 private:
  ProgressState state_now() const;
  void show(double now_s);

  Console& console_;
  const ProgressOptions options_;
  int64_t step_;
  std::optional<double> loss_;
  bool finished_ = false;

  double last_update_s_;  // or the end of the last pause
  double last_shown_s_;
  // All so far, and the same with a weight that halves every kHalfLife seconds: their ratios are the mean rates and the
  // smoothed ones, with no bias from the start.
  struct Sums {
    double seconds = 0, steps = 0, units = 0;
  };
  Sums all_, recent_;
};

}  // namespace tessera
