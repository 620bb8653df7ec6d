#include "tessera/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/counted.h"
#include "tessera/base/text.h"
#include "tessera/load/data_report.h"
#include "tessera/log/table.h"
#include "tessera/settings/engine_options.h"
#include "tessera/settings/setting.h"

namespace tessera {
namespace {

template <typename Visit>
void for_each_phase(Visit&& visit) {
  for (int p = 0; p < kNumPhases; ++p) visit(static_cast<Phase>(p));
}

bool same_peaks(const Ledger& a, const Ledger& b) {
  bool same = true;
  for_each_phase([&](Phase phase) {
    same = same && a.peak_total(phase) == b.peak_total(phase);
    for (int c = 0; c < kNumCategories; ++c) {
      same = same && a.peak(phase, static_cast<Category>(c)) == b.peak(phase, static_cast<Category>(c));
    }
  });
  return same;
}

Record ledger_record(const Ledger& ledger) {
  Record record;
  for_each_phase([&](Phase phase) {
    Record categories;
    for (int c = 0; c < kNumCategories; ++c) {
      const auto category = static_cast<Category>(c);
      categories[name_of(category)] = ledger.peak(phase, category);
    }
    categories["total"] = ledger.peak_total(phase);
    record[name_of(phase)] = std::move(categories);
  });
  return record;
}

Record rank_record(const PlanReport& report, const Plan& plan) {
  Record head;
  for_each_phase([&](Phase phase) { head[name_of(phase)] = plan.head_bytes[static_cast<size_t>(phase)]; });
  return {
      {"peak_bytes", plan.peak_bytes()},           {"device_peak_bytes", plan.device.peak_total()},
      {"host_peak_bytes", plan.host.peak_total()}, {"file_bytes", plan.file_bytes},
      {"pinned_bytes", report.pinned_bytes(plan)}, {"device", ledger_record(plan.device)},
      {"host", ledger_record(plan.host)},          {"head", head},  // head: a part of the device's activations
      {"step_bytes_sent", plan.step_bytes_sent},   {"step_bytes_sent_within_nodes", plan.step_bytes_sent_within_nodes}};
}

Record cost_record(const StepCost& cost) {
  return {{"compute_s", cost.compute_s},
          {"communication_s", cost.communication_s},
          {"offload_s", cost.offload_s},
          {"total_s", cost.total_s()}};
}

Record time_record(const StepTime& time) {
  Record busy, parts, kernels = Record::object();
  for (const auto& [name, seconds] : time.kernel_s) kernels[name + "_s"] = seconds;
  for (int i = 0; i < kNumBusy; ++i) busy[name_of(Busy(i)) + std::string("_s")] = time.busy_s[static_cast<size_t>(i)];
  for (int i = 0; i < kNumStepParts; ++i) {
    parts[name_of(StepPart(i)) + std::string("_s")] = time.part_s[static_cast<size_t>(i)];
  }
  return {{"step_s", time.step_s},
          {"parts", parts},
          {"busy", busy},
          {"kernels", kernels},
          {"bound", name_of(time.bound())},
          {"evaluation_batch_s", time.evaluation_s}};
}

std::string precision_of(const Settings& settings) {
  return std::get<std::string>(find_setting("precision")->get(settings));
}

const char* name_of(Excess::Of of) {
  return of == Excess::Of::device ? "device" : of == Excess::Of::host ? "host" : "disk";
}

Record excess_record(const Excess& excess) {
  const bool of_disk = excess.of == Excess::Of::disk;
  return {{"fits", excess.fits()},
          {"excess_bytes", excess.bytes},
          {"memory", name_of(excess.of)},
          {"phase", of_disk ? Record(nullptr) : Record(name_of(excess.phase))},
          {"largest_category", of_disk ? Record(nullptr) : Record(name_of(excess.largest))},
          {"largest_category_bytes", of_disk ? Record(nullptr) : Record(excess.largest_bytes)}};
}

Record configuration_record(const Configuration& configuration) {
  Record record = searched_settings(configuration.settings);
  record["device_peak_bytes"] = configuration.plan.device.peak_total();
  record["host_peak_bytes"] = configuration.plan.host.peak_total();
  record["file_bytes"] = configuration.plan.file_bytes;
  record.update(excess_record(configuration.excess));
  record["cost"] = cost_record(configuration.cost);
  return record;
}

// Adds table rows: one for each category, and the total. Omits a row if it has 0 bytes in every phase. Also omits the
// row of a category if the plan `other` (of another rank) has the same bytes in every phase.
class LedgerRows {
 public:
  LedgerRows(Table& table, const Plan* other) : table_(table), other_(other) {}

