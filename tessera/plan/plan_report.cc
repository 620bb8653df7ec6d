#include "tessera/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/load/data_report.h"
#include "tessera/log/table.h"
#include "tessera/plan/known_gpus.h"
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
  record["step_s"] = configuration.time.step_s;
  return record;
}

// The rows of a table of bytes by phase. Leaves out rows that have 0 bytes in every phase.
class LedgerRows {
 public:
  // If `other` (of another rank) has the same bytes in every phase, rows of categories are left out. May be null.
  LedgerRows(Table& table, const Plan* other) : table_(table), other_(other) {}

  using BytesOf = std::function<int64_t(const Plan&, Phase)>;
  using TextOf = std::function<std::string(int64_t bytes, Phase)>;
  void add(
      const std::string& name, const Plan& plan, const BytesOf& bytes_of, bool always = false,
      const TextOf& text_of = [](int64_t bytes, Phase) { return format_bytes(bytes); }) {
    std::vector<std::string> cells{name};
    bool any = false, differs = !other_;
    for_each_phase([&](Phase phase) {
      const int64_t bytes = bytes_of(plan, phase);
      any = any || bytes > 0;
      differs = differs || bytes != bytes_of(*other_, phase);
      cells.push_back(bytes > 0 ? text_of(bytes, phase) : "-");
    });
    if (!any || !(differs || always)) return;
    table_.row(std::move(cells));
    ++num_rows_;
  }

  void add_total(const std::string& where, const Plan& plan, Ledger Plan::*ledger) {
    add(
        where, plan, [&](const Plan& p, Phase phase) { return (p.*ledger).peak_total(phase); }, true);
  }

  void add_categories(const Plan& plan, Ledger Plan::*ledger) {
    const int num_before = num_rows_;
    for (int c = 0; c < kNumCategories; ++c) {
      const auto category = static_cast<Category>(c);
      // The stack of activations is allocated once. Other phases than these only hold it.
      const auto text = [&](int64_t bytes, Phase phase) {
        const bool used = category != Category::activations || phase == Phase::step || phase == Phase::evaluation;
        return (used ? "" : "reserved ") + format_bytes(bytes);
      };
      add(
          name_of(category), plan, [&](const Plan& p, Phase phase) { return (p.*ledger).peak(phase, category); }, false,
          text);
      if (category == Category::activations && ledger == &Plan::device) {
        add("  including head", plan,
            [](const Plan& p, Phase phase) { return p.head_bytes[static_cast<size_t>(phase)]; });
      }
    }
    if (num_rows_ > num_before) table_.rule();
  }

 private:
  Table& table_;
  const Plan* other_;
  int num_rows_ = 0;
};

std::string name_of_host(const PlanReport& report, const Plan& plan) {
  const int64_t bytes = plan.host.peak_total(), pinned = report.pinned_bytes(plan);
  return pinned == 0 ? "host" : pinned < bytes ? "host, in part pinned" : "host, pinned";
}

Table table_of_phases(const std::string& name) {
  std::vector<Column> columns{{name}};
  for_each_phase([&](Phase phase) { columns.push_back({name_of(phase), Align::kRight}); });
  return Table(std::move(columns));
}

void print_categories(const PlanReport& report, const std::string& name, const Plan& plan, const Plan* other,
                      Console& console) {
  Table table = table_of_phases(name);
  LedgerRows rows(table, other);
  rows.add_categories(plan, &Plan::device);
  rows.add_total("device", plan, &Plan::device);
  if (plan.host.peak_total() > 0) {
    table.rule();
    rows.add_categories(plan, &Plan::host);
    rows.add_total(name_of_host(report, plan), plan, &Plan::host);
  }
  console.print(table.remove_empty_columns().render(console.out_terminal()));
}

