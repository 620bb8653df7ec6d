#include "tessera/plan/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/load/data_report.h"
#include "tessera/settings/engine_options.h"
#include "tessera/settings/setting.h"

namespace tessera {
namespace {

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

std::string PlanReport::precision() const {
  return std::get<std::string>(find_setting("precision")->get(settings));
}

double PlanReport::step_flops() const {
  return static_cast<double>(first.micro_batch_flops) * static_cast<double>(work.micro_batches);
}

double PlanReport::step_tokens() const {
  return static_cast<double>(typical.training.num_tokens) * static_cast<double>(typical.micro_batches) *
         rank.world_size;
}

double PlanReport::steps_per_epoch() const {
  if (!train_data) return 0;
  const bool by_tokens = settings.batch_tokens > 0;
  const int64_t items = by_tokens ? (fill ? fill->num_micro_batches : 0) : train_data->num_samples;
  const double per_step =
      static_cast<double>((by_tokens ? 1 : settings.batch_size) * settings.grad_accum) * rank.world_size;
  return std::ceil(static_cast<double>(items) / per_step);
}

double PlanReport::evaluation_s() const {
  if (!has_time() || !eval_data) return 0;
  const double batches = std::ceil(static_cast<double>(eval_data->num_samples) /
                                   static_cast<double>(settings.eval_batch_size * rank.world_size));
  return batches * time->evaluation_s;
}

double PlanReport::checkpoint_s() const {
  const bool known = machine && machine->file_write_bytes_per_s > 0;
  return known ? static_cast<double>(first.checkpoint_bytes) / machine->file_write_bytes_per_s : 0;
}

Record plan_record(const PlanReport& r) {
  Record record{{"schema", 1}, {"model", r.settings.model}, {"num_parameters", r.first.num_parameters}};
  record["num_trainable_parameters"] = r.first.num_trainable_parameters;
  record["world_size"] = r.rank.world_size;
  record["ranks_per_node"] = r.rank.ranks_per_node;
  record["device"] = r.rank.device == DeviceKind::cuda ? "cuda" : "cpu";
  record["precision"] = r.precision();
  for (const char* name : {"matmul_precision", "gather_dtype"}) {
    record[name] = std::get<std::string>(find_setting(name)->get(r.settings));
  }
  record.update(searched_settings(r.settings));
  record["batch_tokens"] = r.settings.batch_tokens;
  if (r.fill) record["batch_tokens_used"] = r.fill->share;
  const int64_t tokens = r.work.training.num_tokens;
  record["fused_micro_batches"] = r.fused;
  record["micro_batch_tokens"] = tokens;
  record["micro_batch_flops"] = r.first.micro_batch_flops;
  record["step_flops"] = r.step_flops();
  record["step_bytes_sent"] = r.first.step_bytes_sent;
  record["peak_bytes"] = r.first.peak_bytes();
  record["first_rank"] = rank_record(r, r.first);
  record["other_ranks"] = r.other ? Record(rank_record(r, *r.other)) : Record(nullptr);
  const Excess excess = r.excess();
  const bool known = excess.limit_bytes < MemoryLimits{}.device_bytes;
  record["memory_bytes"] = known ? Record(excess.limit_bytes) : Record(nullptr);
  record["fits"] = known ? Record(excess.fits()) : Record(nullptr);
  const auto limit = [](int64_t bytes) { return bytes < MemoryLimits{}.disk_bytes ? Record(bytes) : Record(nullptr); };
  record["host_memory_bytes"] = limit(r.limits.host_bytes);
  record["disk_bytes"] = limit(r.limits.disk_bytes);
  if (r.train_data) record["train_data"] = data_record(*r.train_data);
  if (r.eval_data) record["eval_data"] = data_record(*r.eval_data);
  record["machine"] = r.machine ? Record{{"name", r.machine->name}, {"source", r.machine->source}} : Record(nullptr);
  record["checkpoint_bytes"] = r.first.checkpoint_bytes;
  record["time"] = r.time ? time_record(*r.time) : Record(nullptr);
  if (r.has_time()) {
    const auto if_any = [](double seconds) { return seconds > 0 ? Record(seconds) : Record(nullptr); };
    record["time"]["tokens_per_s"] = r.step_tokens() / r.time->step_s;
    record["time"]["epoch_s"] = if_any(r.steps_per_epoch() * r.time->step_s);
    record["time"]["evaluation_s"] = if_any(r.evaluation_s());
    record["time"]["checkpoint_s"] = if_any(r.checkpoint_s());
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
