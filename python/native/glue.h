// What the functions of the module share: references, the GIL, conversions and exceptions. Python's stable ABI of
// version 3.8 (Py_LIMITED_API), so one file works with every later Python.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/tessera.h>

namespace tessera::python {

// Python's error indicator of this thread is set. On its way through the library, the exception stays there.
struct PythonError {};

// A reference that the GIL protects.
struct Release {
  void operator()(PyObject* object) const { Py_DecRef(object); }
};
using Ref = std::unique_ptr<PyObject, Release>;

// Takes over a new reference. A null pointer means that the error indicator is set.
inline Ref checked(PyObject* object) {
  if (!object) throw PythonError();
  return Ref(object);
}
inline Ref borrowed(PyObject* object) {
  Py_IncRef(object);
  return checked(object);
}

// Runs work that may ask for the GIL. Until version 3.14, Python ends a thread that asks for the GIL of an interpreter
// that ends: it unwinds the thread's stack, which C++ does not survive. Such a thread instead waits here for the end of
// the process.
template <typename Work>
auto or_waits_for_the_end(const Work& work) {
  try {
    return work();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

// Holds the GIL, on a thread that may hold it or not.
class WithGil {
 public:
  WithGil();
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Releases the GIL.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

template <typename Work>
auto without_gil(const Work& work) {
  const WithoutGil released;
  return work();
}

// From now on, this is the only thread that gets the GIL: the interpreter ends. Others wait until the process has
// ended.
void begin_exit();

// A function of the program, for the library, which copies and destroys it without the GIL. None becomes an empty one.
class Callback {
 public:
  explicit Callback(PyObject* function);
  explicit operator bool() const { return function_ != nullptr; }
  PyObject* get() const { return function_.get(); }

  // Calls the function. The GIL must be held. Throws PythonError.
  template <typename... Arguments>
  Ref operator()(Arguments&&... arguments) const;

 private:
  std::shared_ptr<PyObject> function_;
};

// Throws PythonError if the handler of a signal raised an exception, as Ctrl-C does. Only the main thread runs
// handlers. The GIL must be held.
void check_signals();
// A check for Model::set_check(). It asks for signals at most every 50 ms, because waiting for the GIL takes time.
std::function<void()> signal_check();

// Values of Python.
inline Ref object_of(Ref object) {
  return object;
}
template <std::same_as<bool> T>
Ref object_of(T value) {
  return checked(PyBool_FromLong(value));
}
template <std::integral T>
requires(!std::same_as<T, bool>) Ref object_of(T value) {
  return checked(PyLong_FromLongLong(value));
}
inline Ref object_of(double value) {
  return checked(PyFloat_FromDouble(value));
}
// Bytes that are not UTF-8 become \xNN.
Ref object_of(std::string_view text);
inline Ref object_of(const std::string& text) {
  return object_of(std::string_view(text));
}
inline Ref object_of(const char* text) {
  return object_of(std::string_view(text));
}
Ref object_of(const Evaluation& evaluation);
Ref object_of(const Message& message);
template <typename T>
Ref object_of(const std::optional<T>& value) {
  return value ? object_of(*value) : borrowed(Py_None);
}
template <typename T>
Ref object_of(const std::vector<T>& values) {
  Ref list = checked(PyList_New(0));
  for (const T& value : values) {
    if (PyList_Append(list.get(), object_of(value).get()) != 0) throw PythonError();
  }
  return list;
}
// bytes with the elements of an array.
template <typename T>
Ref bytes_object(const T* first, std::size_t count) {
  return checked(
      PyBytes_FromStringAndSize(reinterpret_cast<const char*>(first), static_cast<Py_ssize_t>(count * sizeof(T))));
}

// A dict with names as keys.
class Dict {
 public:
  Dict() : dict_(checked(PyDict_New())) {}
  template <typename T>
  Dict& set(const char* name, const T& value) {
    return set_object(name, object_of(value).get());
  }
  Dict& set_object(const char* name, PyObject* value) {
    if (PyDict_SetItemString(dict_.get(), name, value) != 0) throw PythonError();
    return *this;
  }
  Ref take() { return std::move(dict_); }

 private:
  Ref dict_;
};

template <typename... Arguments>
Ref tuple_of(Arguments&&... arguments) {
  Ref tuple = checked(PyTuple_New(sizeof...(arguments)));
  Py_ssize_t at = 0;
  [[maybe_unused]] const auto add = [&](Ref item) {
    if (PyTuple_SetItem(tuple.get(), at++, item.release()) != 0) throw PythonError();
  };
  (add(object_of(std::forward<Arguments>(arguments))), ...);
  return tuple;
}

template <typename... Arguments>
Ref Callback::operator()(Arguments&&... arguments) const {
  const Ref tuple = tuple_of(std::forward<Arguments>(arguments)...);
  return checked(or_waits_for_the_end([&] { return PyObject_Call(get(), tuple.get(), nullptr); }));
}

// Values for the library. All throw PythonError for another type.
std::string text_from(PyObject* object);  // str as UTF-8, or bytes unchanged
std::int64_t integer_from(PyObject* object);
double real_from(PyObject* object);
bool truth_of(PyObject* object);
std::vector<std::int32_t> ids_from(PyObject* bytes);  // bytes of int32
std::vector<std::string> texts_from(PyObject* list);
std::vector<Message> messages_from(PyObject* list);  // of (role, content)
// A list of (name, value), and the path of a configuration file or an empty text.
Options options_from(PyObject* list, PyObject* config_file);
Log log_from(PyObject* function);
Rows rows_from(PyObject* iterator);
Loss loss_from(PyObject* function);

// Parses the arguments of a function into borrowed references.
template <typename... Objects>
void take_arguments(PyObject* arguments, Objects*&... objects) {
  Py_ssize_t at = 0;
  if (PyTuple_Size(arguments) != sizeof...(objects)) {
    PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
    throw PythonError();
  }
  ((objects = PyTuple_GetItem(arguments, at++)), ...);
}

// Objects of the library, in capsules.
template <typename T>
Ref capsule_of(std::unique_ptr<T> object, const char* name) {
  const auto destroy = [](PyObject* capsule) {
    T* const held = static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    without_gil([held] { delete held; });  // frees much memory, which takes time
  };
  Ref capsule = checked(PyCapsule_New(object.get(), name, destroy));
  static_cast<void>(object.release());
  return capsule;
}
template <typename T>
T& held_in(PyObject* capsule, const char* name) {
  void* const held = PyCapsule_GetPointer(capsule, name);
  if (!held) throw PythonError();
  return *static_cast<T*>(held);
}

// Sets the error indicator for the exception being handled.
void set_error() noexcept;
// The function of Python that makes an exception of (kind, subject, text).
void set_error_maker(PyObject* function);

// A function of the module: returns a new reference, or sets the error indicator and returns nullptr.
template <Ref (*kFunction)(PyObject*)>
PyObject* method(PyObject*, PyObject* arguments) noexcept {
  try {
    return kFunction(arguments).release();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

// The functions of the files of this folder.
Ref train_model(PyObject* arguments);
Ref plan_run(PyObject* arguments);
Ref export_folder(PyObject* arguments);
Ref loss_memory(PyObject* arguments);
Ref loss_cross_entropy(PyObject* arguments);
Ref tokenizer_load(PyObject* arguments);
Ref tokenizer_encode(PyObject* arguments);
Ref tokenizer_decode(PyObject* arguments);
Ref tokenizer_id_of(PyObject* arguments);
Ref tokenizer_vocab_size(PyObject* arguments);
Ref model_load(PyObject* arguments);
Ref model_facts(PyObject* arguments);
Ref model_generate(PyObject* arguments);
Ref model_generate_several(PyObject* arguments);
Ref model_evaluate(PyObject* arguments);
Ref model_save(PyObject* arguments);
Ref model_use_adapter(PyObject* arguments);
Ref model_chat(PyObject* arguments);
Ref chat_say(PyObject* arguments);
Ref chat_messages(PyObject* arguments);
Ref chat_set_system(PyObject* arguments);
Ref chat_reset(PyObject* arguments);
Ref chat_undo(PyObject* arguments);

}  // namespace tessera::python
