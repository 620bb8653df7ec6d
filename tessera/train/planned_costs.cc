#include "tessera/train/planned_costs.h"

#include <nlohmann/json.hpp>

#include "tessera/plan/machines.h"
#include "tessera/settings/engine_options.h"

namespace tessera {

PlannedCosts planned_costs(const ModelConfig& config, const Settings& settings, const WorkBounds& largest,
                           const std::function<WorkBounds()>& typical, const PlannedRank& rank) {
  PlannedCosts planned;
  planned.plan = plan_training(config, settings, largest, rank);
  if (!typical) return planned;
  Settings here = settings;
  here.machine.clear();  // it is only for the search. Steps are compared with this machine
  const std::optional<Machine> machine = planned_machine(here, rank);
  if (!machine || !unknown_speeds_of(*machine, rank, settings).empty()) return planned;
  WorkBounds work = typical();
  work.evaluation = {};  // only the time of a step is compared
  planned.time = step_time(config, engine_options(settings), work, rank, *machine);
  planned.machine = machine->name;
  planned.source = machine->source;
  return planned;
}

Record record_of(const PlannedCosts& planned) {
  Record record{{"device_peak_bytes", planned.plan.device.peak_total()},
                {"host_peak_bytes", planned.plan.host.peak_total()},
                {"file_bytes", planned.plan.file_bytes}};
  if (!planned.time) return record;
  record["step_s"] = planned.time->step_s;
  for (int i = 0; i < kNumStepParts; ++i) {
    record[name_of(StepPart(i)) + std::string("_s")] = planned.time->part_s[static_cast<size_t>(i)];
  }
  record["machine"] = planned.machine;
  record["source"] = planned.source;
  return record;
}

}  // namespace tessera
