// Progress of a loop over steps: a bar at the bottom of a terminal, or a line from time to time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/report/console.h"

namespace tessera {

double steady_seconds();  // monotonic; since an unspecified moment

struct ProgressOptions {
  std::string description;  // "Training"
  int64_t first_step = 0;   // steps done before this run
  int64_t total_steps = 0;  // including first_step
  std::string unit = "samples";
  double every_s = 30;  // without a bar: maximum time between two lines
  std::function<double()> now_s = steady_seconds;
};

// The values to show at one moment.
struct ProgressState {
  std::string description = {};
  int64_t step = 0, total_steps = 0;
  std::optional<double> loss = {};
  std::optional<double> units_per_s = {};
  std::string unit = {};
  std::optional<double> left_s = {};  // estimated time to the end
};

// The bar as a line of at most `columns` columns. To fit, it shrinks. Then it drops the bar, the rate, the time left,
// the loss and the description, in this order.
//   Training  37% ━━━━━━━━━╸────────────────   370/1000  loss 4.895  73.2 samples/s  1:23 left
std::string render_bar(const ProgressState& state, const Terminal& terminal, int columns);
// The same as a line for a log file:
//   Training 370/1000 (37%), loss 4.895, 73.2 samples/s, 1:23 left
std::string render_progress_line(const ProgressState& state);

class Progress {
 public:
  Progress(Console& console, ProgressOptions options);  // shows the bar immediately; the console must outlive it
  ~Progress();                                          // removes an unfinished bar
  Progress(const Progress&) = delete;

  // Call it after a step: `step` steps are done in total, with `num_units` samples since the last call. The last given
  // loss stays on the screen. A bar is redrawn at most ten times per second.
  void update(int64_t step, int64_t num_units, std::optional<double> loss = {});

  // Call these around other work (an evaluation, a checkpoint). Its time does not count, and another Progress may use
  // the status line.
  void pause();
  void resume();

  // Prints a final line with the mean rate and the total time:
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
  // Sums of everything so far, and sums whose weight halves every kHalfLife seconds. Their ratios are the mean rates
  // and the smoothed rates, without bias from the start.
  struct Sums {
    double seconds = 0, steps = 0, units = 0;
  };
  Sums all_, recent_;
};

}  // namespace tessera
