#include "tessera/report/measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tessera/base/math.h"
#include "tessera/base/text.h"

namespace tessera::measures {

Measure absent(std::string note) {
  return {.values = {}, .note = std::move(note)};
}

Measure of_key(const RunFolder& run, const char* key, double scale) {
  if (const auto value = find_number(run.summary, key)) return {.values = {*value * scale}, .note = ""};
  if (is_null(run.summary, key)) {
    return {.values = {std::nan("")}, .note = fmt::format("{} is NaN or infinite", key)};
  }
  return absent();
}

namespace {

// Returns `first` if it has a value, or if neither has one. Otherwise returns `other`. If `other` has no note, it gets
// `note`, which says that the value is not from the usual source. `note` is empty if both sources are usual.
Measure either(Measure first, Measure other, const char* note) {
  if (!first.values.empty() || other.values.empty()) return first;
  if (other.note.empty()) other.note = note;
  return other;
}

// Returns the values `key` of the GPU with the highest sampled peak. summary.json has one record for each GPU:
// "memory_log": {"gpu": [{"peak_mib": ...}]}.
Measure sampled_gpu_memory(const RunFolder& run, const char* key) {
  const Record* most = nullptr;
  double highest = -1;
  for (const Record* gpu : find_records(run.summary, "memory_log.gpu")) {
    const auto peak = find_number(*gpu, "peak_mib");
    if (peak && *peak > highest) highest = *peak, most = gpu;
  }
  return most ? Measure{.values = find_numbers(*most, key), .note = ""} : absent();
}

Measure sampled_cpu_memory(const RunFolder& run, const char* key) {
  return {.values = find_numbers(run.summary, key), .note = ""};
}

}  // namespace

constexpr const char* kNoGpuSamples = "The run has CPU ranks. This is the sampled memory of all processes of a node";
constexpr const char* kNoSamples = "The run has no memory samples. Start runs with --memory-log";

Measure gpu_peak(const RunFolder& run) {
  Measure measure = sampled_gpu_memory(run, "peak_mib");
  measure = either(measure, of_key(run, "gpu.memory_bytes.peak", 1 / kMiB), "");
  if (!is_on_gpu(run)) measure = either(measure, sampled_cpu_memory(run, "memory_log.cpu.peak_mb"), kNoGpuSamples);
  return either(measure, of_key(run, "ledger_peak_bytes.total", 1 / kMiB),
                "Booked by the first rank on its device (ledger_peak_bytes.total); there are no samples");
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
                "Highest resident memory of a rank (peak_memory_bytes); there are no samples of all processes");
}

Measure cpu_average(const RunFolder& run) {
  const Measure measure = sampled_cpu_memory(run, "memory_log.cpu.average_mb");
  return measure.values.empty() ? absent(kNoSamples) : measure;
}

Measure cpu_mode(const RunFolder& run) {
  const Measure measure = sampled_cpu_memory(run, "memory_log.cpu.mode_mb");
  return measure.values.empty() ? absent(kNoSamples) : measure;
}

Measure callback_samples(const RunFolder& run) {
  return either(of_key(run, "callbacks.train/samples_per_second_mean"), of_key(run, "train_samples_per_second_steady"),
                "Over the steps only (train_samples_per_second_steady); the run has no callbacks");
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
  for (const Record* row : find_records(run.summary, "epochs")) {
    const auto at = find_number(*row, "epoch"), loss = find_number(*row, "eval_loss");
    // An evaluation may be a little before or after the end of its epoch: 2.98 counts as epoch 3.
    if (at && loss && std::abs(*at - static_cast<double>(epoch)) < 0.5) return {.values = {*loss}, .note = ""};
  }
  return absent(fmt::format("The run has no evaluation of epoch {}", epoch));
}

Measure perplexity(const RunFolder& run) {
  Measure measure = of_key(run, "eval_loss");
  if (measure.values.empty() || has_value(run.summary, "exact_match")) return absent();
  measure.values[0] = std::exp(measure.values[0]);
  if (std::isinf(measure.values[0])) return absent("The eval loss is too large for a perplexity");
  return measure;
}

