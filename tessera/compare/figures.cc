#include "tessera/compare/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "tessera/report/text.h"

namespace tessera {

bool is_on_gpu(const RunFolder& run) {
  const std::string device = find_text(run.summary, "device");
  return device.empty() ? find_value(run.summary, "gpu") != nullptr : device == "cuda";
}

namespace {

constexpr double kMiB = 1 << 20;

Measure absent(std::string note = "") {
  return {.values = {}, .note = std::move(note)};
}

Measure of_key(const RunFolder& run, const char* key, double scale = 1) {
  if (const auto value = find_number(run.summary, key)) return {.values = {*value * scale}, .note = ""};
  if (const Value* value = find_value(run.summary, key); value && value->get_if<std::nullptr_t>()) {
    return {.values = {std::nan("")}, .note = fmt::format("{} is NaN or infinite", key)};
  }
  return absent();
}

// The first that has a value; `note` says that it is not the usual source.
Measure either(Measure first, Measure other, const char* note) {
  if (!first.values.empty() || other.values.empty()) return first;
  if (other.note.empty()) other.note = note;
  return other;
}

std::vector<double> numbers_of(const Value* value) {
  std::vector<double> numbers;
  const auto add = [&](const Value& item) {
    if (const auto* whole = item.get_if<int64_t>()) numbers.push_back(static_cast<double>(*whole));
    if (const auto* number = item.get_if<double>(); number && std::isfinite(*number)) numbers.push_back(*number);
  };
  const auto* list = value ? value->get_if<std::vector<Value>>() : nullptr;
  if (list) {
    for (const Value& item : *list) add(item);
  } else if (value) {
    add(*value);
  }
  return numbers;
}

// Sampled memory of the GPU that had most, from "memory_log": {"gpu": [{"peak_mib": ...}]}.
Measure sampled_gpu_memory(const RunFolder& run, const char* key) {
  const Value* value = find_value(run.summary, "memory_log.gpu");
  const auto* gpus = value ? value->get_if<std::vector<Value>>() : nullptr;
  const Record* most = nullptr;
  double highest = -1;
  for (size_t i = 0; gpus && i < gpus->size(); ++i) {
    const auto* gpu = (*gpus)[i].get_if<Record>();
    const auto peak = gpu ? find_number(*gpu, "peak_mib") : std::nullopt;
    if (peak && *peak > highest) highest = *peak, most = gpu;
  }
  return most ? Measure{.values = numbers_of(most->find(key)), .note = ""} : absent();
}

Measure sampled_cpu_memory(const RunFolder& run, const char* key) {
  return {.values = numbers_of(find_value(run.summary, key)), .note = ""};
}

constexpr const char* kNoGpuSamples = "CPU ranks: sampled memory of the processes of a node together";
constexpr const char* kNoSamples = "The run has no memory samples. Give it --memory-log";

Measure gpu_peak(const RunFolder& run) {
  Measure measure = sampled_gpu_memory(run, "peak_mib");
  measure = either(measure, of_key(run, "gpu.memory_bytes.peak", 1 / kMiB), "");
  if (!is_on_gpu(run)) measure = either(measure, sampled_cpu_memory(run, "memory_log.cpu.peak_mb"), kNoGpuSamples);
  return either(measure, of_key(run, "ledger_peak_bytes.total", 1 / kMiB),
                "What the first rank booked on its device (ledger_peak_bytes.total); there are no samples");
}

Measure gpu_average(const RunFolder& run) {
  Measure measure = sampled_gpu_memory(run, "average_mib");
  measure = either(measure, of_key(run, "gpu.memory_bytes.mean", 1 / kMiB), "");
  if (!is_on_gpu(run)) measure = either(measure, sampled_cpu_memory(run, "memory_log.cpu.average_mb"), kNoGpuSamples);
  return measure.values.empty() ? absent(kNoSamples) : measure;
}

Measure gpu_mode(const RunFolder& run) {
  Measure measure = sampled_gpu_memory(run, "mode_mib");
  if (!is_on_gpu(run)) measure = either(measure, sampled_cpu_memory(run, "memory_log.cpu.mode_mb"), kNoGpuSamples);
  return measure.values.empty() ? absent(kNoSamples) : measure;
}

Measure cpu_peak(const RunFolder& run) {
  return either(sampled_cpu_memory(run, "memory_log.cpu.peak_mb"), of_key(run, "peak_memory_bytes", 1 / kMiB),
                "Resident memory of the rank that had most (peak_memory_bytes); there are no samples of all processes");
}

Measure cpu_average(const RunFolder& run) {
  const Measure measure = sampled_cpu_memory(run, "memory_log.cpu.average_mb");
  return measure.values.empty() ? absent(kNoSamples) : measure;
}

Measure cpu_mode(const RunFolder& run) {
  const Measure measure = sampled_cpu_memory(run, "memory_log.cpu.mode_mb");
  return measure.values.empty() ? absent(kNoSamples) : measure;
}

// Columns of the workshop's callbacks: means over steps and ranks.
Measure callback_samples(const RunFolder& run) {
  return either(of_key(run, "callbacks.train/samples_per_second_mean"), of_key(run, "train_samples_per_second_steady"),
                "Over the steps alone (train_samples_per_second_steady); the run has no callbacks");
}

Measure callback_memory(const RunFolder& run) {
  Measure measure = of_key(run, "callbacks.avg_mem_alloc_MB");
  return either(measure, gpu_average(run), "Sampled average; the run has no callbacks");
}

Measure gpu_utilization(const RunFolder& run) {
  Measure measure = either(of_key(run, "callbacks.avg_gpu_util_%"), of_key(run, "gpu.utilization_percent.mean"),
                           "Sampled in training (gpu.utilization_percent.mean); the run has no callbacks");
  if (measure.values.empty() && !is_on_gpu(run))
    return {.values = {}, .note = "CPU ranks have no GPU", .applies = false};
  return measure;
}

Measure gpu_utilization_peak(const RunFolder& run) {
  Measure measure = of_key(run, "gpu.utilization_percent.peak");
  if (measure.values.empty() && !is_on_gpu(run))
    return {.values = {}, .note = "CPU ranks have no GPU", .applies = false};
  return measure;
}

Measure eval_loss_of_epoch(const RunFolder& run, size_t epoch) {
  const Value* value = find_value(run.summary, "epochs");
  const auto* rows = value ? value->get_if<std::vector<Value>>() : nullptr;
  for (size_t i = 0; rows && i < rows->size(); ++i) {
    const auto* row = (*rows)[i].get_if<Record>();
    const auto at = row ? find_number(*row, "epoch") : std::nullopt;
    // Steps need not divide an epoch: 2.98 is the third.
    if (at && std::llround(*at) == static_cast<int64_t>(epoch)) {
      if (const auto loss = find_number(*row, "eval_loss")) return {.values = {*loss}, .note = ""};
    }
  }
  return absent(fmt::format("The run has no evaluation of epoch {}", epoch));
}

Measure steps_per_epoch(const RunFolder& run) {
  const auto steps = find_number(run.summary, "steps"), epochs = find_number(run.summary, "epoch");
  if (!steps || !epochs || *epochs <= 0) return absent();
  return {.values = {*steps / *epochs}, .note = ""};
}

std::optional<double> median_of(const RunGroup& group, Measure (*of_run)(const RunFolder&)) {
  std::vector<double> values;
  for (const RunFolder* run : group.runs) {
    const Measure measure = of_run(*run);
    if (!measure.values.empty() && std::isfinite(measure.values[0])) values.push_back(measure.values[0]);
  }
  return values.empty() ? std::nullopt : std::optional(median(values));
}

Measure runtime(const RunFolder& run) {
  return of_key(run, "train_runtime");
}
Measure samples_per_second(const RunFolder& run) {
  return of_key(run, "train_samples_per_second");
}
Measure ranks(const RunFolder& run) {
  return of_key(run, "world_size");
}

Measure ratio(std::optional<double> a, std::optional<double> b) {
  return a && b && *b != 0 ? Measure{.values = {*a / *b}, .note = ""} : absent();
}

Measure change(std::optional<double> now, std::optional<double> then) {
  return now && then && *then > 0 ? Measure{.values = {(*now / *then - 1) * 100}, .note = ""} : absent();
}

bool nearly(double a, double b) {
  return std::abs(a - b) <= 0.01 * std::max(std::abs(a), std::abs(b));
}

// Strong if both did the same work, weak if each rank did; nothing if neither is so.
std::optional<Scaling> scaling_of(const RunFolder& run, double ranks, const RunFolder& base, double base_ranks) {
  const auto samples = find_number(run.summary, "num_samples"), base_samples = find_number(base.summary, "num_samples");
  const auto size = find_number(run.summary, "num_parameters"), base_size = find_number(base.summary, "num_parameters");
  if (!samples || !base_samples) return {};
  const bool same_model = !size || !base_size || *size == *base_size;
  if (same_model && nearly(*samples / *base_samples, 1)) return Scaling::strong;
  if (same_model && nearly(*samples / *base_samples, ranks / base_ranks)) return Scaling::weak;
  const double layers = std::atof(text_of_key(run, "num_layers").c_str());
  const double base_layers = std::atof(text_of_key(base, "num_layers").c_str());
  const bool layers_grow = layers > 0 && base_layers > 0 && nearly(layers / base_layers, ranks / base_ranks);
  if (!same_model && layers_grow && nearly(*samples / *base_samples, 1)) return Scaling::weak;
  return {};
}

Measure efficiency(const RunGroup& group, const RunGroup& base, Scaling scaling) {
  const auto t = median_of(group, runtime), t1 = median_of(base, runtime);
  const auto n = median_of(group, ranks), n1 = median_of(base, ranks);
  if (!t || !t1 || !n || !n1 || *t <= 0 || *t1 <= 0 || *n < 1 || *n1 < 1) return absent();
  std::string note;
  if (scaling == Scaling::automatic) {
    const auto found = scaling_of(*group.runs[0], *n, *base.runs[0], *n1);
    if (!found) {
      return absent("Neither the work nor the work of a rank is the baseline's. Choose --efficiency strong or weak");
    }
    scaling = *found;
    const bool several = *n != *n1;
    if (several) note = scaling == Scaling::strong ? "Strong scaling: T1/(N*TN)" : "Weak scaling: T1/TN";
  }
  if (scaling == Scaling::workshop) note = "The workshop's inverse: TN/T1. Higher is slower";
  return {.values = {100 * scaling_efficiency(scaling, *t1, *n1, *t, *n)}, .note = note};
}

Measure peak_for_savings(const RunFolder& run) {
  return is_on_gpu(run) ? gpu_peak(run) : cpu_peak(run);
}

Measure memory_saved(const RunGroup& group, const RunGroup& base, Scaling) {
  const bool gpu = is_on_gpu(*group.runs[0]);
  if (gpu != is_on_gpu(*base.runs[0])) return absent("The baseline's memory is of another kind of device");
  Measure saved = change(median_of(group, peak_for_savings), median_of(base, peak_for_savings));
  if (!saved.values.empty()) saved.values[0] = -saved.values[0];
  saved.note = gpu ? "" : "Of CPU memory: the run has no GPU";
  return saved;
}

template <size_t kEpoch>
Measure eval_loss_at(const RunFolder& run) {
  return eval_loss_of_epoch(run, kEpoch);
}

// A figure that is a key of summary.json.
#define TESSERA_KEY(key) [](const RunFolder& run) { return of_key(run, key); }
#define TESSERA_BYTES(key) [](const RunFolder& run) { return of_key(run, key, 1 / kMiB); }
#define TESSERA_DERIVED(expression) \
  [](const RunGroup& group, const RunGroup& base, Scaling) -> Measure { return expression; }

std::vector<Figure> declare_figures() {
  return {
      {"train_loss", {"loss"}, "train loss", Unit::none, TESSERA_KEY("train_loss")},
      {"eval_loss", {}, "eval loss", Unit::none, TESSERA_KEY("eval_loss")},
      {"eval_loss_1", {}, "eval loss, epoch 1", Unit::none, eval_loss_at<1>},
      {"eval_loss_2", {}, "eval loss, epoch 2", Unit::none, eval_loss_at<2>},
      {"eval_loss_3", {}, "eval loss, epoch 3", Unit::none, eval_loss_at<3>},
      {"exact_match", {"em"}, "exact match", Unit::share, TESSERA_KEY("exact_match")},
      {"f1", {}, "F1", Unit::share, TESSERA_KEY("f1")},
      {"samples_per_second", {"samples_s"}, "samples/s", Unit::rate, samples_per_second},
      {"steady_samples_per_second",
       {},
       "samples/s, steps alone",
       Unit::rate,
       TESSERA_KEY("train_samples_per_second_steady")},
      {"tokens_per_second", {"tokens_s"}, "tokens/s", Unit::rate, TESSERA_KEY("train_tokens_per_second_steady")},
      {"steps_per_second", {"steps_s"}, "steps/s", Unit::rate, TESSERA_KEY("train_steps_per_second")},
      {"eval_samples_per_second", {}, "eval samples/s", Unit::rate, TESSERA_KEY("eval_samples_per_second")},
      {"runtime", {}, "runtime (s)", Unit::seconds, runtime},
      {"eval_runtime", {}, "eval runtime (s)", Unit::seconds, TESSERA_KEY("eval_runtime")},
      {"steps", {}, "steps", Unit::count, TESSERA_KEY("steps")},
      {"steps_per_epoch", {}, "steps/epoch", Unit::none, steps_per_epoch},
      {"epochs", {}, "epochs", Unit::none, TESSERA_KEY("epoch")},
      {"ranks", {"gpus"}, "ranks", Unit::count, ranks},
      {"parameters", {}, "parameters", Unit::count, TESSERA_KEY("num_parameters")},
      {"gpu_peak", {}, "peak GPU (MiB)", Unit::mib, gpu_peak},
      {"gpu_average", {"gpu_avg"}, "average GPU (MiB)", Unit::mib, gpu_average},
      {"gpu_mode", {}, "mode GPU (MiB)", Unit::mib, gpu_mode},
      {"cpu_peak", {}, "peak CPU (MiB)", Unit::mib, cpu_peak},
      {"cpu_average", {"cpu_avg"}, "average CPU (MiB)", Unit::mib, cpu_average},
      {"cpu_mode", {}, "mode CPU (MiB)", Unit::mib, cpu_mode},
      {"planned_memory", {"planned"}, "planned, a rank (MiB)", Unit::mib, TESSERA_BYTES("planned_peak_bytes")},
      {"resident_memory",
       {"measured"},
       "measured, a rank (MiB)",
       Unit::mib,
       [](const RunFolder& run) {
         return is_on_gpu(run) ? of_key(run, "gpu.process_memory_bytes.peak", 1 / kMiB)
                               : of_key(run, "peak_memory_bytes", 1 / kMiB);
       }},
      {"booked_memory", {"ledger"}, "booked on the device (MiB)", Unit::mib, TESSERA_BYTES("ledger_peak_bytes.total")},
      {"gpu_utilization", {"gpu_util"}, "GPU use (%)", Unit::percent, gpu_utilization},
      {"gpu_utilization_peak", {}, "peak GPU use (%)", Unit::percent, gpu_utilization_peak},
      {"gpu_utilization_deviation",
       {},
       "deviation of GPU use (%)",
       Unit::percent,
       TESSERA_KEY("callbacks.std_gpu_util_%")},
      {"callback_samples_per_second", {}, "samples/s, callback", Unit::rate, callback_samples},
      {"callback_steps_per_second",
       {},
       "steps/s, callback",
       Unit::rate,
       TESSERA_KEY("callbacks.train/steps_per_second_mean")},
      {"callback_memory", {}, "GPU memory, callback (MiB)", Unit::mib, callback_memory},
      {"callback_memory_reserved",
       {},
       "GPU memory reserved, callback (MiB)",
       Unit::mib,
       TESSERA_KEY("callbacks.avg_mem_reserved_MB")},
      {"callback_memory_total",
       {},
       "GPU memory in use, callback (MiB)",
       Unit::mib,
       TESSERA_KEY("callbacks.avg_mem_total_MB")},
      {"speedup",
       {"speed_up"},
       "speed-up",
       Unit::ratio,
       nullptr,
       TESSERA_DERIVED(ratio(median_of(group, samples_per_second), median_of(base, samples_per_second)))},
      {"efficiency", {}, "efficiency (%)", Unit::percent, nullptr, efficiency},
      {"inverse_efficiency",
       {},
       "TN/T1 (%)",
       Unit::percent,
       nullptr,
       [](const RunGroup& group, const RunGroup& base, Scaling) { return efficiency(group, base, Scaling::workshop); }},
      {"runtime_ratio",
       {},
       "runtime ratio",
       Unit::ratio,
       nullptr,
       TESSERA_DERIVED(ratio(median_of(group, runtime), median_of(base, runtime)))},
      {"memory_saved", {}, "memory saved (%)", Unit::percent, nullptr, memory_saved},
      {"runtime_change",
       {},
       "runtime change (%)",
       Unit::percent,
       nullptr,
       TESSERA_DERIVED(change(median_of(group, runtime), median_of(base, runtime)))},
  };
}

#undef TESSERA_KEY
#undef TESSERA_BYTES
#undef TESSERA_DERIVED

std::string plain_text(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* flag = value.get_if<bool>()) return *flag ? "true" : "false";
  if (const auto* whole = value.get_if<int64_t>()) return std::to_string(*whole);
  if (const auto* number = value.get_if<double>()) return fmt::format("{}", *number);
  const auto* list = value.get_if<std::vector<Value>>();
  std::string text;
  for (size_t i = 0; list && i < list->size(); ++i) text += (i > 0 ? ", " : "") + plain_text((*list)[i]);
  return text;
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
    if (!std::isnan(value)) ++counts[value];  // NaN has no order
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
  const Value* value = find_value(run.summary, key);
  return value ? plain_text(*value) : "";
}

std::string shown(double value, Unit unit) {
  if (!std::isfinite(value)) return "NaN";
  switch (unit) {
    case Unit::seconds:
      return fmt::format("{:.2f}", value);
    case Unit::rate:
      return format_rate(value);
    case Unit::share:
      return fmt::format("{:.3f}", value);
    case Unit::percent:
      return fmt::format("{:.1f}", value);
    case Unit::mib:
      return std::abs(value) < 9.95 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
    case Unit::count:
      return std::abs(value) < 1e15 ? format_count(std::llround(value)) : fmt::format("{}", value);
    case Unit::ratio:
      return fmt::format("{:.2f}", value);
    case Unit::none:
    case Unit::text:
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
