// Reads arbitrary bytes as a chat template, and renders a conversation with it. The result is a text or an InputError.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const auto variables = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": [{"type": "text", "text": "é"}]},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]},
                 {"role": "tool", "content": "42"}, {"role": "assistant", "content": "<think>\nno\n</think>\nyes"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "number"}}}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true})");
  jinja::Options options;
  options.limits = {.steps = 200'000, .bytes = 20'000'000};
  try {
    const auto parsed = jinja::Template::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    const jinja::Rendered rendered = parsed.render(variables, options);
    size_t end = 0;
    for (const jinja::Span& span : rendered.generated) {
      TESSERA_ASSERT(span.begin >= end && span.end >= span.begin && span.end <= rendered.text.size());
      end = span.end;
    }
  } catch (const InputError&) {
  }
  return 0;
}