void print_memory(const PlanReport& report, Console& console) {
  const bool differ = report.ranks_differ();
  const std::string first = report.rank.world_size == 1 ? "memory" : differ ? "rank 0" : "each rank";
  if (report.settings.categories) {
    print_categories(report, first, report.first, nullptr, console);
    if (!differ) return;
    console.print("On the other ranks, these values are different:");
    print_categories(report, "other ranks", *report.other, &report.first, console);
    return;
  }
  Table table = table_of_phases(differ ? "memory" : first == "memory" ? first : "memory of " + first);
  LedgerRows rows(table, nullptr);
  const auto add = [&](const std::string& of, const Plan& plan) {
    rows.add_total(of + "device", plan, &Plan::device);
    rows.add_total(of + name_of_host(report, plan), plan, &Plan::host);
  };
  add(differ ? "rank 0, " : "", report.first);
  if (differ) add("others, ", *report.other);
  console.print(table.remove_empty_columns().render(console.out_terminal()));
}

constexpr int64_t kUnknown = MemoryLimits{}.device_bytes;

double step_flops(const PlanReport& r) {
  return static_cast<double>(r.first.micro_batch_flops) * static_cast<double>(r.work.micro_batches);
}

// "GPU memory", "memory" (of a CPU rank), "host memory" or "disk space".
std::string words_of(const PlanReport& r, Excess::Of of) {
  if (of == Excess::Of::disk) return "disk space";
  if (of == Excess::Of::host) return "host memory";
  return r.limits.one_memory ? "memory" : "GPU memory";
}

// "0.421 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"
std::string duration_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds + 0.5, 1e15));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

bool has_time(const PlanReport& r) {
  return r.time && r.time->step_s > 0;
}

double steps_per_epoch(const PlanReport& r) {
  if (!r.train_data) return 0;
  const double per_step = r.settings.batch_tokens > 0
                              ? static_cast<double>(r.settings.grad_accum) * r.rank.world_size
                              : static_cast<double>(r.settings.batch_size * r.settings.grad_accum) * r.rank.world_size;
  const double items = static_cast<double>(r.settings.batch_tokens > 0 ? r.fill ? r.fill->num_micro_batches : 0
                                                                       : r.train_data->num_samples);
  return std::ceil(items / per_step);
}

double evaluation_s(const PlanReport& r) {
  if (!has_time(r) || !r.eval_data) return 0;
  const double batches = std::ceil(static_cast<double>(r.eval_data->num_samples) /
                                   static_cast<double>(r.settings.eval_batch_size * r.rank.world_size));
  return batches * r.time->evaluation_s;
}

// The rate is that of one rank while all ranks of the node write.
double checkpoint_s(const PlanReport& r) {
  const bool known = r.machine && r.machine->file_write_bytes_per_s > 0;
  return known ? static_cast<double>(r.checkpoint_bytes) / r.machine->file_write_bytes_per_s : 0;
}

// "0.421 s per step" and, with data, "35 min 10 s per epoch".
std::string time_of_verdict(const PlanReport& r) {
  if (!has_time(r)) return "";
  std::string text = fmt::format("; {} per step", duration_text(r.time->step_s));
  if (const double steps = steps_per_epoch(r); steps > 0)
    text += fmt::format(", {} per epoch", duration_text(steps * r.time->step_s));
  return text;
}

// "fits: a rank needs 5.99 GiB of GPU memory, and the limit is 8.00 GiB: 2.01 GiB are left; 0.421 s per step"
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
    return fmt::format("fits: {}, and the limit is {}: {} are left{}", needs, format_bytes(e.limit_bytes),
                       format_bytes(-e.bytes), time_of_verdict(r));
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

