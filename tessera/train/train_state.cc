#include "tessera/train/train_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/base/text.h"
#include "tessera/comm/world.h"
#include "tessera/settings/setting.h"
#include "tessera/store/checksum.h"
#include "tessera/train/continuation.h"

namespace tessera {
namespace {

Record eval_record(const EvalOutcome& outcome) {
  Record record = Record::object();
  if (outcome.loss) record["loss"] = *outcome.loss;
  if (outcome.answers) record.update(answer_record(*outcome.answers));
  return record;
}

constexpr const char* kOtherVersion =
    "Another version of Tessera wrote this checkpoint: resume with that version, or use --resume none";

constexpr const char* kEdited =
    "The file was edited or damaged: put the original back, name an earlier checkpoint with --resume, or use --resume "
    "none";
constexpr int64_t kMaxCount = 1'000'000'000'000'000;

// Reads typed values from a record that to_json() wrote. Throws InputError if a key is missing, or has another type or
// an impossible value. This can happen even if the checksum of the file is correct, because another version of Tessera
// or an editor may have written it.
class RecordReader {
 public:
  RecordReader(const Record& record, const std::string& where) : record_(record), where_(where) {}

  template <typename T>
  T get(const char* key) const {
    const Record& value = checked(key, [](const Record& v) {
      if constexpr (std::is_same_v<T, bool>) return v.is_boolean();
      if constexpr (std::is_same_v<T, int64_t>) return is_int64(v);
      if constexpr (std::is_same_v<T, double>) return v.is_number() || v.is_null();
      if constexpr (std::is_same_v<T, std::string>) return v.is_string();
    });
    if constexpr (std::is_same_v<T, double>) {  // JSON has no NaN: to_json() writes null
      if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
    }
    return value.template get<T>();
  }
  // A whole number from `least` to `most`.
  int64_t count(const char* key, int64_t most = kMaxCount, int64_t least = 0) const {
    const auto value = get<int64_t>(key);
    if (value < least || value > most) refuse(key, fmt::format("a whole number from {} to {}", least, most));
    return value;
  }
  double amount(const char* key) const {
    const auto value = get<double>(key);
    if (!(value >= 0)) refuse(key, "a number of at least 0");
    return value;
  }
  const Record& object(const char* key) const {
    return checked(key, [](const Record& v) { return v.is_object(); });
  }
  const Record& list(const char* key) const {
    return checked(key, [](const Record& v) { return v.is_array(); });
  }
  RecordReader inner(const char* key) const { return {object(key), where_}; }
  // A list of 1 to LossWatch::kWindow numbers.
  std::vector<double> numbers(const char* key) const {
    const Record& values = checked(key, [](const Record& v) {
      const bool all = std::all_of(v.begin(), v.end(), [](const Record& number) { return number.is_number(); });
      return v.is_array() && !v.empty() && all && v.size() <= static_cast<size_t>(LossWatch::kWindow);
    });
    return values.get<std::vector<double>>();
  }
  // The members of a list, whose type is_of_its_type() checks.
  template <typename Test>
  const Record& list(const char* key, Test&& is_of_its_type) const {
    const Record& members = list(key);
    for (const Record& member : members) {
      if (!is_of_its_type(member))
        throw InputError(where_, fmt::format("\"{}\" contains {}", key, shown(member)), kEdited);
    }
    return members;
  }
  std::optional<double> optional(const char* key) const {
    return has(key) ? std::optional(get<double>(key)) : std::nullopt;
  }
  bool has(const char* key) const { return record_.contains(key); }
  EvalOutcome outcome(const char* key) const {
    const RecordReader reader(object(key), where_);
    EvalOutcome outcome{.loss = reader.optional("loss"), .answers = {}};
    if (reader.has("exact_match")) {
      outcome.answers = {reader.get<double>("exact_match"), reader.get<double>("f1"), reader.group("HasAns"),
                         reader.group("NoAns")};
    }
    return outcome;
  }
  LoadedTypes types(const char* key) const {
    LoadedTypes types;
    const RecordReader reader(object(key), where_);
    for (const auto& entry : reader.record_.items()) {
      reader.checked(entry.key().c_str(), [&](const Record& v) {
        const auto known = std::find_if(kSavedTypes.begin(), kSavedTypes.end(),
                                        [&](DType dtype) { return v == Record(name_of(dtype)); });
        if (known != kSavedTypes.end()) types[entry.key()] = *known;
        return known != kSavedTypes.end();
      });
    }
    return types;
  }

  static bool is_int64(const Record& value) {
    return value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62);
  }

