// Declarations of the settings of `tessera report`.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> report_settings() {
  return {
      choice("tables", &S::tables, kReport,
             {{"comparison", S::ReportTables::comparison}, {"workshop", S::ReportTables::workshop}},
             "comparison: one table of all runs; workshop: the twelve tables of docs/workshop.md. There, the label "
             "--experiment of a run selects the cells that the run fills"),
      text("rows", &S::rows, kReport, "KEY[,KEY...]",
           "Settings or keys of summary.json that name the rows; empty: the settings that differ, or the runs' labels"),
      text("columns", &S::columns, kReport, "NAME[,NAME...]",
           "Figures, settings or keys of summary.json for the columns; empty: losses, scores, speed, memory and the "
           "figures derived from them"),
      text("baseline", &S::baseline, kReport, "RUN|VALUE",
           "The reference for speed-up, efficiency and saved memory: a run, an experiment or a row; empty: the "
           "experiment named baseline, otherwise the run with the fewest ranks"),
      text("sort", &S::sort, kReport, "[-]NAME",
           "Sort the rows by this figure or setting, the lowest first; with - before the name, the highest first; "
           "empty: the order of the folders"),
      choice(
          "efficiency", &S::efficiency, kReport,
          {{"auto", S::Efficiency::automatic},
           {"strong", S::Efficiency::strong},
           {"weak", S::Efficiency::weak},
           {"workshop", S::Efficiency::workshop}},
          "Definition of the scaling efficiency. strong: T1/(N*TN), for the same total work; weak: T1/TN, for the same "
          "work on each rank; auto: strong or weak, according to the work of the runs; workshop: the inverse, TN/T1"),
      choice("format", &S::format, kReport,
             {{"table", S::ReportFormat::table},
              {"markdown", S::ReportFormat::markdown},
              {"csv", S::ReportFormat::csv},
              {"json", S::ReportFormat::json}},
             "Format of the tables"),
      text("html", &S::html, kReport, "FILE", "Also write one self-contained page with tables and charts"),
  };
}

}  // namespace tessera::declaring