// "time     0.421 s per step, 4,864 tokens/s, 9.5 samples/s (forward 0.21 s, backward 0.15 s, update 0.06 s)", what is
// busy, and longer times.
void print_time(const PlanReport& r, Console& console) {
  if (!has_time(r)) {
    console.print(fmt::format(
        "time     not known: the {} are not. tessera doctor --measure{} measures them, and "
        "--machine names a file of another machine or a GPU ({}, ...)",
        r.unknown_speeds, r.machine ? ", started with the ranks of the run," : "", known_gpus().back().word));
    return;
  }
  const StepTime& t = *r.time;
  const auto part = [&](StepPart p) {
    return fmt::format("{} {:.3g} s", name_of(p), t.part_s[static_cast<size_t>(p)]);
  };
  const auto rate = [&](double per_step) {
    const double per_s = std::min(per_step / t.step_s, 1e18);
    return per_s < 100 ? fmt::format("{:.3g}", per_s) : format_count(static_cast<int64_t>(per_s));
  };
  const double samples = static_cast<double>(r.settings.batch_size * r.settings.grad_accum) * r.rank.world_size;
  console.print(fmt::format("time     {} per step, {} tokens/s{} ({}, {}, {})", duration_text(t.step_s),
                            rate(step_tokens(r)), samples > 0 ? fmt::format(", {} samples/s", rate(samples)) : "",
                            part(StepPart::forward), part(StepPart::backward), part(StepPart::update)));
  std::vector<std::string> shares;
  for (int b = 0; b < kNumBusy; ++b) {
    const double share = t.busy_s[static_cast<size_t>(b)] / t.step_s;
    if (share >= 0.01) shares.push_back(fmt::format("{} {:.0f} %", words_of(Busy(b)), 100 * share));
  }
  console.print(fmt::format("busy     {}", joined(shares, ", ")));
  std::vector<std::string> longer;
  const auto add = [&](const char* what, double seconds) {
    if (seconds > 0) longer.push_back(fmt::format("{} {}", what, duration_text(seconds)));
  };
  const double epoch_s = steps_per_epoch(r) * t.step_s;
  add("an epoch", epoch_s);
  add(r.settings.eval_generation ? "the loss of an evaluation" : "an evaluation", evaluation_s(r));
  if (checkpoint_s(r) > 0)
    longer.push_back(fmt::format("a checkpoint {} ({} on each rank)", duration_text(checkpoint_s(r)),
                                 format_bytes(r.checkpoint_bytes)));
  if (!longer.empty()) console.print("longer   " + joined(longer, "; "));
  if (const KnownGpu* gpu = known_gpu_by_name(r.machine->name, r.limits.device_bytes)) {
    const double joules = gpu->power_w * r.rank.world_size * t.step_s;
    console.print(
        fmt::format("energy   at most {:.3g} kJ per step{}: {} of {:.0f} W", joules * 1e-3,
                    epoch_s > 0 ? fmt::format(", {:.3g} kWh per epoch", joules / t.step_s * epoch_s / 3.6e6) : "",
                    counted(r.rank.world_size, "GPU"), gpu->power_w));
  }
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
  std::string device = s.fit > 0                                 ? "--fit"
                       : s.device_memory > 0                     ? "--device-memory"
                       : known_gpu_by_word(s.machine) != nullptr ? "--machine"
                                                                 : "";
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
  const FitResult& fit = *report.fit;
  console.print("fastest configuration: " + summary_of(fit.best->settings));
  std::string replace;
  for (const std::string& word : report.start.placeholders) replace += (replace.empty() ? "" : "; ") + word;
  console.print(
      fmt::format("start the run with{}\n  {}", replace.empty() ? ":" : " (" + replace + "):", report.start.text));
  if (fit.runners_up.empty() && !fit.with_next_gib) return;
  Table table({{""},
               {"step", Align::kRight},
               {report.limits.one_memory ? "memory" : "GPU", Align::kRight},
               {"host", Align::kRight},
               {"files", Align::kRight},
               {"strategy"},
               {"offload"},
               {"checkpointing"},
               {"batch"}});
  const auto bytes_text = [](int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; };
  const auto add = [&](const std::string& name, const Configuration& c) {
    const auto text = [&](const char* setting) { return plain_text(find_setting(setting)->get(c.settings)); };
    const bool one = report.limits.one_memory;
    table.row({name, duration_text(c.time.step_s), bytes_text(one ? c.plan.peak_bytes() : c.plan.device.peak_total()),
               bytes_text(one ? 0 : c.plan.host.peak_total()), bytes_text(c.plan.file_bytes), text("strategy"),
               text("offload"), text("activation_checkpointing"), c.settings.batch_words()});
  };
  add("chosen", *fit.best);
  for (const Configuration& c : fit.runners_up) add("next", c);
  if (fit.with_next_gib) add("with 1 GiB more", *fit.with_next_gib);
  console.print(table.remove_empty_columns().render(console.out_terminal()));
  if (report.assumed_machine.source == "assumed") {
    console.print(
        fmt::format("The times are those of {}, because the speeds of this machine are not known: "
                    "tessera doctor --measure measures them",
                    printable(report.assumed_machine.name)));
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
  record["checkpoint_bytes"] = r.checkpoint_bytes;
  record["time"] = r.time ? time_record(*r.time) : Record(nullptr);
  if (has_time(r)) {
    const auto if_any = [](double seconds) { return seconds > 0 ? Record(seconds) : Record(nullptr); };
    record["time"]["tokens_per_s"] = step_tokens(r) / r.time->step_s;
    record["time"]["epoch_s"] = if_any(steps_per_epoch(r) * r.time->step_s);
    record["time"]["evaluation_s"] = if_any(evaluation_s(r));
    record["time"]["checkpoint_s"] = if_any(checkpoint_s(r));
  }
  if (!r.fit) return record;
  Record runners_up = Record::array();
  for (const Configuration& c : r.fit->runners_up) runners_up.push_back(configuration_record(c));
  record["fit"] =
      Record{{"best", configuration_record(*r.fit->best)},
             {"command", r.start.text},
             {"runners_up", runners_up},
             {"with_next_gib", r.fit->with_next_gib ? configuration_record(*r.fit->with_next_gib) : Record(nullptr)},
             {"machine", Record{{"name", r.assumed_machine.name}, {"source", r.assumed_machine.source}}},
             {"num_plans", r.fit->num_plans},
             {"num_simulations", r.fit->num_simulations}};
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
  print_memory(r, console);
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
    const int64_t within = r.first.step_bytes_sent_within_nodes, all = r.first.step_bytes_sent;
    const bool nodes = world > r.rank.ranks_per_node;
    console.print(fmt::format("sent     {} by each rank per step{}", format_bytes(all),
                              nodes ? fmt::format(", {} of them to ranks of its node", format_bytes(within)) : ""));
  }
  if (r.first.file_bytes > 0) {
    console.print(fmt::format("files    {} per rank, on the disk of {}", format_bytes(r.first.file_bytes),
                              offload_folder(r.settings)));
  }
}

