#include "tessera/report/page_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/math.h"
#include "tessera/base/text.h"
#include "tessera/report/charts.h"

namespace tessera {

namespace {

// The folder of a run, as page_parts.h defines it.
std::string folder_of(const PageRun& page_run) {
  const std::string& name = page_run.run->experiment.empty() ? page_run.run->path : page_run.run->experiment;
  const size_t slash = name.rfind('/');
  return slash == name.npos ? "" : name.substr(0, slash);
}

std::vector<PageRun> page_runs(const Comparison& comparison) {
  std::vector<PageRun> runs;
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    const RunGroup& group = comparison.groups[i];
    for (const RunFolder* run : group.runs) {
      std::string label = comparison.labels[i];
      if (group.runs.size() > 1) label += fmt::format(", seed {}", text_of_key(*run, "seed"));
      runs.push_back({run, label, label, 0, i == comparison.baseline, comparison.best && comparison.best->group == i});
    }
  }
  return runs;
}

// Sets the short labels of a cluster's runs: the labels without their common start. The common start ends at a slash.
void shorten(Cluster& cluster) {
  if (cluster.runs.size() < 2) return;
  std::string common = cluster.runs[0].label.substr(0, cluster.runs[0].label.rfind('/') + 1);
  for (const PageRun& run : cluster.runs) {
    while (!common.empty() && !run.label.starts_with(common)) {
      const size_t slash = common.size() < 2 ? common.npos : common.rfind('/', common.size() - 2);
      common.resize(slash == common.npos ? 0 : slash + 1);
    }
  }
  for (PageRun& run : cluster.runs) run.short_label = run.label.substr(common.size());
}

std::vector<Cluster> by_folder(const std::vector<PageRun>& runs) {
  std::vector<Cluster> clusters;
  for (const PageRun& run : runs) {
    const std::string folder = folder_of(run);
    const auto it = std::find_if(clusters.begin(), clusters.end(), [&](const Cluster& c) { return c.title == folder; });
    if (it != clusters.end()) {
      it->runs.push_back(run);
    } else {
      clusters.push_back({folder, {run}});
    }
  }
  // If a run is alone in its folder, such as a baseline, it joins the cluster of a subfolder: the first such cluster
  // with fewer than kNumColors runs. Runs without a folder do not join other clusters.
  for (size_t i = 0; i < clusters.size();) {
    const std::string below = clusters[i].title + "/";
    const auto child = std::find_if(clusters.begin(), clusters.end(), [&](const Cluster& c) {
      return c.title.starts_with(below) && c.runs.size() < kNumColors;
    });
    if (clusters[i].runs.size() > 1 || clusters[i].title.empty() || child == clusters.end()) {
      ++i;
      continue;
    }
    child->runs.insert(child->runs.begin(), clusters[i].runs[0]);
    clusters.erase(clusters.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return clusters;
}

}  // namespace

std::vector<Cluster> clusters_of(const Comparison& comparison) {
  const std::vector<PageRun> runs = page_runs(comparison);
  std::vector<Cluster> found = runs.size() <= kNumColors ? std::vector<Cluster>{{"", runs}} : by_folder(runs);
  std::vector<Cluster> clusters;
  for (const Cluster& cluster : found) {
    const size_t num_parts = ceil_divide(cluster.runs.size(), kNumColors);
    for (size_t part = 0; part < num_parts; ++part) {
      const size_t begin = part * cluster.runs.size() / num_parts, end = (part + 1) * cluster.runs.size() / num_parts;
      Cluster one{cluster.title,
                  {cluster.runs.begin() + static_cast<std::ptrdiff_t>(begin),
                   cluster.runs.begin() + static_cast<std::ptrdiff_t>(end)}};
      if (num_parts > 1)
        one.title += fmt::format("{}part {} of {}", one.title.empty() ? "" : ", ", part + 1, num_parts);
      for (size_t i = 0; i < one.runs.size(); ++i) one.runs[i].color = i;
      shorten(one);
      clusters.push_back(std::move(one));
    }
  }
  return clusters;
}

std::string html_label(const std::string& text) {
  std::string label;
  for (const char c : html_escaped(text)) {
    label += c;
    if (c == '/' || c == '=') label += "<wbr>";
  }
  return label;
}

std::string section(const std::string& id, const std::string& title, const std::string& hint, const std::string& body) {
  return fmt::format("<section id=\"{}\"><h2>{}</h2>{}\n{}</section>\n", id, html_escaped(title),
                     hint.empty() ? "" : "<p class=\"hint\">" + html_escaped(hint) + "</p>", body);
}

std::string sheet_as_html(const Sheet& sheet, int base_row) {
  const std::vector<std::string> notes = notes_of(sheet);
  const auto marks = [&](const std::vector<std::string>& of_cell) {
    std::string text;
    for (size_t i = 0; i < notes.size(); ++i) {
      if (std::find(of_cell.begin(), of_cell.end(), notes[i]) == of_cell.end()) continue;
      text += (text.empty() ? "" : " ") + mark_of(i);
    }
    return text.empty() ? "" : "<sup>" + text + "</sup>";
  };
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const SheetColumn& column : sheet.columns) {
    html += fmt::format("<th{}>{}{}</th>", column.is_number ? " class=\"n\"" : "",
                        column.is_number ? html_escaped(column.title) : html_label(column.title), marks(column.notes));
  }
  html += "</tr></thead><tbody>\n";
  for (size_t r = 0; r < sheet.rows.size(); ++r) {
    html += static_cast<int>(r) == base_row ? "<tr class=\"base\">" : "<tr>";
    for (size_t c = 0; c < sheet.rows[r].size(); ++c) {
      const Cell& cell = sheet.rows[r][c];
      html += fmt::format("<td{}>{}{}{}</td>", sheet.columns[c].is_number ? " class=\"n\"" : "", html_label(cell.text),
                          c == 0 && sheet.best_row == r ? kBestBadge : "", marks(cell.notes));
    }
    html += "</tr>\n";
  }
  html += "</tbody></table></div>\n";
  if (notes.empty() && sheet.remarks.empty()) return html;
  html += "<ul class=\"notes\">";
  for (size_t i = 0; i < notes.size(); ++i) {
    html += fmt::format("<li><sup>{}</sup> {}</li>", mark_of(i), html_escaped(notes[i]));
  }
  for (const std::string& remark : sheet.remarks) html += "<li>" + html_escaped(remark) + "</li>";
  return html + "</ul>\n";
}

std::string settings_section(const Comparison& comparison) {
  std::vector<std::string> keys = comparison.differing;
  const bool repeated = std::any_of(comparison.groups.begin(), comparison.groups.end(),
                                    [](const RunGroup& group) { return group.runs.size() > 1; });
  if (repeated) keys.push_back("seed");
  Sheet sheet;
  const auto value_of = [](const RunGroup& group, const std::string& key) {
    std::set<std::string> values;
    for (const RunFolder* run : group.runs) values.insert(text_of_key(*run, key));
    const std::string text = joined(values);
    return Cell{.text = text.empty() ? "-" : text};
  };
  std::string title = "Settings that differ", hint = "The other settings are the same in all runs.";
  if (comparison.groups.size() == 1) {
    title = "Settings", hint = "";
    sheet.columns = {{"setting", ""}, {"value", ""}};
    for (const auto& [name, value] : comparison.groups[0].runs[0]->settings)
      sheet.rows.push_back({{.text = name}, {.text = value}});
    if (sheet.rows.empty()) return "";
    return section("settings", title, hint,
                   "<details><summary>All settings of the run</summary>" + sheet_as_html(sheet, -1) + "</details>");
  }
  if (keys.empty()) return "";
  const int base = static_cast<int>(comparison.baseline);
  if (comparison.groups.size() <= 6) {  // one column for each group of equal runs
    sheet.columns.push_back({"setting", ""});
    for (const std::string& label : comparison.labels) sheet.columns.push_back({label, ""});
    for (const std::string& key : keys) {
      std::vector<Cell> row{{.text = key}};
      for (const RunGroup& group : comparison.groups) row.push_back(value_of(group, key));
      sheet.rows.push_back(std::move(row));
    }
    return section("settings", title, hint, sheet_as_html(sheet, -1));
  }
  sheet.columns.push_back({"run", ""});
  for (const std::string& key : keys) sheet.columns.push_back({key, ""});
  for (size_t i = 0; i < comparison.groups.size(); ++i) {
    std::vector<Cell> row{{.text = comparison.labels[i]}};
    for (const std::string& key : keys) row.push_back(value_of(comparison.groups[i], key));
    sheet.rows.push_back(std::move(row));
  }
  return section("settings", title, hint, sheet_as_html(sheet, base));
}

std::string runs_section(const std::vector<Cluster>& clusters) {
  Sheet sheet;
  for (const char* title : {"run", "folder", "ranks", "model", "data", "machine", "version"}) {
    sheet.columns.push_back({title, ""});
  }
  for (const Cluster& cluster : clusters) {
    for (const PageRun& page_run : cluster.runs) {
      const Identity identity = identity_of(*page_run.run);
      std::vector<Cell> row;
      for (const std::string& text : {page_run.label, page_run.run->path, text_of_key(*page_run.run, "world_size"),
                                      identity.model, identity.data, identity.machine, identity.version}) {
        row.push_back({.text = text.empty() ? "-" : text});
      }
      sheet.rows.push_back(std::move(row));
    }
  }
  return section("runs", "Runs", "Where each run is, and what it ran with.", sheet_as_html(sheet, -1));
}

}  // namespace tessera
