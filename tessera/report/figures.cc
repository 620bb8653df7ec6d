#include "tessera/report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/base/math.h"
#include "tessera/base/text.h"
#include "tessera/report/measures.h"

namespace tessera {

bool is_on_gpu(const RunFolder& run) {
  const std::string device = find_text(run.summary, "device");
  return device.empty() ? has_value(run.summary, "gpu") : device == "cuda";
}

namespace {

using namespace measures;

template <size_t kEpoch>
Measure eval_loss_at(const RunFolder& run) {
  return eval_loss_of_epoch(run, kEpoch);
}

// keyed() and bytes() each return a function that reads one key of summary.json. The function that bytes() returns also
// converts the value from bytes to MiB.
std::function<Measure(const RunFolder&)> keyed(const char* key) {
  return [key](const RunFolder& run) { return of_key(run, key); };
}
std::function<Measure(const RunFolder&)> bytes(const char* key) {
  return [key](const RunFolder& run) { return of_key(run, key, 1 / kMiB); };
}

std::vector<Figure> declare_figures() {
  return {
      {"train_loss", {"loss"}, "train loss", FigureUnit::none, keyed("train_loss")},
      {"eval_loss", {}, "eval loss", FigureUnit::none, keyed("eval_loss")},
      {"perplexity", {"ppl"}, "perplexity", FigureUnit::perplexity, perplexity},
      {"eval_loss_1", {}, "eval loss, epoch 1", FigureUnit::none, eval_loss_at<1>},
      {"eval_loss_2", {}, "eval loss, epoch 2", FigureUnit::none, eval_loss_at<2>},
      {"eval_loss_3", {}, "eval loss, epoch 3", FigureUnit::none, eval_loss_at<3>},
      {"exact_match", {"em"}, "exact match", FigureUnit::share, keyed("exact_match")},
      {"f1", {}, "F1", FigureUnit::share, keyed("f1")},
      {"HasAns_exact", {}, "HasAns EM", FigureUnit::share, keyed("HasAns_exact")},
      {"HasAns_f1", {}, "HasAns F1", FigureUnit::share, keyed("HasAns_f1")},
      {"NoAns_exact", {}, "NoAns EM", FigureUnit::share, keyed("NoAns_exact")},
      {"NoAns_f1", {}, "NoAns F1", FigureUnit::share, keyed("NoAns_f1")},
      {"samples_per_second", {"samples_s"}, "samples/s", FigureUnit::rate, samples_per_second},
      {"steady_samples_per_second",
       {},
       "samples/s, steps only",
       FigureUnit::rate,
       keyed("train_samples_per_second_steady")},
      {"tokens_per_second",
       {"tokens_s"},
       "tokens/s, steps only",
       FigureUnit::rate,
       keyed("train_tokens_per_second_steady")},
      {"steps_per_second", {"steps_s"}, "steps/s", FigureUnit::rate, keyed("train_steps_per_second")},
      {"eval_samples_per_second", {}, "eval samples/s", FigureUnit::rate, keyed("eval_samples_per_second")},
      {"runtime", {}, "runtime (s)", FigureUnit::seconds, runtime},
      {"eval_runtime", {}, "eval runtime (s)", FigureUnit::seconds, keyed("eval_runtime")},
      {"steps", {}, "steps", FigureUnit::count, keyed("steps")},
      {"steps_per_epoch", {}, "steps/epoch", FigureUnit::none, steps_per_epoch},
      {"epochs", {}, "epochs", FigureUnit::none, keyed("epoch")},
      {"ranks", {"gpus"}, "ranks", FigureUnit::count, ranks},
      {"parameters", {}, "parameters", FigureUnit::count, keyed("num_parameters")},
      {"gpu_peak", {}, "peak GPU (MiB)", FigureUnit::mib, gpu_peak},
      {"gpu_average", {"gpu_avg"}, "average GPU (MiB)", FigureUnit::mib, gpu_average},
      {"gpu_mode", {}, "mode GPU (MiB)", FigureUnit::mib, gpu_mode},
      {"cpu_peak", {}, "peak CPU (MiB)", FigureUnit::mib, cpu_peak},
      {"cpu_average", {"cpu_avg"}, "average CPU (MiB)", FigureUnit::mib, cpu_average},
      {"cpu_mode", {}, "mode CPU (MiB)", FigureUnit::mib, cpu_mode},
      {"planned_memory", {"planned"}, "planned per rank (MiB)", FigureUnit::mib, bytes("planned_peak_bytes")},
      {"resident_memory",
       {"measured"},
       "measured per rank (MiB)",
       FigureUnit::mib,
       [](const RunFolder& run) {
         return is_on_gpu(run) ? of_key(run, "gpu.process_memory_bytes.peak", 1 / kMiB)
                               : of_key(run, "peak_memory_bytes", 1 / kMiB);
       }},
      {"booked_memory", {"ledger"}, "booked on the device (MiB)", FigureUnit::mib, bytes("ledger_peak_bytes.total")},
      {"planned_device", {}, "device planned (MiB)", FigureUnit::mib, bytes("planned.device_peak_bytes")},
      {"planned_step", {}, "step planned (s)", FigureUnit::step_seconds, keyed("planned.step_s")},
      {"step_time", {"step"}, "step measured (s)", FigureUnit::step_seconds, keyed("measured.step_s")},
      {"step_ratio", {}, "measured/planned", FigureUnit::ratio, step_ratio},
      {"gpu_utilization", {"gpu_util"}, "GPU use (%)", FigureUnit::percent, gpu_utilization},
      {"gpu_utilization_peak", {}, "peak GPU use (%)", FigureUnit::percent, gpu_utilization_peak},
      {"gpu_utilization_deviation",
       {},
       "deviation of GPU use (%)",
       FigureUnit::percent,
       keyed("callbacks.std_gpu_util_%")},
      {"callback_samples_per_second", {}, "samples/s, callback", FigureUnit::rate, callback_samples},
      {"callback_steps_per_second",
       {},
       "steps/s, callback",
       FigureUnit::rate,
       keyed("callbacks.train/steps_per_second_mean")},
      {"callback_memory", {}, "GPU memory, callback (MiB)", FigureUnit::mib, callback_memory},
      {"callback_memory_reserved",
       {},
       "GPU memory reserved, callback (MiB)",
       FigureUnit::mib,
       keyed("callbacks.avg_mem_reserved_MB")},
      {"callback_memory_total",
       {},
       "GPU memory in use, callback (MiB)",
       FigureUnit::mib,
       keyed("callbacks.avg_mem_total_MB")},
      {"speedup", {"speed_up"}, "speed-up", FigureUnit::ratio, nullptr, speedup},
      {"efficiency", {}, "efficiency (%)", FigureUnit::percent, nullptr, efficiency},
      {"inverse_efficiency",
       {},
       "TN/T1 (%)",
       FigureUnit::percent,
       nullptr,
       [](const RunGroup& group, const RunGroup& base, Scaling) { return efficiency(group, base, Scaling::workshop); }},
      {"runtime_ratio", {}, "runtime ratio", FigureUnit::ratio, nullptr, runtime_ratio},
      {"memory_saved", {}, "memory saved (%)", FigureUnit::percent, nullptr, memory_saved},
      {"runtime_change", {}, "runtime change (%)", FigureUnit::percent, nullptr, runtime_change},
  };
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> modes(const std::vector<double>& values) {
  std::map<double, int> counts;
  for (const double value : values) {
    if (!std::isnan(value)) ++counts[value];  // NaN cannot be a key of a map
  }
  int most = 0;
  for (const auto& [value, count] : counts) most = std::max(most, count);
  std::vector<double> result;
  for (const auto& [value, count] : counts) {
    if (count == most) result.push_back(value);
  }
  return result;
}

double scaling_efficiency(Scaling scaling, double baseline_s, double baseline_ranks, double runtime_s, double ranks) {
  switch (scaling) {
    case Scaling::strong:
    case Scaling::automatic:
      return baseline_s * baseline_ranks / (runtime_s * ranks);
    case Scaling::weak:
      return baseline_s / runtime_s;
    case Scaling::workshop:
      return runtime_s / baseline_s;
  }
  return 0;
}

const std::vector<Figure>& all_figures() {
  static const std::vector<Figure> figures = declare_figures();
  return figures;
}

const Figure* find_figure(std::string_view name) {
  std::string word(name);
  std::replace(word.begin(), word.end(), '-', '_');
  for (const Figure& figure : all_figures()) {
    if (figure.name == word) return &figure;
    if (std::find(figure.aliases.begin(), figure.aliases.end(), word) != figure.aliases.end()) return &figure;
  }
  return nullptr;
}

std::string text_of_key(const RunFolder& run, const std::string& key) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '-', '_');
  if (const auto it = run.settings.find(name); it != run.settings.end()) return it->second;
  if (key == "run") return run.name;
  if (key == "experiment") return run.experiment;
  return find_plain_text(run.summary, key);
}

std::string shown(double value, FigureUnit unit) {
  if (!std::isfinite(value)) return "NaN";
  switch (unit) {
    case FigureUnit::seconds:
      return fmt::format("{:.2f}", value);
    case FigureUnit::step_seconds:
    case FigureUnit::rate:
      return format_rate(value);
    case FigureUnit::share:
      return fmt::format("{:.3f}", value);
    case FigureUnit::percent:
      return fmt::format("{:.1f}", std::abs(value) < 0.05 ? 0.0 : value);  // no "-0.0"
    case FigureUnit::mib:
      return std::abs(value) < 9.95 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
    case FigureUnit::count:
      return std::abs(value) < 1e15 ? format_count(std::llround(value)) : fmt::format("{}", value);
    case FigureUnit::ratio:
      return fmt::format("{:.2f}", value);
    case FigureUnit::perplexity:
      return format_perplexity(std::log(value));
    case FigureUnit::none:
    case FigureUnit::text:
      break;
  }
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4f}", value);
}

GroupMeasure measure_of(const Figure& figure, const RunGroup& group, const RunGroup* baseline, Scaling scaling) {
  if (!figure.of_run) {
    if (!baseline) return {absent("There is no baseline"), {}, {}};
    return {figure.derived(group, *baseline, scaling), {}, {}};
  }
  if (group.runs.size() == 1) return {figure.of_run(*group.runs[0]), {}, {}};
  std::vector<double> firsts;
  Measure all;
  for (const RunFolder* run : group.runs) {
    const Measure measure = figure.of_run(*run);
    if (!measure.note.empty()) all.note = measure.note;
    all.applies = all.applies && measure.applies;
    if (!measure.values.empty() && std::isfinite(measure.values[0])) firsts.push_back(measure.values[0]);
  }
  if (firsts.empty()) return {all, {}, {}};
  all.values = {median(firsts)};
  const auto [low, high] = std::minmax_element(firsts.begin(), firsts.end());
  return {all, *low, *high};
}

}  // namespace tessera
