// Settings of the comparison that `tessera report` makes.
#include "tessera/settings/setting_declarations.h"

namespace tessera::declaring {

std::vector<Setting> report_settings() {
  return {
      choice("tables", &S::tables, kReport,
             {{"comparison", S::ReportTables::comparison}, {"workshop", S::ReportTables::workshop}},
             "one table of all runs, or the workshop's twelve tables, filled by the experiments of the runs"),
      text("rows", &S::rows, kReport, "KEY[,KEY...]",
           "settings or keys of summary.json that name the rows; empty: the settings that differ"),
      text("columns", &S::columns, kReport, "NAME[,NAME...]",
           "figures, settings or keys of summary.json for the columns; empty: losses, scores, speed, memory and the "
           "figures derived from them"),
      text("baseline", &S::baseline, kReport, "RUN|VALUE",
           "the reference for speed-up, efficiency and saved memory: a run, an experiment or a row; empty: the "
           "experiment named baseline, otherwise the run with the fewest ranks"),
      text("sort", &S::sort, kReport, "[-]NAME",
           "order the rows by this figure or setting, with - from the highest down; empty: as the folders are given"),
      choice(
          "efficiency", &S::efficiency, kReport,
          {{"auto", S::Efficiency::automatic},
           {"strong", S::Efficiency::strong},
           {"weak", S::Efficiency::weak},
           {"workshop", S::Efficiency::workshop}},
          "scaling efficiency: T1/(N*TN) for the same work, T1/TN for the same work on each rank, whichever applies; "
          "or the workshop's inverse, TN/T1"),
      choice("format", &S::format, kReport,
             {{"table", S::ReportFormat::table},
              {"markdown", S::ReportFormat::markdown},
              {"csv", S::ReportFormat::csv},
              {"json", S::ReportFormat::json}},
             "format of the tables"),
      text("output", &S::report_file, kReport, "FILE", "write the tables to this file; empty: standard output"),
      text("html", &S::html, kReport, "FILE", "also write one self-contained page with tables and charts"),
  };
}

}  // namespace tessera::declaring
