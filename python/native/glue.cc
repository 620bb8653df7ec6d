#include "glue.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <thread>

namespace tessera::python {

namespace {

PyObject* error_maker = nullptr;  // the GIL protects it

std::atomic<bool> exiting = false;
std::thread::id exiting_thread;  // written before `exiting`

// Until version 3.14, Python ends each thread that asks for the GIL of an interpreter that ends, which C++ does not
// survive. Such a thread therefore waits for the end of the process.
void wait_for_gil() {
  while (exiting && std::this_thread::get_id() != exiting_thread) pause();
}

// Writes an array of bytes as integers.
template <typename T>
std::vector<T> array_from(PyObject* bytes) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) throw PythonError();
  std::vector<T> values(static_cast<std::size_t>(size) / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), data, values.size() * sizeof(T));
  return values;
}

// The items of a list or tuple, borrowed.
std::vector<PyObject*> items_of(PyObject* list) {
  std::vector<PyObject*> items(static_cast<std::size_t>(std::max<Py_ssize_t>(PyList_Size(list), 0)));
  if (PyErr_Occurred()) throw PythonError();
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = PyList_GetItem(list, static_cast<Py_ssize_t>(i));
  return items;
}

OptionValue option_value(PyObject* object) {
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return integer_from(object);
  if (PyFloat_Check(object)) return real_from(object);
  if (PyList_Check(object)) return texts_from(object);
  return text_from(object);
}

Row row_from(PyObject* tuple) {
  const std::string kind = text_from(PyTuple_GetItem(tuple, 0));
  PyObject* const content = PyTuple_GetItem(tuple, 1);
  if (kind == "text") return Row::text(text_from(content));
  if (kind == "json") return Row::json(text_from(content));
  const std::vector<char> has_loss = array_from<char>(PyTuple_GetItem(tuple, 2));
  return Row::tokens(ids_from(content), {has_loss.begin(), has_loss.end()});
}

}  // namespace

WithGil::WithGil() {
  wait_for_gil();
  state_ = or_waits_for_the_end([] { return PyGILState_Ensure(); });
}

WithoutGil::~WithoutGil() {
  wait_for_gil();
  or_waits_for_the_end([this] { PyEval_RestoreThread(thread_); });
}

void begin_exit() {
  exiting_thread = std::this_thread::get_id();
  exiting = true;
}

Callback::Callback(PyObject* function) {
  if (function == Py_None) return;
  Py_IncRef(function);
  function_ = std::shared_ptr<PyObject>(function, [](PyObject* held) {
    const WithGil gil;
    Py_DecRef(held);
  });
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw PythonError();
}

std::function<void()> signal_check() {
  using Clock = std::chrono::steady_clock;
  return [last = Clock::now()]() mutable {
    if (Clock::now() - last < std::chrono::milliseconds(50)) return;
    const WithGil gil;
    last = Clock::now();
    check_signals();
  };
}

Ref object_of(std::string_view text) {
  return checked(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

Ref object_of(const Evaluation& evaluation) {
  Dict dict;
  dict.set("step", evaluation.step).set("epoch", evaluation.epoch).set("loss", evaluation.loss);
  dict.set("perplexity", evaluation.perplexity);
  const auto& answers = evaluation.answers;
  dict.set("exact_match", answers ? std::optional(answers->exact_match) : std::nullopt);
  dict.set("f1", answers ? std::optional(answers->f1) : std::nullopt);
  dict.set("num_samples", evaluation.num_samples).set("runtime_s", evaluation.runtime_s);
  return dict.take();
}

Ref object_of(const Message& message) {
  Dict dict;
  dict.set("role", message.role).set("content", message.content);
  return dict.take();
}

std::string text_from(PyObject* object) {
  Ref encoded;
  if (PyUnicode_Check(object)) {
    // Paths that are not UTF-8 keep their bytes (os.fsdecode).
    encoded = checked(PyUnicode_AsEncodedString(object, "utf-8", "surrogateescape"));
    object = encoded.get();
  }
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(object, &data, &size) != 0) throw PythonError();
  return {data, static_cast<std::size_t>(size)};
}

std::int64_t integer_from(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

double real_from(PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

bool truth_of(PyObject* object) {
  const int value = PyObject_IsTrue(object);
  if (value < 0) throw PythonError();
  return value != 0;
}

std::vector<std::int32_t> ids_from(PyObject* bytes) {
  return array_from<std::int32_t>(bytes);
}

std::vector<std::string> texts_from(PyObject* list) {
  std::vector<std::string> texts;
  for (PyObject* item : items_of(list)) texts.push_back(text_from(item));
  return texts;
}

std::vector<Message> messages_from(PyObject* list) {
  std::vector<Message> messages;
  for (PyObject* item : items_of(list)) {
    PyObject *role = nullptr, *content = nullptr;
    take_arguments(item, role, content);
    messages.push_back({text_from(role), text_from(content)});
  }
  return messages;
}

Options options_from(PyObject* list, PyObject* config_file) {
  Options options;
  for (PyObject* item : items_of(list)) {
    PyObject *name = nullptr, *value = nullptr;
    take_arguments(item, name, value);
    options.set(text_from(name), option_value(value));
  }
  options.config_file(text_from(config_file));
  return options;
}

Log log_from(PyObject* function) {
  if (function == Py_None) return {};
  return [log = Callback(function)](LogLevel level, std::string_view text) {
    const WithGil gil;
    if (PyErr_Occurred()) return;  // this call already ends with another exception
    const char* const name = level == LogLevel::result ? "result" : level == LogLevel::note ? "note" : "warning";
    log(name, text);
  };
}

Rows rows_from(PyObject* iterator) {
  if (iterator == Py_None) return {};
  return Rows([rows = Callback(iterator)]() -> std::optional<Row> {
    const WithGil gil;
    const Ref row(PyIter_Next(rows.get()));
    if (row) return row_from(row.get());
    if (PyErr_Occurred()) throw PythonError();
    return std::nullopt;
  });
}

void set_error() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (const Error& error) {
    if (PyErr_Occurred()) return;
    try {
      const Ref exception = Callback(error_maker)(name_of(error.kind()), error.subject(), error.text());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
    } catch (const PythonError&) {
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown failure");
  }
}

void set_error_maker(PyObject* function) {
  Py_IncRef(function);
  Py_DecRef(std::exchange(error_maker, function));
}

}  // namespace tessera::python