 private:
  // The reverse of answer_record() for a group of questions.
  std::optional<AnswerMetrics::Group> group(const std::string& name) const {
    if (!has((name + "_total").c_str())) return std::nullopt;
    return AnswerMetrics::Group{get<double>((name + "_exact").c_str()), get<double>((name + "_f1").c_str()),
                                get<int64_t>((name + "_total").c_str())};
  }
  static std::string shown(const Record& value) { return printable(to_json(value), 40); }
  [[noreturn]] void refuse(const char* key, const std::string& wanted) const {
    throw InputError(where_, fmt::format("the key \"{}\" is {}, but must be {}", key, shown(record_.at(key)), wanted),
                     kEdited);
  }
  template <typename Test>
  const Record& checked(const char* key, Test&& is_of_its_type) const {
    const auto value = record_.find(key);
    if (value == record_.end() || !is_of_its_type(*value)) {
      throw InputError(where_, fmt::format("the key \"{}\" is missing or of another type", printable(key)),
                       kOtherVersion);
    }
    return *value;
  }

  const Record& record_;
  const std::string& where_;
};

Record health_record(const TrainHealth& health) {
  Record record{{"num_without_targets", health.num_without_targets},
                {"num_skipped", health.num_skipped},
                {"skipped_in_a_row", health.skipped_in_a_row},
                {"sound_checkpoint", health.sound_checkpoint}};
  const LossWatch::State& losses = health.losses;
  if (losses.first) {
    record["warned_of_loss"] = health.warned_of_loss;
    record["losses"] = Record{{"first", *losses.first},
                              {"lowest", losses.lowest},
                              {"noise", losses.noise},
                              {"excess", losses.excess},
                              {"recent", losses.recent}};
  }
  return record;
}

// `steps`: the step of the checkpoint. Checkpoints of older versions have no num_without_targets and no losses.
void read_health(const RecordReader& read, int64_t steps, TrainHealth& health) {
  health.num_skipped = read.count("num_skipped", steps);
  health.skipped_in_a_row = read.count("skipped_in_a_row", steps);
  health.sound_checkpoint = read.count("sound_checkpoint", steps, -1);
  if (read.has("num_without_targets")) health.num_without_targets = read.count("num_without_targets", steps);
  if (!read.has("losses")) return;
  health.warned_of_loss = read.get<bool>("warned_of_loss");
  const RecordReader losses = read.inner("losses");
  health.losses = {losses.get<double>("first"), losses.get<double>("lowest"), losses.get<double>("noise"),
                   losses.get<double>("excess"), losses.numbers("recent")};
}

}  // namespace

std::string TrainState::to_json(const Record& fingerprint) const {
  std::vector<Record> row_values;
  for (const EpochRow& row : rows) {
    row_values.push_back(Record{{"epoch", row.epoch}, {"train_loss", row.train_loss}, {"eval", eval_record(row.eval)}});
  }
  Record record{{"schema", 1},
                {"fingerprint", fingerprint},
                {"step", step},
                {"total_loss", total_loss},
                {"loss_steps", loss_steps},
                {"logged_loss", logged_loss},
                {"logged_steps", logged_steps},
                {"row_loss", row_loss},
                {"row_steps", row_steps},
                {"num_samples", num_samples},
                {"num_tokens", num_tokens},
                {"num_targets", num_targets},
                {"evaluated_before", evaluated_before},
                {"before", eval_record(before)},
                {"rows", row_values},
                {"best_step", best_step},
                {"num_updates", num_updates},
                {"evaluated_step", evaluated_step},
                {"metrics_bytes", metrics_bytes},
                {"runtime_s", runtime_s},
                {"steady_s", steady_s},
                {"steady_samples", steady_samples},
                {"steady_tokens", steady_tokens},
                {"eval_timing", eval_timing},
                {"stop_steps", stop_steps}};
  record["health"] = health_record(health);
  if (!origin.empty()) record["origin"] = origin;
  if (loaded_types) {
    Record types = Record::object();
    for (const auto& [name, dtype] : *loaded_types) types[name] = name_of(dtype);
    record["loaded_types"] = types;
  }
  if (best_metric) record["best_metric"] = *best_metric;
  if (choice.is_object()) record["choice"] = choice;
  if (fused_micro_batches) record["fused_micro_batches"] = *fused_micro_batches;
  if (loss_scale) {
    record["loss_scale"] = Record{{"scale", loss_scale->scale},
                                  {"clean_steps", loss_scale->clean_steps},
                                  {"hysteresis_left", loss_scale->hysteresis_left}};
  }
  return to_pretty_json(record) + "\n";
}

Record TrainState::fingerprint_in(const std::string& text, const std::string& where) {
  const Record record = record_from_json(text, where);
  Record fingerprint = RecordReader(record, where).object("fingerprint");
  const RecordReader read(fingerprint, where);
  if (read.has("max_steps")) read.count("max_steps");
  if (read.has("epochs")) read.amount("epochs");
  return fingerprint;
}

TrainState TrainState::from_json(const std::string& text, const Record& fingerprint, const std::string& where) {
  const std::vector<Change> changes = changes_between(fingerprint_in(text, where), fingerprint);
  if (!changes.empty())
    throw UsageError(where, listed(changes), "Use the settings of the run that made the checkpoint");
  return from_json(text, where);
}

