// Shows the progress of a loop over steps: as a bar at the bottom of a terminal, or as a line from time to time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/base/clock.h"
#include "tessera/log/console.h"

namespace tessera {

struct ProgressOptions {
  std::string description;  // "Training"
  int64_t first_step = 0;   // steps done before this run
  int64_t total_steps = 0;  // including first_step
  std::string unit = "samples";
  double every_s = 30;  // without a bar: the minimum time between two progress lines, in seconds
  std::function<double()> now_s = steady_seconds;
};

// The values to show at one moment.
struct ProgressState {
  std::string description = {};
  int64_t step = 0, total_steps = 0;
  std::optional<double> loss = {};
  std::optional<double> units_per_s = {};
  std::string unit = {};
  std::optional<double> left_s = {};  // estimated seconds until the end
};

// The progress as a line of at most `columns` columns. If the line is too long, the bar shrinks. If this is not enough,
// the line drops the bar, the rate, the time left, the loss and the description, in this order.
//   Training  37% ━━━━━━━━━╸────────────────   370/1000  loss 4.895  73.2 samples/s  1:23 left
std::string render_bar(const ProgressState& state, const Terminal& terminal, int columns);
// The same as a line for a log file:
//   Training 370/1000 (37%), loss 4.895, 73.2 samples/s, 1:23 left
std::string render_progress_line(const ProgressState& state);

class Progress {
 public:
  // On a terminal, shows the bar immediately. The console must outlive this object.
  Progress(Console& console, ProgressOptions options);
  ~Progress();  // removes an unfinished bar
  Progress(const Progress&) = delete;

  // Call it after a step. `step`: the steps done in total. `num_units`: the samples (or other units) since the previous
  // call. Without `loss`, the line keeps the previous loss. A bar is redrawn at most ten times per second.
  void update(int64_t step, int64_t num_units, std::optional<double> loss = {});

  // Call pause() before other work (an evaluation, a checkpoint), and resume() after it. Rates and times exclude this
  // work. Between the two calls, another Progress may use the console's status line.
  void pause();
  void resume();

  // Prints a final line with the time without pauses. It has no rate: a run reports its own speed.
  //   Training 1000/1000, loss 2.345, in 1:23
  void finish();

 private:
  ProgressState state_now() const;
  void show(double now_s);

  Console& console_;
  const ProgressOptions options_;
  int64_t step_;
  std::optional<double> loss_;
  bool finished_ = false;

  double last_update_s_;  // time of the last update() or resume()
  double last_shown_s_;
  double all_s_ = 0;  // since the start, without pauses
  // Sums for the rate and the time left that are shown during the loop. In these sums, the weight of a step halves
  // every kHalfLife seconds. A rate is the ratio of two of these sums, so it is not biased at the start, when both sums
  // are small.
  struct Sums {
    double seconds = 0, steps = 0, units = 0;
  };
  Sums recent_;
};

}  // namespace tessera
