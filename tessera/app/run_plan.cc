// tessera plan: predicts the memory, the computation and the communication of a training run.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/app/usage_errors.h"
#include "tessera/app/verbs.h"
#include "tessera/base/error.h"
#include "tessera/log/console.h"
#include "tessera/plan/compare_plans.h"
#include "tessera/plan/memory_picture.h"
#include "tessera/plan/plan_text.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/train/planned_run.h"

namespace tessera {

int run_plan(const Invocation& invocation) {
  Console console = Console::of_process();
  const std::string &svg = invocation.settings().svg, &compared = invocation.settings().compare;
  check_target(invocation.resolved, "svg", svg);
  const Record before = compared.empty() ? Record() : read_plan(compared);
  const PlanReport report = plan_of_run(invocation.resolved, console);
  if (!svg.empty()) {
    write_file_atomically(svg, memory_picture(report));
    console.note("The picture is " + std::filesystem::absolute(svg).lexically_normal().string());
  }
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