TrainState TrainState::from_json(const std::string& text, const std::string& where) {
  const Record record = record_from_json(text, where);
  const RecordReader read(record, where);
  TrainState state;
  state.step = read.count("step");
  const int64_t most = state.step;  // of counts of steps
  state.total_loss = read.get<double>("total_loss");
  state.loss_steps = read.has("loss_steps") ? read.count("loss_steps", most) : state.step;
  state.logged_loss = read.get<double>("logged_loss");
  state.logged_steps = read.count("logged_steps", most);
  state.row_loss = read.get<double>("row_loss");
  state.row_steps = read.count("row_steps", most);
  state.num_samples = read.count("num_samples");
  state.num_tokens = read.count("num_tokens");
  state.num_targets = read.count("num_targets");
  state.evaluated_before = read.get<bool>("evaluated_before");
  state.before = read.outcome("before");
  for (const Record& row : read.list("rows", [](const Record& v) { return v.is_object(); })) {
    const RecordReader row_reader(row, where);
    state.rows.push_back(
        {row_reader.amount("epoch"), row_reader.get<double>("train_loss"), row_reader.outcome("eval")});
  }
  state.best_metric = read.optional("best_metric");
  if (read.has("fused_micro_batches")) state.fused_micro_batches = read.get<bool>("fused_micro_batches");
  state.best_step = read.count("best_step", most);
  state.num_updates = read.count("num_updates", most);
  state.evaluated_step = read.count("evaluated_step", most, -1);
  if (read.has("loss_scale")) {
    const RecordReader scale(read.object("loss_scale"), where);
    state.loss_scale = {scale.amount("scale"), scale.count("clean_steps"),
                        scale.count("hysteresis_left", kMaxCount, 1)};
    // In older checkpoints, the number of skipped updates is in the record "loss_scale".
    if (scale.has("num_skipped")) state.health.num_skipped = scale.count("num_skipped", most);
  }
  if (read.has("health")) read_health(read.inner("health"), most, state.health);
  state.metrics_bytes = read.count("metrics_bytes");
  state.runtime_s = read.amount("runtime_s");
  state.steady_s = read.amount("steady_s");
  state.steady_samples = read.count("steady_samples");
  state.steady_tokens = read.count("steady_tokens");
  if (read.has("stop_steps")) {
    for (const Record& step : read.list("stop_steps", RecordReader::is_int64)) {
      state.stop_steps.push_back(step.get<int64_t>());
    }
  }
  if (read.has("origin")) state.origin = read.get<std::string>("origin");
  if (read.has("loaded_types")) state.loaded_types = read.types("loaded_types");
  if (read.has("eval_timing")) {
    state.eval_timing = read.object("eval_timing");
    const RecordReader timing(state.eval_timing, where);
    for (const auto& entry : state.eval_timing.items()) timing.get<double>(entry.key().c_str());  // all are numbers
  }
  return state;
}

std::string end_token_in(const Record& fingerprint) {
  const auto found = fingerprint.find("eos_token");
  return found != fingerprint.end() && found->is_string() ? found->get<std::string>() : "";
}

Record train_fingerprint(const Settings& settings, const ModelConfig& config, const Samples& samples, int num_ranks) {
  Record record = model_fingerprint(config);
  record["hidden_dropout"] = config.hidden_dropout;
  record["attention_dropout"] = config.attention_dropout;
  // An error lists differences in the order of the keys. A difference that no run may have comes first.
  for (const Resume resume : {Resume::never, Resume::any, Resume::new_folder}) {
    for (const Setting& setting : all_settings()) {
      if (setting.resume != resume || !setting.is_recorded()) continue;
      std::visit([&](const auto& value) { record[setting.name] = value; }, setting.get(settings));
    }
  }
  // A resumed run may change batch_size, grad_accum and the number of ranks, if the product of these three numbers
  // stays the same. With batch_tokens, it may change grad_accum and the number of ranks, if their product and
  // batch_tokens stay the same.
  if (settings.batch_tokens > 0) {
    record["batch_tokens"] = settings.batch_tokens;
    record["grad_accum x ranks"] = settings.grad_accum * num_ranks;
    if (settings.shuffle) record[kPackingKey] = kBestFit;
  } else {
    record["batch_size x grad_accum x ranks"] = settings.batch_size * settings.grad_accum * num_ranks;
  }
  if (settings.eval_fraction > 0) record["eval_fraction"] = settings.eval_fraction;
  // If a setting that determines the samples differs, these keys differ too. They come after the settings, because an
  // error lists differences in the order of the keys, and it must name the setting first.
  record["dataset_samples"] = samples.size();
  record["dataset_checksum"] = checksum_of(samples);
  return record;
}

void fill_checkpoint(CheckpointPart& part, Engine& engine, const FrozenFiles& frozen, const TrainState& state,
                     const Record& fingerprint) {
  write_checkpoint_arrays(part, engine.states(), frozen);
  part.add_text("trainer_state.json", state.to_json(fingerprint));
}

}  // namespace tessera
