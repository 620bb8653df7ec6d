// Returns the figures of a run, and compares groups of runs with a baseline. Memory is in MiB.
#pragma once

#include <cstddef>
#include <string>

#include "tessera/report/figures.h"

namespace tessera::measures {

Measure absent(std::string note = "");
// Returns a number of summary.json, times `scale`. If the key's value is null, returns NaN with a note. If the key is
// missing, returns a measure without a value.
Measure of_key(const RunFolder& run, const char* key, double scale = 1);

// Memory. If the run has samples of --memory-log, the values come from these samples. GPU values are from the GPU with
// the highest peak. If the ranks of a run are on CPUs, the functions for the GPU return the sampled memory of the CPU.
// Without samples, gpu_peak(), gpu_average() and cpu_peak() use other keys of summary.json. If a value is not from its
// usual source, its note names the source.
Measure gpu_peak(const RunFolder& run);
Measure gpu_average(const RunFolder& run);
Measure gpu_mode(const RunFolder& run);
Measure cpu_peak(const RunFolder& run);
Measure cpu_average(const RunFolder& run);
Measure cpu_mode(const RunFolder& run);

// The figures that the callbacks of KAUST's workshop report (workshop/callback_figures.h). If a run does not have these
// figures, the functions return similar figures with a note. Exception: the callbacks do not report the figure of
// gpu_utilization_peak().
Measure callback_samples(const RunFolder& run);
Measure callback_memory(const RunFolder& run);
Measure gpu_utilization(const RunFolder& run);
Measure gpu_utilization_peak(const RunFolder& run);

Measure eval_loss_of_epoch(const RunFolder& run, size_t epoch);
// e to the power of the eval loss, if the run has no scores of answers.
Measure perplexity(const RunFolder& run);
// The measured time of a step, divided by the planned time.
Measure step_ratio(const RunFolder& run);
Measure steps_per_epoch(const RunFolder& run);
Measure runtime(const RunFolder& run);
Measure samples_per_second(const RunFolder& run);
Measure ranks(const RunFolder& run);

Measure speedup(const RunGroup& group, const RunGroup& base, Scaling);
Measure efficiency(const RunGroup& group, const RunGroup& base, Scaling scaling);
Measure memory_saved(const RunGroup& group, const RunGroup& base, Scaling);
Measure runtime_ratio(const RunGroup& group, const RunGroup& base, Scaling);
Measure runtime_change(const RunGroup& group, const RunGroup& base, Scaling);

}  // namespace tessera::measures
