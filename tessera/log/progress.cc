#include "tessera/log/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

// In seconds. After this time, a step has half of its weight in the sums of `recent_`. The time is much longer than
// most steps, but short enough to show changes of speed.
constexpr double kHalfLife = 15;
constexpr double kRedrawInterval = 0.1;  // seconds
constexpr int kWidestBar = 32, kNarrowestBar = 8;

double fraction_of(const ProgressState& state) {
  if (state.total_steps <= 0) return 1;
  return std::clamp(static_cast<double>(state.step) / static_cast<double>(state.total_steps), 0.0, 1.0);
}

int percent_of(const ProgressState& state) {
  return static_cast<int>(fraction_of(state) * 100);
}

std::string loss_text(double loss) {
  return std::isnan(loss) ? "loss nan" : fmt::format("loss {:#.4g}", loss);
}

std::string repeat(std::string_view piece, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += piece;
  return out;
}

std::string draw_bar(double fraction, const Terminal& terminal, int columns) {
  const auto paint = [&](const char* code, const std::string& text) {
    return terminal.color && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  };
  if (!terminal.unicode) {
    const int filled = static_cast<int>(fraction * (columns - 2));
    return fmt::format("[{}{}]", paint("36", repeat("#", filled)), paint("2", repeat(".", columns - 2 - filled)));
  }
  const int halves = static_cast<int>(fraction * columns * 2);
  const std::string filled = repeat("━", halves / 2) + (halves % 2 ? "╸" : "");
  return paint("36", filled) + paint("2", repeat("─", columns - (halves + 1) / 2));  // cyan, then faint
}

}  // namespace

std::string render_bar(const ProgressState& state, const Terminal& terminal, int columns) {
  enum Piece { kDescription, kPercent, kBar, kSteps, kLoss, kRate, kLeft, kNumPieces };
  std::vector<std::string> pieces(kNumPieces);
  const std::string total = std::to_string(state.total_steps);
  pieces[kDescription] = state.description;
  pieces[kPercent] = fmt::format("{:3}%", percent_of(state));
  pieces[kSteps] = fmt::format("{:>{}}/{}", state.step, total.size(), total);
  if (state.loss) pieces[kLoss] = loss_text(*state.loss);
  if (state.units_per_s) pieces[kRate] = format_rate(*state.units_per_s) + " " + state.unit + "/s";
  if (state.left_s) pieces[kLeft] = format_clock(*state.left_s) + " left";

  const auto joined = [&] {
    std::string line;
    for (const std::string& piece : pieces) {
      if (!piece.empty()) line += (line.empty() ? "" : "  ") + piece;
    }
    return line;
  };
  const int bar_columns = std::min(kWidestBar, columns - display_width(joined()) - 2);
  if (bar_columns >= kNarrowestBar) {
    pieces[kBar] = draw_bar(fraction_of(state), terminal, bar_columns);
    return joined();
  }
  for (const Piece piece : {kRate, kLeft, kLoss, kDescription}) {
    if (display_width(joined()) > columns) pieces[piece].clear();
  }
  return std::string(cut_to_width(joined(), columns));
}

std::string render_progress_line(const ProgressState& state) {
  std::string line = fmt::format("{} {}/{} ({}%)", state.description, state.step, state.total_steps, percent_of(state));
  if (state.loss) line += ", " + loss_text(*state.loss);
  if (state.units_per_s) line += fmt::format(", {} {}/s", format_rate(*state.units_per_s), state.unit);
  if (state.left_s) line += fmt::format(", {} left", format_clock(*state.left_s));
  return line;
}

Progress::Progress(Console& console, ProgressOptions options)
    : console_(console), options_(std::move(options)), step_(options_.first_step) {
  TESSERA_ASSERT(0 <= options_.first_step && options_.first_step <= options_.total_steps);
  last_update_s_ = last_shown_s_ = options_.now_s();
  if (console_.err_terminal().interactive) show(last_update_s_);
}

Progress::~Progress() {
  if (!finished_) pause();
}

void Progress::update(int64_t step, int64_t num_units, std::optional<double> loss) {
  const double now_s = options_.now_s();
  const Sums added{now_s - last_update_s_, static_cast<double>(step - step_), static_cast<double>(num_units)};
  const double kept = std::exp2(-added.seconds / kHalfLife);
  recent_ = {recent_.seconds * kept + added.seconds, recent_.steps * kept + added.steps,
             recent_.units * kept + added.units};
  all_s_ += added.seconds;
  last_update_s_ = now_s;
  step_ = step;
  if (loss) loss_ = loss;
  const double unseen_s = now_s - last_shown_s_;
  const bool bar = console_.err_terminal().interactive;
  const bool due = unseen_s >= (bar ? kRedrawInterval : options_.every_s);
  if (due && (bar || step < options_.total_steps)) show(now_s);  // finish() prints the last line
}

void Progress::pause() {
  console_.clear_status();
}

void Progress::resume() {
  last_update_s_ = options_.now_s();
  if (console_.err_terminal().interactive) show(last_update_s_);
}

void Progress::finish() {
  console_.clear_status();
  finished_ = true;
  std::string line = fmt::format("{} {}/{}", options_.description, step_, options_.total_steps);
  if (loss_) line += ", " + loss_text(*loss_);
  console_.note(line + ", in " + format_clock(all_s_));
}

ProgressState Progress::state_now() const {
  ProgressState state{.description = options_.description,
                      .step = step_,
                      .total_steps = options_.total_steps,
                      .loss = loss_,
                      .unit = options_.unit};
  if (recent_.seconds > 0) state.units_per_s = recent_.units / recent_.seconds;
  if (recent_.steps > 0) {
    state.left_s = static_cast<double>(options_.total_steps - step_) * recent_.seconds / recent_.steps;
  }
  return state;
}

void Progress::show(double now_s) {
  last_shown_s_ = now_s;
  if (console_.err_terminal().interactive) {
    // Leaves the last column free, because some terminals start a new line when a text fills the last column.
    console_.show_status(render_bar(state_now(), console_.err_terminal(), console_.err_columns() - 1));
  } else {
    console_.note(render_progress_line(state_now()));
  }
}

}  // namespace tessera
