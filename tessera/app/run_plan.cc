// tessera plan: predicts the memory, the computation and the communication of a training run.
#include <nlohmann/json.hpp>

#include "tessera/app/verbs.h"
#include "tessera/base/error.h"
#include "tessera/log/console.h"
#include "tessera/plan/compare_plans.h"
#include "tessera/train/planned_run.h"

namespace tessera {

int run_plan(const Invocation& invocation) {
  Console console = Console::of_process();
  const std::string& compared = invocation.settings().compare;
  const Record before = compared.empty() ? Record() : read_plan(compared);
  const PlanReport report = plan_of_run(invocation.resolved, console);
  if (!compared.empty()) {
    print_comparison(before, plan_record(report), compared, console);
  } else if (invocation.settings().json) {
    console.print(to_json(plan_record(report)));
  } else {
    print_plan(report, console);
  }
  return static_cast<int>(report.excess().fits() ? ExitCode::kDone : ExitCode::kOutOfMemory);
}

}  // namespace tessera
