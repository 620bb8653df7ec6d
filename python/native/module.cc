// The module tessera._native: the functions that python/tessera/*.py call. They take positional arguments, and check
// only what the files in Python cannot get wrong by their users.
#include "glue.h"

namespace tessera::python {

namespace {

Ref version_text(PyObject*) {
  return object_of(version());
}

Ref set_error_class(PyObject* arguments) {
  PyObject* function = nullptr;
  take_arguments(arguments, function);
  set_error_maker(function);
  return borrowed(Py_None);
}

Ref note_exit(PyObject*) {
  begin_exit();
  return borrowed(Py_None);
}

PyMethodDef methods[] = {
    {"version", method<version_text>, METH_VARARGS, nullptr},
    {"set_error_maker", method<set_error_class>, METH_VARARGS, nullptr},
    {"begin_exit", method<note_exit>, METH_VARARGS, nullptr},
    {"train", method<train_model>, METH_VARARGS, nullptr},
    {"plan", method<plan_run>, METH_VARARGS, nullptr},
    {"export", method<export_folder>, METH_VARARGS, nullptr},
    {"loss_memory", method<loss_memory>, METH_VARARGS, nullptr},
    {"loss_cross_entropy", method<loss_cross_entropy>, METH_VARARGS, nullptr},
    {"tokenizer_load", method<tokenizer_load>, METH_VARARGS, nullptr},
    {"tokenizer_encode", method<tokenizer_encode>, METH_VARARGS, nullptr},
    {"tokenizer_decode", method<tokenizer_decode>, METH_VARARGS, nullptr},
    {"tokenizer_id_of", method<tokenizer_id_of>, METH_VARARGS, nullptr},
    {"tokenizer_vocab_size", method<tokenizer_vocab_size>, METH_VARARGS, nullptr},
    {"model_load", method<model_load>, METH_VARARGS, nullptr},
    {"model_facts", method<model_facts>, METH_VARARGS, nullptr},
    {"model_generate", method<model_generate>, METH_VARARGS, nullptr},
    {"model_generate_several", method<model_generate_several>, METH_VARARGS, nullptr},
    {"model_evaluate", method<model_evaluate>, METH_VARARGS, nullptr},
    {"model_save", method<model_save>, METH_VARARGS, nullptr},
    {"model_use_adapter", method<model_use_adapter>, METH_VARARGS, nullptr},
    {"model_chat", method<model_chat>, METH_VARARGS, nullptr},
    {"chat_say", method<chat_say>, METH_VARARGS, nullptr},
    {"chat_messages", method<chat_messages>, METH_VARARGS, nullptr},
    {"chat_set_system", method<chat_set_system>, METH_VARARGS, nullptr},
    {"chat_reset", method<chat_reset>, METH_VARARGS, nullptr},
    {"chat_undo", method<chat_undo>, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tessera._native", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

}  // namespace tessera::python

PyMODINIT_FUNC PyInit__native() {  // NOLINT(bugprone-reserved-identifier): Python asks for this name
  return PyModule_Create(&tessera::python::definition);
}
