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
  const Settings& settings = invocation.settings();
  check_target(invocation.resolved, "svg", settings.svg);
  std::vector<NamedPlan> compared;
  for (const std::string& path : settings.compare) compared.push_back(read_plan(path));
  if (settings.model.empty()) {
    if (compared.size() < 2) {
      throw UsageError("--compare", "needs a second plan to compare with",
                       "Give two files, or the settings of a run, for example --model bloom-560m");
    }
    print_comparison(compared, console);
    return static_cast<int>(ExitCode::kDone);
  }
  const PlanReport report = plan_of_run(invocation.resolved, console);
  if (!settings.svg.empty()) {
    write_file_atomically(settings.svg, memory_picture(report));
    console.note("The picture is " + std::filesystem::absolute(settings.svg).lexically_normal().string());
  }
  if (!compared.empty()) {
    compared.push_back({"this plan", plan_record(report)});
    print_comparison(compared, console);
  } else if (settings.json) {
    console.print(to_json(plan_record(report)));
  } else {
    print_plan(report, console);
  }
  return static_cast<int>(report.excess().fits() ? ExitCode::kDone : ExitCode::kOutOfMemory);
}

}  // namespace tessera
