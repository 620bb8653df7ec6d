// Models, tokenizers and chats.
#include "glue.h"

namespace tessera::python {

namespace {

constexpr const char* kTokenizer = "tessera.Tokenizer";
constexpr const char* kModel = "tessera.Model";
constexpr const char* kChat = "tessera.Chat";

Model& model_in(PyObject* capsule) {
  return held_in<Model>(capsule, kModel);
}
Chat& chat_in(PyObject* capsule) {
  return held_in<Chat>(capsule, kChat);
}
const Tokenizer& tokenizer_in(PyObject* capsule) {
  return held_in<Tokenizer>(capsule, kTokenizer);
}

Ref object_of_tokenizer(const Tokenizer& tokenizer) {
  return capsule_of(std::make_unique<Tokenizer>(tokenizer), kTokenizer);
}

template <typename T>
std::optional<T> optional_from(PyObject* object, T (*from)(PyObject*)) {
  return object == Py_None ? std::nullopt : std::optional<T>(from(object));
}

// (max_new_tokens, do_sample, temperature, top_k, top_p, seed, stop)
GenerateOptions generate_options(PyObject* tuple) {
  PyObject *max_new_tokens = nullptr, *do_sample = nullptr, *temperature = nullptr, *top_k = nullptr, *top_p = nullptr,
           *seed = nullptr, *stop = nullptr;
  take_arguments(tuple, max_new_tokens, do_sample, temperature, top_k, top_p, seed, stop);
  GenerateOptions options;
  options.max_new_tokens = optional_from(max_new_tokens, integer_from);
  options.do_sample = optional_from(do_sample, truth_of);
  options.temperature = optional_from(temperature, real_from);
  options.top_k = optional_from(top_k, integer_from);
  options.top_p = optional_from(top_p, real_from);
  options.seed = optional_from(seed, integer_from);
  options.stop = texts_from(stop);
  return options;
}

OnText on_text_from(PyObject* function) {
  if (function == Py_None) return {};
  return [on_text = Callback(function)](std::string_view part) {
    const WithGil gil;
    return truth_of(on_text(part).get());
  };
}

Ref object_of_generation(const Generation& generation) {
  const char* const reason = generation.finish_reason == FinishReason::stop     ? "stop"
                             : generation.finish_reason == FinishReason::length ? "length"
                                                                                : "cancelled";
  Dict dict;
  dict.set("text", generation.text).set("ids", generation.ids).set("finish_reason", reason);
  dict.set("num_prompt_tokens", generation.num_prompt_tokens).set("seconds", generation.seconds);
  return dict.take();
}

Ref nothing() {
  return borrowed(Py_None);
}

}  // namespace

// (place) -> capsule
Ref tokenizer_load(PyObject* arguments) {
  PyObject* place = nullptr;
  take_arguments(arguments, place);
  const std::string path = text_from(place);
  return object_of_tokenizer(without_gil([&] { return Tokenizer(path); }));
}

// (tokenizer, text, special_tokens) -> list of int
Ref tokenizer_encode(PyObject* arguments) {
  PyObject *capsule = nullptr, *text = nullptr, *special_tokens = nullptr;
  take_arguments(arguments, capsule, text, special_tokens);
  const std::string bytes = text_from(text);
  const bool is_special = truth_of(special_tokens);
  const Tokenizer& tokenizer = tokenizer_in(capsule);
  return object_of(without_gil([&] { return tokenizer.encode(bytes, is_special); }));
}

// (tokenizer, bytes of int32, skip_special) -> str
Ref tokenizer_decode(PyObject* arguments) {
  PyObject *capsule = nullptr, *ids = nullptr, *skip_special = nullptr;
  take_arguments(arguments, capsule, ids, skip_special);
  const std::vector<std::int32_t> numbers = ids_from(ids);
  const bool skips = truth_of(skip_special);
  const Tokenizer& tokenizer = tokenizer_in(capsule);
  return object_of(without_gil([&] { return tokenizer.decode(numbers, skips); }));
}

// (tokenizer, token) -> int or None
Ref tokenizer_id_of(PyObject* arguments) {
  PyObject *capsule = nullptr, *token = nullptr;
  take_arguments(arguments, capsule, token);
  return object_of(tokenizer_in(capsule).id_of(text_from(token)));
}

// (tokenizer) -> int
Ref tokenizer_vocab_size(PyObject* arguments) {
  PyObject* capsule = nullptr;
  take_arguments(arguments, capsule);
  return object_of(tokenizer_in(capsule).vocab_size());
}

// (options, config_file, log) -> capsule
Ref model_load(PyObject* arguments) {
  PyObject *list = nullptr, *config_file = nullptr, *log = nullptr;
  take_arguments(arguments, list, config_file, log);
  const Options options = options_from(list, config_file);
  auto model = without_gil([&, messages = log_from(log)] { return std::make_unique<Model>(options, messages); });
  model->set_check(signal_check());
  return capsule_of(std::move(model), kModel);
}

// (model) -> (number of parameters, longest sequence, tokenizer)
Ref model_facts(PyObject* arguments) {
  PyObject* capsule = nullptr;
  take_arguments(arguments, capsule);
  const Model& model = model_in(capsule);
  return tuple_of(model.num_parameters(), model.max_positions(), object_of_tokenizer(model.tokenizer()));
}

// (model, text or list of (role, content), generate options, on_text) -> dict
Ref model_generate(PyObject* arguments) {
  PyObject *capsule = nullptr, *prompt = nullptr, *given = nullptr, *on_text = nullptr;
  take_arguments(arguments, capsule, prompt, given, on_text);
  Model& model = model_in(capsule);
  const GenerateOptions options = generate_options(given);
  const bool is_text = PyUnicode_Check(prompt) != 0;
  const std::string text = is_text ? text_from(prompt) : "";
  const std::vector<Message> messages = is_text ? std::vector<Message>() : messages_from(prompt);
  return object_of_generation(without_gil([&, show = on_text_from(on_text)] {
    return is_text ? model.generate(text, options, show) : model.generate(messages, options, show);
  }));
}

// (model, list of texts, generate options) -> list of dict
Ref model_generate_several(PyObject* arguments) {
  PyObject *capsule = nullptr, *prompts = nullptr, *given = nullptr;
  take_arguments(arguments, capsule, prompts, given);
  Model& model = model_in(capsule);
  const GenerateOptions options = generate_options(given);
  const std::vector<std::string> texts = texts_from(prompts);
  Ref list = checked(PyList_New(0));
  for (const Generation& generation : without_gil([&] { return model.generate(texts, options); })) {
    if (PyList_Append(list.get(), object_of_generation(generation).get()) != 0) throw PythonError();
  }
  return list;
}

// (model, options, rows, loss) -> dict
Ref model_evaluate(PyObject* arguments) {
  PyObject *capsule = nullptr, *list = nullptr, *rows = nullptr, *loss = nullptr;
  take_arguments(arguments, capsule, list, rows, loss);
  Model& model = model_in(capsule);
  Options options;
  options.add(options_from(list, checked(PyUnicode_FromString("")).get()));
  const Rows given = rows_from(rows);
  const Loss own = loss_from(loss);
  return object_of(
      without_gil([&] { return given ? model.evaluate(given, options, own) : model.evaluate(options, own); }));
}

// (model, folder)
Ref model_save(PyObject* arguments) {
  PyObject *capsule = nullptr, *folder = nullptr;
  take_arguments(arguments, capsule, folder);
  Model& model = model_in(capsule);
  without_gil([&, path = text_from(folder)] { model.save(path); });
  return nothing();
}

// (model, folder)
Ref model_use_adapter(PyObject* arguments) {
  PyObject *capsule = nullptr, *folder = nullptr;
  take_arguments(arguments, capsule, folder);
  Model& model = model_in(capsule);
  without_gil([&, path = text_from(folder)] { model.use_adapter(path); });
  return nothing();
}

// (model, system) -> capsule
Ref model_chat(PyObject* arguments) {
  PyObject *capsule = nullptr, *system = nullptr;
  take_arguments(arguments, capsule, system);
  return capsule_of(std::make_unique<Chat>(model_in(capsule).chat(text_from(system))), kChat);
}

// (chat, message, generate options, on_text) -> dict
Ref chat_say(PyObject* arguments) {
  PyObject *capsule = nullptr, *message = nullptr, *given = nullptr, *on_text = nullptr;
  take_arguments(arguments, capsule, message, given, on_text);
  Chat& chat = chat_in(capsule);
  const GenerateOptions options = generate_options(given);
  const std::string text = text_from(message);
  return object_of_generation(without_gil([&, show = on_text_from(on_text)] { return chat.say(text, options, show); }));
}

// (chat) -> list of {"role", "content"}
Ref chat_messages(PyObject* arguments) {
  PyObject* capsule = nullptr;
  take_arguments(arguments, capsule);
  return object_of(chat_in(capsule).messages());
}

// (chat, text)
Ref chat_set_system(PyObject* arguments) {
  PyObject *capsule = nullptr, *text = nullptr;
  take_arguments(arguments, capsule, text);
  chat_in(capsule).set_system(text_from(text));
  return nothing();
}

// (chat)
Ref chat_reset(PyObject* arguments) {
  PyObject* capsule = nullptr;
  take_arguments(arguments, capsule);
  chat_in(capsule).reset();
  return nothing();
}

// (chat) -> bool
Ref chat_undo(PyObject* arguments) {
  PyObject* capsule = nullptr;
  take_arguments(arguments, capsule);
  return object_of(chat_in(capsule).undo());
}

}  // namespace tessera::python
