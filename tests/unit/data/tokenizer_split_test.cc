#include "tessera/data/tokenizer_split.h"

#include <gtest/gtest.h>

#include "tessera/base/random.h"
#include "tessera/data/tokenizer_text.h"

namespace tessera {
namespace {

TEST(Placeholder, Compiles) {}

}  // namespace
}  // namespace tessera
