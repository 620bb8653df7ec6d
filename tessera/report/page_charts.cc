// The sections with charts and bars of the page that `tessera report --html` makes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/math.h"
#include "tessera/base/text.h"
#include "tessera/report/charts.h"
#include "tessera/report/page_parts.h"

namespace tessera {

namespace {

constexpr size_t kOther = kNumColors;  // the grey of a bar's last part, which stands for everything else

std::string mib_text(double mib) {
  return std::isfinite(mib) && std::abs(mib) < 1e12 ? format_bytes(std::llround(mib * kMiB)) : "-";
}

std::string seconds_text(double seconds) {
  return seconds < 90 ? format_rate(seconds) + " s" : format_clock(seconds);
}

// A part of a horizontal bar.
struct Part {
  size_t color;
  double value;
  std::string title;  // the tooltip
};
// Returns a bar as HTML. The width of a part is its value in percent of `longest`, the value of the longest bar.
std::string stack(const std::vector<Part>& parts, double longest) {
  std::string html = "<div class=\"stack\">";
  for (const Part& part : parts) {
    const double width = longest > 0 ? 100 * part.value / longest : 0;
    if (!(width >= 0.05)) continue;
    html += fmt::format("<i class=\"c{}\" style=\"width:calc({:.2f}% - 2px)\" title=\"{}\"></i>", part.color, width,
                        html_escaped(part.title));
  }
  return html + "</div>";
}

std::string legend(const std::vector<std::pair<size_t, std::string>>& items, bool lines) {
  std::string html = lines ? "<ul class=\"legend lines\">" : "<ul class=\"legend\">";
  for (const auto& [color, name] : items) {
    html += fmt::format("<li><i class=\"c{}\"></i>{}</li>", color, html_label(name));
  }
  return html + "</ul>\n";
}

std::string heading(const Cluster& cluster, const char* element) {
  if (cluster.title.empty()) return "";
  return fmt::format("<{0}{2}>{1}</{0}>\n", element, html_label(cluster.title),
                     element[0] == 'b' ? " class=\"wide\"" : "");
}

enum class Curves { losses, speeds };

// Charts of the losses, or of the learning rate and the speed.
std::string charts_of(const Cluster& cluster, Curves curves, bool small) {
  struct Kind {
    ChartOptions options;
    std::vector<Curve> curves{};
  };
  Kind loss{{.title = "Training loss", .x_title = "step", .small = small}};
  Kind eval{{.title = "Evaluation loss", .x_title = "step", .markers = true, .small = small}};
  Kind rate{{.title = "Learning rate", .x_title = "step", .from_zero = true, .small = small}};
  Kind speed{
      {.title = "Samples per second", .x_title = "seconds since the first step", .from_zero = true, .small = small}};
  for (const PageRun& page_run : cluster.runs) {
    const auto curve = [&] { return Curve{page_run.short_label, page_run.color, {}, {}}; };
    Curve l = curve(), e = curve(), r = curve(), s = curve();
    for (const TrainPoint& point : page_run.run->train) {
      const auto step = static_cast<double>(point.step);
      l.x.push_back(step), l.y.push_back(point.loss);
      r.x.push_back(step), r.y.push_back(point.learning_rate);
      s.x.push_back(point.runtime_s), s.y.push_back(point.samples_per_second);
    }
    for (const EvalPoint& point : page_run.run->evals) {
      e.x.push_back(static_cast<double>(point.step)), e.y.push_back(point.loss);
    }
    loss.curves.push_back(std::move(l)), eval.curves.push_back(std::move(e));
    rate.curves.push_back(std::move(r)), speed.curves.push_back(std::move(s));
  }
  std::string html;
  for (Kind* kind : curves == Curves::losses ? std::array{&loss, &eval} : std::array{&rate, &speed}) {
    html += line_chart(std::move(kind->curves), kind->options);
  }
  return html;
}

// Returns two charts of memory over time. For each run, the first chart shows the GPU with the highest peak. The second
// chart shows the CPU memory of the node with the highest peak. If the page has only one run, the first chart shows up
// to kNumColors of its GPUs.
std::string memory_charts_of(const Cluster& cluster, bool one_run, bool small) {
  std::vector<Curve> gpu, cpu;
  size_t color = 0;
  const auto highest = [](const MemorySeries& series) {
    return *std::max_element(series.mib.begin(), series.mib.end());
  };
  const auto curve = [](const std::string& name, size_t c, const MemorySeries& series) {
    Curve result{name, c, series.seconds, series.mib};
    for (double& mib : result.y) mib /= 1024;
    return result;
  };
  for (const PageRun& page_run : cluster.runs) {
    const MemorySeries *most = nullptr, *most_cpu = nullptr;
    for (const MemorySeries& series : page_run.run->memory) {
      if (series.mib.empty()) continue;
      if (series.name.starts_with("CPU")) {
        if (!most_cpu || highest(series) > highest(*most_cpu)) most_cpu = &series;
      } else if (one_run && color < kNumColors) {
        gpu.push_back(curve(series.name, color++, series));
      } else if (!most || highest(series) > highest(*most)) {
        most = &series;
      }
    }
    if (most_cpu) cpu.push_back(curve(page_run.short_label, page_run.color, *most_cpu));
    if (most && !one_run) gpu.push_back(curve(page_run.short_label + ", " + most->name, page_run.color, *most));
  }
  return line_chart(std::move(gpu),
                    {.title = "GPU memory (GiB)", .x_title = "seconds", .from_zero = true, .small = small}) +
         line_chart(std::move(cpu), {.title = "CPU memory of a node's processes (GiB)",
                                     .x_title = "seconds",
                                     .from_zero = true,
                                     .small = small});
}

// The categories of memory that have their own part in a bar, in this order. All other categories together are "other".
constexpr std::array<const char*, 7> kCategories{"parameters", "master",      "gradients",    "optimizer",
                                                 "gathered",   "activations", "communication"};

std::vector<Part> memory_parts(const RunFolder& run, const std::string& key) {
  const Record* found = find_record(run.summary, key);
  const Record ledger = found ? *found : Record::object();
  std::vector<Part> parts;
  double other = 0;
  for (size_t i = 0; i < kCategories.size(); ++i) parts.push_back({i, 0, kCategories[i]});
  for (const std::string& name : keys_of(ledger)) {
    const double mib = std::max(0.0, find_number(ledger, name).value_or(0) / kMiB);
    const auto it = std::find(kCategories.begin(), kCategories.end(), name);
    if (it != kCategories.end()) {
      parts[static_cast<size_t>(it - kCategories.begin())].value = mib;
    } else if (name != "total") {
      other += mib;
    }
  }
  parts.push_back({kOther, other, "other"});
  for (Part& part : parts) part.title += " " + mib_text(part.value);
  return parts;
}

double sum_of(const std::vector<Part>& parts) {
  double sum = 0;
  for (const Part& part : parts) sum += part.value;
  return sum;
}

std::string memory_bars(const std::vector<Cluster>& clusters) {
  const std::array<std::pair<const char*, const char*>, 2> kinds{
      {{"planned", "planned_ledger_peak_bytes"}, {"measured", "ledger_peak_bytes"}}};
  double longest = 0;
  std::array<bool, kCategories.size() + 1> used{};
  for (const Cluster& cluster : clusters) {
    for (const PageRun& page_run : cluster.runs) {
      for (const auto& [name, key] : kinds) {
        const std::vector<Part> parts = memory_parts(*page_run.run, key);
        longest = std::max(longest, sum_of(parts));
        for (size_t i = 0; i < parts.size(); ++i) used[i] = used[i] || parts[i].value > 0;
      }
    }
  }
  if (!(longest > 0) || !std::isfinite(longest)) return "";
  std::vector<std::pair<size_t, std::string>> items;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i])
      items.emplace_back(i < kCategories.size() ? i : kOther, i < kCategories.size() ? kCategories[i] : "other");
  }
  std::string html = legend(items, false) + "<div class=\"stacks\">\n";
  for (const Cluster& cluster : clusters) {
    html += heading(cluster, "b");
    for (const PageRun& page_run : cluster.runs) {
      bool first = true;
      for (const auto& [name, key] : kinds) {
        const std::vector<Part> parts = memory_parts(*page_run.run, key);
        if (!(sum_of(parts) > 0)) continue;
        const double total = find_number(page_run.run->summary, std::string(key) + ".total").value_or(0) / kMiB;
        html +=
            fmt::format("<span>{}</span><small>{}</small>{}<u>{}</u>\n", first ? html_label(page_run.short_label) : "",
                        name, stack(parts, longest), mib_text(total));
        first = false;
      }
    }
  }
  return html + "</div>\n";
}

