// The loss of a program in the engine of a session.
#pragma once

#include <memory>

#include <tessera/loss.h>

#include "tessera/api/call.h"
#include "tessera/ops/kernels.h"
#include "tessera/session/session.h"

namespace tessera::v0 {

// While the object exists, the engine of the session uses `loss`, unless it is empty. Both must outlive the object.
class OwnLossScope {
 public:
  OwnLossScope(Session& session, const Loss& loss) : session_(session) {
    if (!loss) return;
    kernels_ = make_kernels(session.worker().host());
    session.engine().set_loss(
        [&loss](const LossRows& rows) {
          const auto count = static_cast<size_t>(rows.num_rows);
          LossChunk chunk;
          chunk.num_rows = rows.num_rows;
          chunk.vocab_size = rows.vocab_size;
          chunk.logits = rows.logits;
          chunk.targets = {rows.targets, count};
          chunk.positions = {rows.positions, count};
          chunk.rows = {rows.rows, count};
          chunk.scale = rows.d_scale;
          chunk.compute = rows.cross_entropy;
          return call_back(loss, chunk);
        },
        *kernels_);
  }
  ~OwnLossScope() {
    if (kernels_) session_.engine().use_cross_entropy();
  }
  OwnLossScope(const OwnLossScope&) = delete;

 private:
  Session& session_;
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace tessera::v0
