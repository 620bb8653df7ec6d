#include "tessera/report/html_page.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/text.h"
#include "tessera/report/charts.h"
#include "tessera/report/page_parts.h"

namespace tessera {

namespace {

// The most important figures of a single run, in large letters.
std::string tiles_of(const RunFolder& run) {
  std::string html;
  for (const char* name : {"eval_loss", "train_loss", "perplexity", "exact_match", "f1", "HasAns_f1", "NoAns_f1",
                           "samples_per_second", "tokens_per_second", "runtime", "gpu_peak", "cpu_peak", "ranks"}) {
    const Figure& figure = *find_figure(name);
    if (figure.name == "gpu_peak" && !is_on_gpu(run)) continue;
    const Measure measure = figure.of_run(run);
    if (measure.values.empty()) continue;
    html += fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", shown(measure.values[0], figure.unit),
                        html_escaped(figure.title));
  }
  return html.empty() ? "" : "<div class=\"tiles\">" + html + "</div>\n";
}

std::string problems_section(const std::vector<std::string>& problems) {
  if (problems.empty()) return "";
  std::string items;
  for (const std::string& problem : problems) items += "<li>" + html_escaped(problem) + "</li>";
  return "<section class=\"problems\" id=\"problems\"><h2>Problems while reading the runs</h2><ul>" + items +
         "</ul></section>\n";
}

std::string navigation(const std::vector<std::pair<std::string, std::string>>& sections) {
  std::string html = "<nav>";
  for (const auto& [id, title] : sections) html += fmt::format("<a href=\"#{}\">{}</a>", id, title);
  return html + "</nav>\n";
}

}  // namespace

std::string html_page(const RunSet& set, const Comparison& comparison, const std::vector<Sheet>& sheets,
                      const std::string& version) {
  const bool one = set.runs.size() == 1;
  const std::string title = one ? comparison.labels[0] : fmt::format("{} runs", set.runs.size());
  std::string sub = one ? set.runs[0].path : "";
  if (comparison.groups.size() > 1) sub = fmt::format("Baseline: {}", comparison.labels[comparison.baseline]);
  const std::vector<Cluster> clusters = clusters_of(comparison);

  std::vector<std::pair<std::string, std::string>> parts;
  std::string body;
  const auto add = [&](const char* id, const char* name, const std::string& html) {
    if (html.empty()) return;
    parts.emplace_back(id, name);
    body += html;
  };
  add("loss", "Loss and scores", loss_section(clusters));
  const bool shows_results = !one || !notes_of(comparison.sheet).empty();  // tiles replace the table of one run
  if (shows_results)
    add("results", "Results",
        section("results", "Results", "",
                sheet_as_html(comparison.sheet, one ? -1 : static_cast<int>(comparison.baseline))));
  add("speed", "Speed and memory", speed_section(clusters));
  if (const auto planned = planned_sheet(comparison)) {
    add("planned", "Planned and measured",
        section("planned", "Planned and measured",
                "Of the first rank: what was planned at the start of the run, and the median of its steps.",
                sheet_as_html(*planned, -1)));
  }
  std::string tables;
  for (const Sheet& sheet : sheets) tables += "<h3>" + html_escaped(sheet.title) + "</h3>\n" + sheet_as_html(sheet, -1);
  if (!tables.empty()) add("tables", "Workshop tables", section("tables", "Workshop tables", "", tables));
  add("settings", "Settings", settings_section(comparison));
  add("memory", "Memory", memory_section(clusters));
  add("phases", "Time and tokens", phases_section(clusters));
  add("runs", "Runs", runs_section(clusters));

  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  page += fmt::format("<title>{} - Tessera report</title>\n<style>{}</style></head>\n<body><main>\n",
                      html_escaped(title), page_style());
  page += fmt::format("<header><p class=\"eyebrow\">Tessera report</p><h1>{}</h1><p class=\"sub\">{}</p></header>\n",
                      html_label(title), html_label(sub));
  page += problems_section(set.problems) + navigation(parts);
  if (one) page += tiles_of(set.runs[0]);
  page += body;
  page += fmt::format("<footer>Written by tessera report, version {}. The page needs no network.</footer>\n",
                      html_escaped(version));
  return page + "</main></body></html>\n";
}

}  // namespace tessera
