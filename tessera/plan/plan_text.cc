#include "tessera/plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/base/counted.h"
#include "tessera/base/text.h"
#include "tessera/log/table.h"
#include "tessera/plan/known_gpus.h"
#include "tessera/settings/setting.h"

namespace tessera {
namespace {

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

// "0.421 s per step" and, with data, "35 min 10 s per epoch".
std::string time_of_verdict(const PlanReport& r) {
  if (!r.has_time()) return "";
  std::string text = fmt::format("; {} per step", duration_text(r.time->step_s));
  if (const double steps = r.steps_per_epoch(); steps > 0)
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

// "time     0.421 s per step, 4,864 tokens/s, 9.5 samples/s (forward 0.21 s, backward 0.15 s, update 0.06 s)", what is
// busy, and longer times.
void print_time(const PlanReport& r, Console& console) {
  if (!r.has_time()) {
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
                            rate(r.step_tokens()), samples > 0 ? fmt::format(", {} samples/s", rate(samples)) : "",
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
  const double epoch_s = r.steps_per_epoch() * t.step_s;
  add("an epoch", epoch_s);
  add(r.settings.eval_generation ? "the loss of an evaluation" : "an evaluation", r.evaluation_s());
  if (r.checkpoint_s() > 0)
    longer.push_back(fmt::format("a checkpoint {} ({} on each rank)", duration_text(r.checkpoint_s()),
                                 format_bytes(r.first.checkpoint_bytes)));
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
  const bool in_fp8 = r.settings.matmul_precision == Settings::MatmulPrecision::fp8;
  console.print(fmt::format("{} parameters{} in {}{}; {}{}", format_count(r.first.num_parameters), trained,
                            r.precision() + (in_fp8 ? " with fp8 products" : ""), ranks, summary_of(r.settings),
                            world == 1 ? "" : " per rank"));
  print_memory(r, console);
  print_time(r, console);
  const double tera = static_cast<double>(r.first.micro_batch_flops) * 1e-12;
  console.print(fmt::format("compute  {:.3g} TFLOP per micro-batch of at most {} {}{}, {:.3g} per step", tera,
                            format_count(r.work.training.num_tokens), noun_for(r.work.training.num_tokens, "token"),
                            r.fused ? " (all micro-batches of a step run as this one)" : "", r.step_flops() * 1e-12));
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

}  // namespace tessera