  using BytesOf = std::function<int64_t(const Plan&, Phase)>;
  void add(const std::string& name, const Plan& plan, const BytesOf& bytes_of, bool always = false) {
    std::vector<std::string> cells{name};
    bool any = false, differs = !other_;
    for_each_phase([&](Phase phase) {
      const int64_t bytes = bytes_of(plan, phase);
      any = any || bytes > 0;
      differs = differs || bytes != bytes_of(*other_, phase);
      cells.push_back(bytes > 0 ? format_bytes(bytes) : "-");
    });
    if (!any || !(differs || always)) return;
    table_.row(std::move(cells));
    ++num_rows_;
  }

  void add_ledger(const std::string& where, const Plan& plan, Ledger Plan::*ledger) {
    const int num_before = num_rows_;
    for (int c = 0; c < kNumCategories; ++c) {
      const auto category = static_cast<Category>(c);
      add(name_of(category), plan, [&](const Plan& p, Phase phase) { return (p.*ledger).peak(phase, category); });
      if (category == Category::activations && ledger == &Plan::device) {
        add("  including head", plan,
            [](const Plan& p, Phase phase) { return p.head_bytes[static_cast<size_t>(phase)]; });
      }
    }
    if (num_rows_ > num_before) table_.rule();
    add(
        where, plan, [&](const Plan& p, Phase phase) { return (p.*ledger).peak_total(phase); }, true);
  }