void refuse_to_fit(const FitResult& fit, const MemoryLimits& limits, const Settings& given) {
  const Configuration& least = *fit.smallest;
  const Excess& e = least.excess;
  const bool disk = e.of == Excess::Of::disk;
  const std::string largest = disk ? "" : fmt::format(" ({}: {})", name_of(e.largest), format_bytes(e.largest_bytes));
  throw OutOfMemoryError(
      option_place(given.fit != 0                             ? "fit"
                   : given.activation_checkpointing.automatic ? "activation_checkpointing"
                                                              : "offload"),
      fmt::format(
          "no configuration fits into {}: the smallest one ({}) needs {}{}, but the limit of a rank is {}{}: {} "
          "are missing",
          format_bytes(limits.device_bytes), summary_of(least.settings), format_bytes(e.limit_bytes + e.bytes), largest,
          format_bytes(e.limit_bytes),
          disk                       ? " on the disk"
          : e.of == Excess::Of::host ? " on the host"
                                     : "",
          format_bytes(e.bytes)),
      given.fit != 0 ? "Use more ranks, a smaller --max-length or a smaller model, or leave out flags such as "
                       "--batch-size and --offload: --fit does not change the settings of flags"
                     : "Use more ranks or a smaller --batch-size, or let --fit choose the other settings, too");
}

}  // namespace tessera
