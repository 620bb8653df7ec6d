// The filters of templates, by what they work on. Only their files include this header.
#pragma once

#include <span>

#include "tessera/jinja/builtins.h"

namespace tessera::jinja {

using Args = const Arguments&;

std::span<const Filter> number_filters();
std::span<const Filter> text_filters();
std::span<const Filter> sequence_filters();

// The value if it is a text, otherwise its str().
inline Value soft_text(Meter& meter, const Value& value) {
  return value.is_text() ? value : text(meter, str(meter, value));
}
// The value, or `standard` if it is missing.
inline Value otherwise(const Value& value, Value standard) {
  return value.is_missing() ? std::move(standard) : value;
}

}  // namespace tessera::jinja
