// summary.json: the outcome of a run, for people and scripts.
#pragma once

#include <string>

#include "tessera/report/record.h"

namespace tessera {

// Writes the record as indented JSON, keys in its order. The file appears whole or not at all; RunError when it cannot.
void write_summary(const std::string& path, const Record& summary);

}  // namespace tessera
