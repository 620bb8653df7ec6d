// Compares plans.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/base/record.h"
#include "tessera/log/console.h"

namespace tessera {

struct NamedPlan {
  std::string name;
  Record plan;  // of plan_record()
};

// A plan that plan --json has written to the file `path`. Throws InputError if the file holds no plan.
NamedPlan read_plan(const std::string& path);
// Prints the settings that differ, and the memory, time and bytes of two or more plans. Two plans also have ratios.
void print_comparison(const std::vector<NamedPlan>& plans, Console& console);

}  // namespace tessera