 private:
  Table& table_;
  const Plan* other_;  // may be nullptr: equal rows are then not omitted
  int num_rows_ = 0;
};

void print_rank(const PlanReport& report, const std::string& name, const Plan& plan, const Plan* other,
                Console& console) {
  std::vector<Column> columns{{name}};
  for_each_phase([&](Phase phase) { columns.push_back({name_of(phase), Align::kRight}); });
  Table table(std::move(columns));
  LedgerRows rows(table, other);
  rows.add_ledger("device", plan, &Plan::device);
  if (const int64_t bytes = plan.host.peak_total(), pinned = report.pinned_bytes(plan); bytes > 0) {
    table.rule();
    rows.add_ledger(pinned == 0 ? "host" : pinned < bytes ? "host, in part pinned" : "host, pinned", plan, &Plan::host);
  }
  console.print(table.remove_empty_columns().render(console.out_terminal()));
}

constexpr int64_t kUnknown = MemoryLimits{}.device_bytes;

double step_flops(const PlanReport& r) {
  return static_cast<double>(r.first.micro_batch_flops) * static_cast<double>(r.work.micro_batches);
}

// "4.3 GiB too much (activations: 10.1 GiB)"
std::string account_of(const Excess& e) {
  if (e.of == Excess::Of::disk) return fmt::format("{} too much on the disk", format_bytes(e.bytes));
  return fmt::format("{} too much{}{} ({}: {})", format_bytes(e.bytes),
                     e.phase == Phase::step ? "" : fmt::format(" in {}", name_of(e.phase)),
                     e.of == Excess::Of::host ? " on the host" : "", name_of(e.largest), format_bytes(e.largest_bytes));
}

// "GPU memory", "memory" (of a CPU rank), "host memory" or "disk space".
std::string words_of(const PlanReport& r, Excess::Of of) {
  if (of == Excess::Of::disk) return "disk space";
  if (of == Excess::Of::host) return "host memory";
  return r.limits.one_memory ? "memory" : "GPU memory";
}

// "fits: a rank needs 5.99 GiB of GPU memory, and the limit is 8.00 GiB: 2.01 GiB are left"
std::string verdict_of(const PlanReport& r) {
  const Excess e = r.excess();
  if (e.fits() && e.limit_bytes == kUnknown) {
    const int64_t needed = r.limits.one_memory ? r.first.peak_bytes() : r.first.device.peak_total();
    const std::string what = words_of(r, e.of);
    return fmt::format(
        "not known: a rank needs {} of {}, and no limit is given. Give the {} as --device-memory or --fit",
        format_bytes(needed), what, what);
  }
  const std::string needs =
      fmt::format("a rank needs {} of {}", format_bytes(e.bytes + e.limit_bytes), words_of(r, e.of));
  if (e.fits())
    return fmt::format("fits: {}, and the limit is {}: {} are left", needs, format_bytes(e.limit_bytes),
                       format_bytes(-e.bytes));
  const std::string most = e.of == Excess::Of::disk
                               ? ""
                               : fmt::format(" (largest part{}: {}, {})",
                                             e.phase == Phase::step ? "" : fmt::format(" of {}", name_of(e.phase)),
                                             name_of(e.largest), format_bytes(e.largest_bytes));
  return fmt::format("does not fit: {}, but the limit is {}: {} are missing{}", needs, format_bytes(e.limit_bytes),
                     format_bytes(e.bytes), most);
}

std::string words_of(Busy busy) {
  switch (busy) {
    case Busy::products:
      return "matrix products";
    case Busy::attention:
      return "attention";
    case Busy::memory:
      return "kernels that move data";
    case Busy::host:
      return "work on the host's cores";
    case Busy::to_device:
      return "copies to the GPU";
    case Busy::to_host:
      return "copies to the host";
    case Busy::file:
      return "files";
    case Busy::network:
      return "collectives";
  }
  return "";
}

double step_tokens(const PlanReport& r) {
  return static_cast<double>(r.typical.training.num_tokens) * static_cast<double>(r.typical.micro_batches) *
         r.rank.world_size;
}

// "time     0.421 s per step, 4,864 tokens/s (forward 0.21 s, backward 0.15 s, update 0.06 s)", and what is busy
void print_time(const PlanReport& r, Console& console) {
  if (!r.time || r.time->step_s <= 0) {
    console.print(
        fmt::format("time     not known: the {} are not. tessera doctor --measure{} measures them, "
                    "and --machine FILE names those of another machine",
                    r.unknown_speeds, r.machine ? ", started with the ranks of the run," : ""));
    return;
  }
  const StepTime& t = *r.time;
  const auto part = [&](StepPart p) {
    return fmt::format("{} {:.3g} s", name_of(p), t.part_s[static_cast<size_t>(p)]);
  };
  console.print(fmt::format("time     {:.3g} s per step, {} tokens/s ({}, {}, {})", t.step_s,
                            format_count(static_cast<int64_t>(std::min(step_tokens(r) / t.step_s, 1e18))),
                            part(StepPart::forward), part(StepPart::backward), part(StepPart::update)));
  std::vector<std::string> shares;
  for (int b = 0; b < kNumBusy; ++b) {
    const double share = t.busy_s[static_cast<size_t>(b)] / t.step_s;
    if (share >= 0.01) shares.push_back(fmt::format("{} {:.0f} %", words_of(Busy(b)), 100 * share));
  }
  console.print(fmt::format("busy     {}", joined(shares, ", ")));
  console.print(
      fmt::format("         predicted for {} ({})", printable(r.machine->name), printable(r.machine->source)));
}

// "limits of a rank: GPU memory 8.00 GiB (--fit); not checked: host memory (needs 6.38 GiB), disk space (needs 0 B)"
std::string limits_of(const PlanReport& r) {
  const Settings& s = r.settings;
  std::vector<std::string> checked, unchecked;
  const auto add = [&](Excess::Of of, int64_t limit, int64_t needed, const std::string& flag) {
    if (limit == kUnknown) {
      unchecked.push_back(fmt::format("{} (needs {})", words_of(r, of), format_bytes(needed)));
    } else {
      checked.push_back(
          fmt::format("{} {} ({})", words_of(r, of), format_bytes(limit), flag.empty() ? "this machine" : flag));
    }
  };
  std::string device = s.fit > 0 ? "--fit" : s.device_memory > 0 ? "--device-memory" : "";
  const std::string host = s.host_memory > 0 ? "--host-memory" : "";
  if (r.limits.one_memory && !host.empty()) device += (device.empty() ? "" : ", ") + host;
  add(Excess::Of::device, r.limits.device_bytes,
      r.limits.one_memory ? r.first.peak_bytes() : r.first.device.peak_total(), device);
  if (!r.limits.one_memory) add(Excess::Of::host, r.limits.host_bytes, r.first.host.peak_total(), host);
  add(Excess::Of::disk, r.limits.disk_bytes, r.first.file_bytes, s.disk > 0 ? "--disk" : "");
  std::string text = "limits of a rank: " + (checked.empty() ? "none" : joined(checked, ", "));
  if (!unchecked.empty()) text += "; not checked: " + joined(unchecked, ", ");
  return text;
}

void print_fit(const PlanReport& report, Console& console) {
  constexpr size_t kMostRows = 10;
  const FitResult& fit = *report.fit;
  console.print("fastest configuration: " + summary_of(fit.best->settings));
  std::string replace;
  for (const std::string& word : report.start.placeholders) replace += (replace.empty() ? "" : "; ") + word;
  console.print(
      fmt::format("start the run with{}\n  {}", replace.empty() ? ":" : " (" + replace + "):", report.start.text));
  if (fit.faster.empty()) return;
  console.print("Faster configurations that do not fit, by estimated time of a step (--json shows the cost model):");
  Table table(
      {{"time", Align::kRight}, {"strategy"}, {"offload"}, {"checkpointing"}, {"batch", Align::kRight}, {"why not"}});
  for (size_t i = 0; i < std::min(kMostRows, fit.faster.size()); ++i) {
    const Configuration& c = fit.faster[i];
    const Record searched = searched_settings(c.settings);
    const auto text = [&](const char* key) { return searched.at(key).get<std::string>(); };
    table.row({fmt::format("{:.2f}x", c.cost.total_s() / fit.best->cost.total_s()), text("strategy"), text("offload"),
               text("activation_checkpointing"),
               fmt::format("{} x {}", c.settings.batch_tokens > 0 ? c.settings.batch_tokens : c.settings.batch_size,
                           c.settings.grad_accum),
               account_of(c.excess)});
  }
  console.print(table.render(console.out_terminal()));
  if (fit.faster.size() > kMostRows) {
    console.print(fmt::format("and {} more (see --json)", fit.faster.size() - kMostRows));
  }
}

}  // namespace

std::string summary_of(const Settings& settings) {
  const Record searched = searched_settings(settings);
  const auto text = [&](const char* key) { return searched.at(key).get<std::string>(); };
  return fmt::format("{}, offload {}, activation checkpointing {}, {}", text("strategy"), text("offload"),
                     text("activation_checkpointing"), settings.batch_words());
}

bool PlanReport::ranks_differ() const {
  return other && (!same_peaks(first.device, other->device) || !same_peaks(first.host, other->host));
}

int64_t PlanReport::pinned_bytes(const Plan& plan) const {
  const bool pins = rank.device == DeviceKind::cuda && pins_host_memory(settings);
  return pins ? std::min(plan.host.peak_total(), pinnable_bytes(limits.host_bytes)) : 0;
}

Record plan_record(const PlanReport& r) {
  Record record{{"schema", 1}, {"model", r.settings.model}, {"num_parameters", r.first.num_parameters}};
  record["num_trainable_parameters"] = r.first.num_trainable_parameters;
  record["world_size"] = r.rank.world_size;
  record["ranks_per_node"] = r.rank.ranks_per_node;
  record["device"] = r.rank.device == DeviceKind::cuda ? "cuda" : "cpu";
  record["precision"] = precision_of(r.settings);
  record.update(searched_settings(r.settings));
  record["batch_tokens"] = r.settings.batch_tokens;
  if (r.fill) record["batch_tokens_used"] = r.fill->share;
  const int64_t tokens = r.work.training.num_tokens;
  record["fused_micro_batches"] = r.fused;
  record["micro_batch_tokens"] = tokens;
  record["micro_batch_flops"] = r.first.micro_batch_flops;
  record["step_flops"] = step_flops(r);
  record["step_bytes_sent"] = r.first.step_bytes_sent;
  record["peak_bytes"] = r.first.peak_bytes();
  record["first_rank"] = rank_record(r, r.first);
  record["other_ranks"] = r.other ? Record(rank_record(r, *r.other)) : Record(nullptr);
  const Excess excess = r.excess();
  const bool known = excess.limit_bytes < kUnknown;
  record["memory_bytes"] = known ? Record(excess.limit_bytes) : Record(nullptr);
  record["fits"] = known ? Record(excess.fits()) : Record(nullptr);
  const auto limit = [](int64_t bytes) { return bytes < MemoryLimits{}.disk_bytes ? Record(bytes) : Record(nullptr); };
  record["host_memory_bytes"] = limit(r.limits.host_bytes);
  record["disk_bytes"] = limit(r.limits.disk_bytes);
  if (r.train_data) record["train_data"] = data_record(*r.train_data);
  if (r.eval_data) record["eval_data"] = data_record(*r.eval_data);
  record["machine"] = r.machine ? Record{{"name", r.machine->name}, {"source", r.machine->source}} : Record(nullptr);
  record["time"] = r.time ? time_record(*r.time) : Record(nullptr);
  if (r.time && r.time->step_s > 0) record["time"]["tokens_per_s"] = step_tokens(r) / r.time->step_s;
  if (!r.fit) return record;
  std::vector<Record> faster;
  for (const Configuration& c : r.fit->faster) faster.push_back(configuration_record(c));
  record["fit"] = Record{{"best", configuration_record(*r.fit->best)},
                         {"command", r.start.text},
                         {"faster", faster},
                         {"cost_model", cost_model(r.rank.device)}};
  return record;
}

void print_plan(const PlanReport& r, Console& console) {
  console.print(verdict_of(r));
  console.print(limits_of(r));
  if (!r.fit && !r.excess().fits() && r.limits.device_bytes != kUnknown)
    console.print("to find a run that fits:\n  " + r.to_find_fit);
  if (r.fit) print_fit(r, console);
  const int world = r.rank.world_size;
  const bool gpu = r.rank.device == DeviceKind::cuda;
  const std::string ranks = world == 1 ? (gpu ? " on a GPU" : " on the CPU")
                                       : fmt::format(" on {} {}, {} per node", world, gpu ? "GPUs" : "CPU ranks",
                                                     std::min(world, r.rank.ranks_per_node));
  const bool frozen = r.first.num_trainable_parameters < r.first.num_parameters;
  const std::string trained =
      frozen ? fmt::format(" ({} of them trainable)", format_count(r.first.num_trainable_parameters)) : "";
  console.print(fmt::format("{} parameters{} in {}{}; {}{}", format_count(r.first.num_parameters), trained,
                            precision_of(r.settings), ranks, summary_of(r.settings), world == 1 ? "" : " per rank"));
  const bool differ = r.ranks_differ();
  print_rank(r, world == 1 ? "memory" : differ ? "rank 0" : "each rank", r.first, nullptr, console);
  if (differ) {
    console.print("On the other ranks, these values are different:");
    print_rank(r, "other ranks", *r.other, &r.first, console);
  }
  print_time(r, console);
  const double tera = static_cast<double>(r.first.micro_batch_flops) * 1e-12;
  console.print(fmt::format("compute  {:.3g} TFLOP per micro-batch of at most {} {}{}, {:.3g} per step", tera,
                            format_count(r.work.training.num_tokens), noun_for(r.work.training.num_tokens, "token"),
                            r.fused ? " (all micro-batches of a step run as this one)" : "", step_flops(r) * 1e-12));
  const bool may_fuse =
      gpu && r.settings.grad_accum > 1 && r.settings.fuse_micro_batches != Settings::FuseMicroBatches::off;
  if (may_fuse && r.limits.device_bytes == kUnknown) {
    console.print(
        "fusing   with enough GPU memory, the micro-batches of a step run as one. To plan for this, give "
        "--device-memory");
  }
  if (world > 1) {
    console.print(fmt::format("sent     {} by each rank per step", format_bytes(r.first.step_bytes_sent)));
  }
  if (r.first.file_bytes > 0) {
    console.print(fmt::format("files    {} per rank, on the disk of {}", format_bytes(r.first.file_bytes),
                              offload_folder(r.settings)));
  }
}

}  // namespace tessera
