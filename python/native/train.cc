// Training, plans and exports.
#include "glue.h"

namespace tessera::python {

namespace {

constexpr const char* kChunk = "tessera.LossChunk";
// In versions before 3.11, the stable ABI lacks this constant of memoryviews.
constexpr int kWritable = 0x200;

Ref object_of_step(const StepMetrics& step) {
  Dict dict;
  dict.set("step", step.step).set("num_steps", step.num_steps).set("epoch", step.epoch).set("loss", step.loss);
  dict.set("gradient_norm", step.gradient_norm).set("learning_rate", step.learning_rate);
  dict.set("loss_scale", step.loss_scale).set("updated", step.updated).set("num_targets", step.num_targets);
  dict.set("num_tokens", step.num_tokens).set("num_samples", step.num_samples).set("runtime_s", step.runtime_s);
  return dict.take();
}

Ref object_of_result(const TrainResult& result) {
  Dict dict;
  dict.set("finished", result.finished).set("steps", result.steps).set("epoch", result.epoch);
  dict.set("train_loss", result.train_loss).set("num_samples", result.num_samples);
  dict.set("num_tokens", result.num_tokens).set("num_targets", result.num_targets);
  dict.set("evaluations", result.evaluations).set("runtime_s", result.runtime_s);
  dict.set_object("output_dir", bytes_object(result.output_dir.data(), result.output_dir.size()).get());
  dict.set_object("model", bytes_object(result.model.data(), result.model.size()).get());
  dict.set("summary_json", result.summary_json);
  return dict.take();
}

Next next_from(PyObject* answer) {
  const std::int64_t number = integer_from(answer);
  return number == 0 ? Next::proceed : number == 1 ? Next::stop : Next::finish;
}

}  // namespace

Loss loss_from(PyObject* function) {
  if (function == Py_None) return {};
  return [loss = Callback(function)](const LossChunk& chunk) {
    const WithGil gil;
    // The function may keep the capsule, but cannot use it later.
    const Ref capsule = checked(PyCapsule_New(const_cast<LossChunk*>(&chunk), kChunk, nullptr));
    struct End {
      PyObject* capsule;
      ~End() { PyCapsule_SetName(capsule, "ended"); }
    };
    const End end{capsule.get()};
    return real_from(loss(borrowed(capsule.get()), chunk.num_rows, chunk.vocab_size,
                          bytes_object(chunk.targets.data(), chunk.targets.size()),
                          bytes_object(chunk.positions.data(), chunk.positions.size()),
                          bytes_object(chunk.rows.data(), chunk.rows.size()), chunk.scale)
                         .get());
  };
}

// (options, config_file, on_step, on_evaluation, stop_requested, log, loss, rows, eval_rows) -> dict
Ref train_model(PyObject* arguments) {
  PyObject *list = nullptr, *config_file = nullptr, *on_step = nullptr, *on_evaluation = nullptr, *stop = nullptr,
           *log = nullptr, *loss = nullptr, *rows = nullptr, *eval_rows = nullptr;
  take_arguments(arguments, list, config_file, on_step, on_evaluation, stop, log, loss, rows, eval_rows);
  const Options options = options_from(list, config_file);
  Hooks hooks;
  if (const Callback function(on_step); function) {
    hooks.on_step = [function](const StepMetrics& step) {
      const WithGil gil;
      return next_from(function(object_of_step(step)).get());
    };
  }
  if (const Callback function(on_evaluation); function) {
    hooks.on_evaluation = [function](const Evaluation& evaluation) {
      const WithGil gil;
      function(object_of(evaluation));
    };
  }
  hooks.stop_requested = [function = Callback(stop)] {
    const WithGil gil;
    check_signals();
    return truth_of(function().get());
  };
  hooks.log = log_from(log);
  hooks.loss = loss_from(loss);
  hooks.rows = rows_from(rows);
  hooks.eval_rows = rows_from(eval_rows);
  return object_of_result(without_gil([&] { return train(options, hooks); }));
}

// (options, config_file, log) -> dict
Ref plan_run(PyObject* arguments) {
  PyObject *list = nullptr, *config_file = nullptr, *log = nullptr;
  take_arguments(arguments, list, config_file, log);
  const Options options = options_from(list, config_file);
  const Plan result = without_gil([&, messages = log_from(log)] { return plan(options, messages); });
  Dict dict;
  dict.set("fits", result.fits).set("peak_bytes", result.peak_bytes).set("file_bytes", result.file_bytes);
  dict.set("device_peak_bytes", result.device_peak_bytes).set("host_peak_bytes", result.host_peak_bytes);
  dict.set("memory_limit_bytes", result.memory_limit_bytes);
  const Ref list_of_bytes = checked(PyList_New(0));
  for (const PlannedBytes& planned : result.bytes) {
    Dict row;
    row.set("phase", planned.phase).set("category", planned.category);
    row.set("device_bytes", planned.device_bytes).set("host_bytes", planned.host_bytes);
    if (PyList_Append(list_of_bytes.get(), row.take().get()) != 0) throw PythonError();
  }
  dict.set_object("bytes", list_of_bytes.get());
  dict.set("num_parameters", result.num_parameters);
  dict.set("num_trainable_parameters", result.num_trainable_parameters);
  dict.set("step_flops", result.step_flops).set("step_bytes_sent", result.step_bytes_sent);
  dict.set("estimated_step_s", result.estimated_step_s);
  Dict settings;
  for (const Options::Entry& entry : result.settings.entries()) {
    std::visit([&](const auto& value) { settings.set(entry.name.c_str(), value); }, entry.value.variant());
  }
  dict.set_object("settings", settings.take().get());
  dict.set("text", result.text).set("json", result.json);
  return dict.take();
}

// (options, config_file, log) -> path as bytes
Ref export_folder(PyObject* arguments) {
  PyObject *list = nullptr, *config_file = nullptr, *log = nullptr;
  take_arguments(arguments, list, config_file, log);
  const Options options = options_from(list, config_file);
  const std::string path = without_gil([&, messages = log_from(log)] { return export_model(options, messages); });
  return bytes_object(path.data(), path.size());
}

// (chunk) -> memoryview of the logits, for the time of the call that gets the chunk
Ref loss_memory(PyObject* arguments) {
  PyObject* capsule = nullptr;
  take_arguments(arguments, capsule);
  const auto& chunk = held_in<const LossChunk>(capsule, kChunk);
  const auto size = static_cast<Py_ssize_t>(chunk.num_rows * chunk.vocab_size) * static_cast<Py_ssize_t>(sizeof(float));
  return checked(PyMemoryView_FromMemory(reinterpret_cast<char*>(chunk.logits), size, kWritable));
}

// (chunk, first, count, weight) -> float
Ref loss_cross_entropy(PyObject* arguments) {
  PyObject *capsule = nullptr, *first = nullptr, *count = nullptr, *weight = nullptr;
  take_arguments(arguments, capsule, first, count, weight);
  const auto& chunk = held_in<const LossChunk>(capsule, kChunk);
  const std::int64_t begin = integer_from(first), size = integer_from(count);
  const double factor = real_from(weight);
  if (begin < 0 || size < 0 || size > chunk.num_rows - begin) {
    PyErr_SetString(PyExc_IndexError, "the chunk has no such rows");
    throw PythonError();
  }
  return object_of(without_gil([&] { return chunk.compute(begin, size, factor); }));
}

}  // namespace tessera::python
