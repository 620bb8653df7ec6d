// Compares two plans.
#pragma once

#include "tessera/base/record.h"
#include "tessera/log/console.h"

namespace tessera {

// A plan that plan --json has written to a file. Throws InputError if the file holds no plan.
Record read_plan(const std::string& path);
// Prints the settings that differ, and the memory, time and bytes of both plans with their ratios. The records are
// those of plan_record().
void print_comparison(const Record& before, const Record& now, const std::string& name_of_before, Console& console);

}  // namespace tessera
