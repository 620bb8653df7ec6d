#include "tessera/plan/compare_plans.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/log/table.h"

namespace tessera {
namespace {

// The value at "time/step_s"; null if it is missing.
Record at(const Record& plan, const std::string& path) {
  const Record* found = &plan;
  for (size_t begin = 0; begin <= path.size() && found->is_object();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const auto next = found->find(path.substr(begin, end - begin));
    if (next == found->end()) return nullptr;
    found = &*next;
    begin = end + 1;
  }
  return *found;
}

std::string text_of(const Record& value) {
  if (value.is_null()) return "not known";
  return value.is_string() ? printable(value.get<std::string>()) : to_json(value);
}

}  // namespace

NamedPlan read_plan(const std::string& path) {
  Record plan = record_from_json(read_file(path, {}), path);
  if (plan.is_object() && at(plan, "first_rank/device_peak_bytes").is_number() && plan.contains("batch_size"))
    return {path, std::move(plan)};
  throw InputError(path, "is not a plan", "Write one with tessera plan … --json > FILE");
}

void print_comparison(const std::vector<NamedPlan>& plans, Console& console) {
  const bool pair = plans.size() == 2;
  std::vector<Column> columns{{""}};
  for (const NamedPlan& one : plans) columns.push_back({printable(one.name), Align::kRight});
  if (pair) columns.push_back({"ratio", Align::kRight});
  Table table(columns);
  // Adds a row if any two plans differ, or `always` if a plan has the value.
  const auto row = [&](const char* name, const char* key, const auto& shown, bool always) {
    std::vector<std::string> cells{name};
    std::vector<Record> values;
    for (const NamedPlan& one : plans) {
      values.push_back(at(one.plan, key));
      cells.push_back(shown(values.back()));
    }
    if (pair) {
      const bool both = always && values[0].is_number() && values[1].is_number() && values[0].get<double>() > 0;
      cells.push_back(both ? fmt::format("{:.3g}", values[1].get<double>() / values[0].get<double>()) : "");
    }
    const auto is_zero = [](const Record& value) { return !value.is_number() || value.get<double>() == 0; };
    const auto is_first = [&](const Record& value) { return value == values[0]; };
    if (always ? !std::ranges::all_of(values, is_zero) : !std::ranges::all_of(values, is_first)) table.row(cells);
  };
  for (const char* key :
       {"model", "world_size", "ranks_per_node", "device", "precision", "matmul_precision", "strategy", "gather_dtype",
        "offload", "activation_checkpointing", "batch_size", "grad_accum", "batch_tokens", "machine/name"}) {
    row(key, key, text_of, false);
  }
  table.rule();
  const auto numbers = [&](const char* name, const char* key, const auto& shown) {
    const auto text = [&](const Record& value) { return value.is_number() ? shown(value.get<double>()) : "not known"; };
    row(name, key, text, true);
  };
  const auto bytes = [](double value) { return format_bytes(static_cast<int64_t>(value)); };
  const auto seconds = [](double value) { return fmt::format("{:.4g} s", value); };
  numbers("device memory", "first_rank/device_peak_bytes", bytes);
  numbers("host memory", "first_rank/host_peak_bytes", bytes);
  numbers("files", "first_rank/file_bytes", bytes);
  numbers("sent per step", "step_bytes_sent", bytes);
  numbers("a step", "time/step_s", seconds);
  numbers("tokens/s", "time/tokens_per_s", [](double value) { return format_count(static_cast<int64_t>(value)); });
  numbers("an epoch", "time/epoch_s", seconds);
  numbers("an evaluation", "time/evaluation_s", seconds);
  numbers("a checkpoint", "time/checkpoint_s", seconds);
  console.print(table.render(console.out_terminal()));
}

}  // namespace tessera
