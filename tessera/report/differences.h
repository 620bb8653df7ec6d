// Differences among runs: in settings, and in identity (model, data, machine and version of Tessera).
#pragma once

#include <string>
#include <vector>

#include "tessera/report/figures.h"

namespace tessera {

// The names of settings whose values differ among the runs, sorted. Leaves out settings that change no result
// (output_dir, experiment, tracker, ...). If a run lacks a setting, this counts as a different value. Ignores runs
// whose settings are not known at all.
std::vector<std::string> settings_that_differ(const std::vector<const RunFolder*>& runs);

// Facts whose differences a comparison must show.
struct Identity {
  std::string model, data, machine, version;
  bool operator==(const Identity&) const = default;
};
Identity identity_of(const RunFolder& run);
// "The data differs from x: here train.json, 500 samples; there train.json, 1,000 samples": one text for each part of
// the identity that differs. If the numbers of samples differ, the data counts as different, even if the only reason is
// that the number of samples grows with the ranks.
std::vector<std::string> unlike(const RunFolder& run, const RunFolder& other, const std::string& name_of_other);

// Groups equal runs: they have the same identity, experiment, number of ranks and settings. The seed and settings that
// change no result may differ. A run whose settings are not known is alone in its group. The groups are in the order of
// their first runs.
std::vector<RunGroup> groups_of(const std::vector<const RunFolder*>& runs);

// "strategy=zero1, nproc=2": the values of the keys.
std::string label_of(const RunFolder& run, const std::vector<std::string>& keys);
// The value of one key: "zero1".
std::string label_value(const RunFolder& run, const std::string& key);

}  // namespace tessera
