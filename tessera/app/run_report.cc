// tessera report: compares finished runs in tables, and on an HTML page.
#include <filesystem>

#include "tessera/app/usage_errors.h"
#include "tessera/app/verbs.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/log/console.h"
#include "tessera/report/comparison.h"
#include "tessera/report/html_page.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/workshop/tables.h"

namespace tessera {

namespace {

Scaling scaling_of(Settings::Efficiency efficiency) {
  switch (efficiency) {
    case Settings::Efficiency::strong:
      return Scaling::strong;
    case Settings::Efficiency::weak:
      return Scaling::weak;
    case Settings::Efficiency::workshop:
      return Scaling::workshop;
    case Settings::Efficiency::automatic:
      break;
  }
  return Scaling::automatic;
}

std::string text_of(const std::vector<Sheet>& sheets, const RunSet& set, Settings::ReportFormat format,
                    const Terminal& terminal) {
  if (format == Settings::ReportFormat::json) {
    std::vector<Record> tables;
    for (const Sheet& sheet : sheets) tables.emplace_back(sheet_as_record(sheet));
    return to_pretty_json({{"schema", 1}, {"tables", std::move(tables)}, {"problems", set.problems}});
  }
  std::string text;
  for (const Sheet& sheet : sheets) {
    if (!text.empty()) text += "\n\n";
    text += format == Settings::ReportFormat::markdown ? sheet_as_markdown(sheet)
            : format == Settings::ReportFormat::csv    ? sheet_as_csv(sheet)
                                                       : sheet_for_terminal(sheet, terminal);
  }
  return text;
}

}  // namespace

int run_report(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  Console console = Console::of_process();
  const bool workshop = settings.tables == Settings::ReportTables::workshop;
  if (workshop && settings.html.empty()) {
    for (const char* name : {"rows", "columns", "baseline", "sort"}) {
      if (invocation.resolved.is_given(name)) {
        throw UsageError(invocation.resolved.where(name), "has no effect on the workshop's tables",
                         "Leave it out, or add --html FILE: it applies only to that page");
      }
    }
  }
  check_target(invocation.resolved, "output", settings.output);
  check_target(invocation.resolved, "html", settings.html);
  const RunSet set = read_runs(invocation.operands);
  if (set.runs.empty()) {
    for (size_t i = 0; i + 1 < set.problems.size(); ++i) console.note("warning: " + set.problems[i]);
    throw InputError("", set.problems.empty() ? "there is no run to report" : set.problems.back(),
                     "Give the output folder of a finished run");
  }
  for (const std::string& problem : set.problems) console.note("warning: " + problem);
  const Scaling scaling = scaling_of(settings.efficiency);
  const Comparison comparison = compare_runs(set, {.rows = split_list(settings.rows),
                                                   .columns = split_list(settings.columns),
                                                   .baseline = settings.baseline,
                                                   .sort = settings.sort,
                                                   .scaling = scaling});
  std::vector<Sheet> sheets = workshop ? workshop_sheets(set, scaling) : std::vector<Sheet>{comparison.sheet};
  if (!workshop && settings.columns.empty()) {
    if (auto planned = planned_sheet(comparison)) sheets.push_back(std::move(*planned));
  }
  const Terminal plain;
  const bool to_file = !settings.output.empty();
  const std::string text = text_of(sheets, set, settings.format, to_file ? plain : console.out_terminal());
  if (!settings.html.empty()) {
    write_file_atomically(settings.html,
                          html_page(set, comparison, workshop ? sheets : std::vector<Sheet>{}, TESSERA_VERSION));
  }
  if (to_file) {
    write_file_atomically(settings.output, text + "\n");
  } else {
    console.print(text);
  }
  if (!settings.html.empty()) {
    console.note("The page is " + std::filesystem::absolute(settings.html).lexically_normal().string());
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
