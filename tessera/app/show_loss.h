// tessera tokenize --show-loss: the samples of a data set, with the tokens that carry loss.
#pragma once

#include "tessera/app/verbs.h"

namespace tessera {

// Prints the first samples of --dataset. On a terminal with colours, tokens with loss are green; elsewhere they are
// between « and ». Throws UsageError and InputError, as training on the data set would.
int run_show_loss(const Invocation& invocation);

}  // namespace tessera