// Returns a bar as HTML for each run, and a legend. values_of(run) returns the values of the bar's parts, `names` are
// the names of these parts, and text_of() formats a value. A run without values has no bar. The longest bar has the
// full width.
std::string stacked_bars(const std::vector<Cluster>& clusters, const std::vector<std::string>& names,
                         std::vector<double> (*values_of)(const RunFolder&), std::string (*text_of)(double)) {
  double longest = 0;
  for (const Cluster& cluster : clusters) {
    for (const PageRun& page_run : cluster.runs) {
      double sum = 0;
      for (const double value : values_of(*page_run.run)) sum += value;
      longest = std::max(longest, sum);
    }
  }
  if (!(longest > 0) || !std::isfinite(longest)) return "";
  std::vector<std::pair<size_t, std::string>> items;
  // The last name stands for everything else.
  const auto color_of = [&](size_t i) { return i + 1 < names.size() ? i : kOther; };
  for (size_t i = 0; i < names.size(); ++i) items.emplace_back(color_of(i), names[i]);
  std::string html = legend(items, false) + "<div class=\"stacks\">\n";
  for (const Cluster& cluster : clusters) {
    html += heading(cluster, "b");
    for (const PageRun& page_run : cluster.runs) {
      const std::vector<double> values = values_of(*page_run.run);
      if (values.empty()) continue;
      std::vector<Part> parts;
      for (size_t i = 0; i < values.size(); ++i)
        parts.push_back({color_of(i), values[i], names[i] + " " + text_of(values[i])});
      html += fmt::format("<span>{}</span><small></small>{}<u>{}</u>\n", html_label(page_run.short_label),
                          stack(parts, longest), text_of(sum_of(parts)));
    }
  }
  return html + "</div>\n";
}

