/// @file
/// The memory of a run, before it starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/export.h>
#include <tessera/log.h>
#include <tessera/options.h>

TESSERA_BEGIN_NAMESPACE

/// Bytes of a category of memory in a phase of a run, at the peak of the category.
struct PlannedBytes {
  std::string phase;     ///< "load", "step", "evaluation", "save", "resume"
  std::string category;  ///< "parameters", "gradients", "optimizer", "activations", …
  std::int64_t device_bytes = 0, host_bytes = 0;
};

/// The plan of a training run: what its first rank needs.
struct Plan {
  std::optional<bool> fits;  ///< nothing if the memory of the planned machine is not known
  std::int64_t peak_bytes = 0, device_peak_bytes = 0, host_peak_bytes = 0;
  std::int64_t file_bytes = 0;  ///< of arrays offloaded to files
  std::optional<std::int64_t> memory_limit_bytes;
  std::vector<PlannedBytes> bytes;
  std::int64_t num_parameters = 0, num_trainable_parameters = 0;
  double step_flops = 0;
  std::int64_t step_bytes_sent = 0;        ///< by the rank, with several ranks
  std::optional<double> estimated_step_s;  ///< with "fit": predicted, perhaps for a typical machine
  Options settings;                        ///< with "fit": the settings that were found
  std::string text;                        ///< what `tessera plan` prints
  std::string json;                        ///< what `tessera plan --json` prints
};

/// Plans a run. The options are those of `tessera plan`; only "model" is required. Touches no device.
TESSERA_API Plan plan(const Options& options, const Log& log = {});

TESSERA_END_NAMESPACE
