// Differences among runs: in their settings, and in model, data, machine or program version, which make two runs
// unequal.
#pragma once

#include <string>
#include <vector>

#include "tessera/compare/figures.h"

namespace tessera {

// Settings whose values differ among the runs, without those that name or place a run (output_dir, experiment, ...), by
// name. A run without the setting differs from one with it, except if the run has no settings at all.
std::vector<std::string> settings_that_differ(const std::vector<const RunFolder*>& runs);

// Facts whose differences a comparison must show.
struct Identity {
  std::string model, data, machine, version;
  bool operator==(const Identity&) const = default;
};
Identity identity_of(const RunFolder& run);
// "other data than x: train.json, 500 samples; there train.json, 1,000 samples", one text for each kind that differs.
// If only the number of samples differs, for example because it grows with the ranks, this is other data too.
std::vector<std::string> unlike(const RunFolder& run, const RunFolder& other, const std::string& name_of_other);

// Runs with equal settings except the seed and equal identity become one group. In the order of their first runs.
std::vector<RunGroup> groups_of(const std::vector<const RunFolder*>& runs);

// "strategy=zero1, nproc=2": the values of the keys.
std::string label_of(const RunFolder& run, const std::vector<std::string>& keys);
// The value of one key: "zero1".
std::string label_value(const RunFolder& run, const std::string& key);

}  // namespace tessera
