// Reads arbitrary bytes as a tokenizer.json. The result is either an InputError, or a tokenizer that encodes and
// decodes.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/data/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = tessera::Tokenizer::from_json_text(input, "fuzz");
    for (const std::string_view text :
         {std::string_view("Hello,  world! \xe2\x96\x81<s>It's 12 o'clock</s>  \n\n"),
          std::string_view("\xe4\xb8\xad\xff\xc3\xa9 e\xcc\x81\xed\xa0\x80 \0", 16), input.substr(0, 200)}) {
      const auto ids = tokenizer.encode_with_special(text);
      tokenizer.decode(ids, true);
      tokenizer.encode_at(tessera::TextPlace::inside, text);
    }
    std::vector<int32_t> every(static_cast<size_t>(tokenizer.vocab_size()) + 2);
    std::iota(every.begin(), every.end(), -1);
    tokenizer.decode(every, false);
  } catch (const tessera::InputError&) {
  }
  return 0;
}
