#include <tessera/plan.h>

#include "tessera/plan/plan_text.h"

#include <nlohmann/json.hpp>

#include "tessera/api/call.h"
#include "tessera/api/options.h"
#include "tessera/device/ledger.h"
#include "tessera/train/planned_run.h"

namespace tessera::v0 {

namespace {

constexpr Phase kPlannedPhases[] = {Phase::load, Phase::step, Phase::evaluation, Phase::save, Phase::resume};

std::string text_of_plan(const PlanReport& report) {
  std::string text;
  const auto to = [&] { return Console::Output{{}, [&](std::string_view part) { text += part; }, [] { return 80; }}; };
  Console console(to(), to());
  print_plan(report, console);
  return text;
}

OptionValue option_value(const Record& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

Plan public_plan(const PlanReport& report) {
  const Record record = plan_record(report);
  const tessera::Plan& first = report.first;
  const auto known = [&](const char* key) {
    return record.at(key).is_null() ? std::nullopt : std::optional(record.at(key).get<int64_t>());
  };
  Plan plan;
  if (!record.at("fits").is_null()) plan.fits = record.at("fits").get<bool>();
  plan.memory_limit_bytes = known("memory_bytes");
  plan.peak_bytes = first.peak_bytes();
  plan.device_peak_bytes = first.device.peak_total();
  plan.host_peak_bytes = first.host.peak_total();
  plan.file_bytes = first.file_bytes;
  for (const Phase phase : kPlannedPhases) {
    for (int c = 0; c < kNumCategories; ++c) {
      const auto category = static_cast<Category>(c);
      plan.bytes.push_back({tessera::name_of(phase), tessera::name_of(category), first.device.peak(phase, category),
                            first.host.peak(phase, category)});
    }
  }
  plan.num_parameters = first.num_parameters;
  plan.num_trainable_parameters = first.num_trainable_parameters;
  plan.step_flops = record.at("step_flops").get<double>();
  plan.step_bytes_sent = first.step_bytes_sent;
  if (report.fit) {
    plan.estimated_step_s = report.fit->best->time.step_s;
    const Record found = searched_settings(report.settings);
    for (const auto& [name, value] : found.items()) {
      plan.settings.set(name, option_value(value));
    }
  }
  plan.text = text_of_plan(report);
  plan.json = to_json(record);
  return plan;
}

}  // namespace

Plan plan(const Options& options, const Log& log) {
  Messages messages(log);
  return guarded(messages, [&] {
    Console console = messages.console();
    return public_plan(plan_of_run(options_of_plan(options, console), console));
  });
}

}  // namespace tessera::v0