std::vector<double> tokens_of(const RunFolder& run) {
  const auto tokens = find_number(run.summary, "num_tokens"), targets = find_number(run.summary, "num_targets");
  if (!tokens || !targets || *targets < 0 || *targets > *tokens) return {};
  return {*targets, *tokens - *targets};
}

std::string tokens_text(double tokens) {
  return std::abs(tokens) < 1e15 ? format_count(std::llround(tokens)) : "-";
}

// Bars of these figures, one row for each run. Empty if there is only one run, or if no run has a value.
std::string bars_of(const std::vector<Cluster>& clusters, const std::vector<const char*>& names) {
  std::vector<const Figure*> columns;
  std::vector<double> longest;
  size_t num_runs = 0;
  for (const Cluster& cluster : clusters) num_runs += cluster.runs.size();
  const auto value_of = [](const RunFolder& run, const Figure& figure) {
    const Measure measure = figure.of_run(run);
    const bool known = !measure.values.empty() && std::isfinite(measure.values[0]) && measure.values[0] >= 0;
    return known ? measure.values[0] : -1;
  };
  for (const char* name : names) {
    const Figure& figure = *find_figure(name);
    double highest = -1;
    for (const Cluster& cluster : clusters) {
      for (const PageRun& page_run : cluster.runs) highest = std::max(highest, value_of(*page_run.run, figure));
    }
    if (highest >= 0) columns.push_back(&figure), longest.push_back(highest);
  }
  if (columns.empty() || num_runs < 2) return "";
  const auto title_of = [](const Figure& figure) { return figure.title.substr(0, figure.title.find(" (")); };
  std::string html = fmt::format("<div class=\"bars\" style=\"--n:{}\">\n<b class=\"head\">run</b>", columns.size());
  for (const Figure* figure : columns) html += fmt::format("<b class=\"head\">{}</b>", title_of(*figure));
  for (const Cluster& cluster : clusters) {
    html += "\n" + heading(cluster, "b");
    for (const PageRun& page_run : cluster.runs) {
      html += fmt::format("<span{}>{}{}{}</span>", page_run.is_baseline ? " class=\"base\"" : "",
                          html_label(page_run.short_label), page_run.is_baseline ? " (baseline)" : "",
                          page_run.is_best ? kBestBadge : "");
      for (size_t i = 0; i < columns.size(); ++i) {
        const double value = value_of(*page_run.run, *columns[i]);
        const FigureUnit unit = columns[i]->unit;
        const std::string text = value < 0                     ? "-"
                                 : unit == FigureUnit::mib     ? mib_text(value)
                                 : unit == FigureUnit::seconds ? seconds_text(value)
                                                               : shown(value, unit);
        html +=
            fmt::format("<div class=\"bar\" data-name=\"{}\"><em><i style=\"width:{:.1f}%\"></i></em><u>{}</u></div>",
                        title_of(*columns[i]), value > 0 ? 100 * value / longest[i] : 0, text);
      }
      html += "\n";
    }
  }
  return html + "</div>\n";
}

std::string curves_of(const std::vector<Cluster>& clusters, Curves curves) {
  std::string html;
  for (const Cluster& cluster : clusters) {
    const std::string charts = charts_of(cluster, curves, clusters.size() > 1);
    if (charts.empty()) continue;
    std::vector<std::pair<size_t, std::string>> items;
    for (const PageRun& page_run : cluster.runs) items.emplace_back(page_run.color, page_run.short_label);
    html += heading(cluster, "h3");
    if (items.size() > 1) html += legend(items, true);
    html += (clusters.size() > 1 ? "<div class=\"charts small\">\n" : "<div class=\"charts\">\n") + charts + "</div>\n";
  }
  return html;
}

}  // namespace