Measure steps_per_epoch(const RunFolder& run) {
  const auto steps = find_number(run.summary, "steps"), epochs = find_number(run.summary, "epoch");
  if (!steps || !epochs || *epochs <= 0) return absent();
  return {.values = {*steps / *epochs}, .note = ""};
}

namespace {

std::optional<double> median_of(const RunGroup& group, Measure (*of_run)(const RunFolder&)) {
  std::vector<double> values;
  for (const RunFolder* run : group.runs) {
    const Measure measure = of_run(*run);
    if (!measure.values.empty() && std::isfinite(measure.values[0])) values.push_back(measure.values[0]);
  }
  return values.empty() ? std::nullopt : std::optional(median(values));
}

}  // namespace

Measure step_ratio(const RunFolder& run) {
  const auto planned = find_number(run.summary, "planned.step_s"),
             measured = find_number(run.summary, "measured.step_s");
  if (!planned || !measured || *planned <= 0) return absent();
  return {.values = {*measured / *planned}, .note = ""};
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

namespace {

Measure ratio(std::optional<double> a, std::optional<double> b) {
  return a && b && *b != 0 ? Measure{.values = {*a / *b}, .note = ""} : absent();
}

Measure change(std::optional<double> now, std::optional<double> then) {
  return now && then && *then > 0 ? Measure{.values = {(*now / *then - 1) * 100}, .note = ""} : absent();
}

bool nearly(double a, double b) {
  return std::abs(a - b) <= 0.01 * std::max(std::abs(a), std::abs(b));
}

// Strong if both runs did the same work. Weak if the work per rank is the same in both runs: the number of samples or
// of layers is in proportion to the number of ranks. Returns nothing in all other cases.
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

}  // namespace

Measure efficiency(const RunGroup& group, const RunGroup& base, Scaling scaling) {
  const auto t = median_of(group, runtime), t1 = median_of(base, runtime);
  const auto n = median_of(group, ranks), n1 = median_of(base, ranks);
  if (!t || !t1 || !n || !n1 || *t <= 0 || *t1 <= 0 || *n < 1 || *n1 < 1) return absent();
  std::string note;
  if (scaling == Scaling::automatic) {
    const auto found = scaling_of(*group.runs[0], *n, *base.runs[0], *n1);
    if (!found) {
      return absent("The work differs from the baseline's, in total and per rank. Give --efficiency strong or weak");
    }
    scaling = *found;
    const bool several = *n != *n1;
    if (several) note = scaling == Scaling::strong ? "Strong scaling: T1/(N*TN)" : "Weak scaling: T1/TN";
  }
  if (scaling == Scaling::workshop) note = "The workshop's inverse: TN/T1. Higher is slower";
  return {.values = {100 * scaling_efficiency(scaling, *t1, *n1, *t, *n)}, .note = note};
}

namespace {

Measure peak_for_savings(const RunFolder& run) {
  return is_on_gpu(run) ? gpu_peak(run) : cpu_peak(run);
}

}  // namespace

Measure memory_saved(const RunGroup& group, const RunGroup& base, Scaling) {
  const bool gpu = is_on_gpu(*group.runs[0]);
  if (gpu != is_on_gpu(*base.runs[0])) return absent("The memory of the baseline is from another kind of device");
  Measure saved = change(median_of(group, peak_for_savings), median_of(base, peak_for_savings));
  if (!saved.values.empty()) saved.values[0] = 0 - saved.values[0];  // no "-0"
  saved.note = gpu ? "" : "CPU memory, because the run has no GPU";
  return saved;
}

Measure speedup(const RunGroup& group, const RunGroup& base, Scaling) {
  return ratio(median_of(group, samples_per_second), median_of(base, samples_per_second));
}

Measure runtime_ratio(const RunGroup& group, const RunGroup& base, Scaling) {
  return ratio(median_of(group, runtime), median_of(base, runtime));
}

Measure runtime_change(const RunGroup& group, const RunGroup& base, Scaling) {
  return change(median_of(group, runtime), median_of(base, runtime));
}

}  // namespace tessera::measures