std::vector<double> seconds_by_phase(const RunFolder& run) {
  const auto runtime = find_number(run.summary, "train_runtime"), samples = find_number(run.summary, "num_samples");
  const auto rate = find_number(run.summary, "train_samples_per_second_steady");
  if (!runtime || *runtime <= 0) return {};
  double eval = 0, answers = 0;
  for (const EvalPoint& point : run.evals) {
    if (point.step == 0) continue;  // an evaluation before the first step counts as start (the last value)
    if (point.runtime_s > 0) eval += point.runtime_s;
    if (point.answers_runtime_s > 0) answers += point.answers_runtime_s;
  }
  // metrics.jsonl and summary.json may contradict each other, for example after a change by hand. Therefore, each value
  // below is limited to the part of the runtime that the values computed before it leave.
  eval = std::min(eval, *runtime);
  answers = std::min(answers, *runtime - eval);
  const double left = *runtime - eval - answers;
  const double steps = samples && rate && *rate > 0 ? std::min(left, *samples / *rate) : left;
  return {std::max(0.0, steps), eval, answers, std::max(0.0, left - steps)};
}

std::string loss_section(const std::vector<Cluster>& clusters) {
  const std::string bars = bars_of(clusters, {"eval_loss", "perplexity", "exact_match", "f1", "train_loss"});
  const std::string html = bars + curves_of(clusters, Curves::losses);
  if (html.empty()) return "";
  return section("loss", "Loss and scores",
                 bars.empty() ? "" : "A longer bar is a larger value: better for scores, worse for losses.", html);
}

std::string speed_section(const std::vector<Cluster>& clusters) {
  bool all_on_gpus = true;
  for (const Cluster& cluster : clusters) {
    for (const PageRun& page_run : cluster.runs) all_on_gpus = all_on_gpus && is_on_gpu(*page_run.run);
  }
  const std::string bars = bars_of(clusters, {"samples_per_second", all_on_gpus ? "gpu_peak" : "cpu_peak", "runtime"});
  const std::string html = bars + curves_of(clusters, Curves::speeds);
  if (html.empty()) return "";
  return section(
      "speed", "Speed and memory",
      bars.empty() ? "" : "A longer bar is a larger value: better for samples/s, worse for memory and runtime.", html);
}

std::string memory_section(const std::vector<Cluster>& clusters) {
  const std::string bars = memory_bars(clusters);
  std::string html;
  if (!bars.empty()) {
    html +=
        "<h3>By category</h3><p class=\"hint\">The first rank's memory on its device: planned before the start, and "
        "measured while running. The length of a bar is the sum of its categories' peaks, which may occur at different "
        "times. The number is the highest total at one time.</p>\n" +
        bars;
  }
  std::string over_time;
  const bool one_run = clusters.size() == 1 && clusters[0].runs.size() == 1;
  for (const Cluster& cluster : clusters) {
    const std::string charts = memory_charts_of(cluster, one_run, clusters.size() > 1);
    if (charts.empty()) continue;
    std::vector<std::pair<size_t, std::string>> items;
    for (const PageRun& page_run : cluster.runs) items.emplace_back(page_run.color, page_run.short_label);
    over_time += heading(cluster, "h3");
    if (items.size() > 1) over_time += legend(items, true);
    over_time +=
        (clusters.size() > 1 ? "<div class=\"charts small\">\n" : "<div class=\"charts\">\n") + charts + "</div>\n";
  }
  html += over_time.empty()
              ? "<p class=\"hint\">No run recorded its memory over time. To record it, train with --memory-log.</p>\n"
              : "<h3>Over time</h3>\n" + over_time;
  return bars.empty() && over_time.empty() ? "" : section("memory", "Memory", "", html);
}

std::string phases_section(const std::vector<Cluster>& clusters) {
  const std::string time = stacked_bars(clusters, {"steps", "evaluation", "answers", "start, checkpoints, other"},
                                        seconds_by_phase, seconds_text);
  const std::string tokens =
      stacked_bars(clusters, {"tokens with loss", "other tokens of the samples"}, tokens_of, tokens_text);
  std::string html;
  if (!time.empty()) html += "<h3>Time by phase</h3>\n" + time;
  if (!tokens.empty()) html += "<h3>Tokens trained on</h3>\n" + tokens;
  return html.empty() ? "" : section("phases", "Time and tokens", "", html);
}

}  // namespace tessera
