#include "tessera/engine/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

namespace tessera {

static double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static std::vector<int64_t> updated_elems(const EngineContext& context) {
  std::vector<int64_t> elems;
  for (const UnitShards& unit : context.units) elems.push_back(context.plan.updated(unit).size());
  return elems;
}

UnitOptimizer::UnitOptimizer(EngineContext& context, UnitParameters& parameters, UnitGradients& gradients)
    : context_(context), parameters_(parameters), gradients_(gradients) {
  const Tier tier = context.plan.options().offload.optimizer;
  const DType dtype = context.state_dtype();
  const std::vector<int64_t> elems = updated_elems(context);
  const Tier kept = parameters.kept().tier();
  if (kept != tier) own_master_ = UnitArrays(context, tier, Category::master, context.dtype, elems);
  if (context.dtype != dtype) rest_ = UnitArrays(context, tier, Category::master, rest_of(context.dtype), elems);
  m_ = UnitArrays(context, tier, Category::optimizer, dtype, elems);
  v_ = UnitArrays(context, tier, Category::optimizer, dtype, elems);
  sum_ =
      (gradients.tier() == Tier::device ? context.device : context.host).allocate(sizeof(double), Category::workspace);
  int64_t first_elem = 0;
  for (const UnitShards& unit : context.units) {
    first_elems_.push_back(first_elem);
    first_elem += unit.num_elems;
  }
  const int64_t staging_elems = context.staging_elems(elems);
  if (tier == Tier::device) {
    if (kept == Tier::file) {
      leaving_.master = context.host.allocate(bytes_of(staging_elems, context.dtype), Category::staging);
    }
    return;
  }
  piece_buffers_.resize(tier == Tier::file ? 2 : 3);
  for (PieceBuffers& buffers : piece_buffers_) {
    const auto stage = [&](Buffer& buffer, bool wanted, DType type) {
      if (wanted) buffer = context.host.allocate(bytes_of(staging_elems, type), Category::staging);
    };
    for (Buffer* buffer : {&buffers.m, &buffers.v}) stage(*buffer, tier == Tier::file, dtype);
    stage(buffers.master, tier == Tier::file, context.dtype);
    stage(buffers.rest, tier == Tier::file && !rest_.empty(), rest_.dtype());
    stage(buffers.gradient, gradients.tier() != Tier::host, gradients.dtype());
  }
  if (!context.plan.options().late_blocks && may_be_late() && context.device.kind() == DeviceKind::cuda) {
    late_moments_.emplace(std::vector<int64_t>(elems.begin() + 1, elems.begin() + 1 + context.model.num_blocks()));
  }
}

// Cuts the range part_of(unit) of every unit into pieces. The numbers in this range count elements from the start of
// range(unit).
template <typename PartOf>
std::vector<UnitOptimizer::Piece> UnitOptimizer::pieces(PartOf&& part_of) const {
  std::vector<Piece> all;
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    const ElemRange part = part_of(u);
    for (int64_t first = part.begin; first < part.end; first += context_.piece_elems()) {
      all.push_back({u, first, std::min(first + context_.piece_elems(), part.end), AdamWWrites::all});
    }
  }
  return all;
}

// Adds up the squares of the gradients in the order of backward. The root is last, because its gradients arrive last.
// With one micro-batch per step, the device adds up the squares, whatever the tier of the gradients. The result
// therefore has the same bits with every tier.
double UnitOptimizer::sum_of_squares() {
  // If every rank has all gradients, each rank still counts only its own part. The sum over all ranks then has the same
  // bits as with sharded gradients.
  const auto counted = [&](int64_t unit) {
    const ElemRange all = range(unit), own = context_.cut(unit).own;
    return context_.plan.shard_optimizer() ? ElemRange{0, all.size()} : own;
  };
  double result = 0;
  if (gradients_.squares()) {
    context_.device.copy_to_host(gradients_.squares(), &result);
  } else if (gradients_.tier() == Tier::device) {
    const View sum = sum_.view({1}, DType::f64);
    context_.ops.fill(sum, 0);
    std::vector<View> arrays;
    for (int64_t u = context_.num_units() - 1; u >= 0; --u) {
      const ElemRange part = counted(u);
      if (context_.trains(u)) {
        context_.streams.compute->wait(gradients_.complete(u, part.end));
        arrays.push_back(gradients_.sum(u, part.begin, part.end));
      }
      // One call for all units except the root, then one for the root, whose gradients may arrive later.
      if (u > 1) continue;
      context_.ops.add_sums_of_squares(arrays, sum);
      arrays.clear();
    }
    context_.device.copy_to_host(sum, &result);
  } else {
    std::vector<Piece> all = pieces(counted);
    std::ranges::stable_sort(all, std::greater(), &Piece::unit);
    result = sum_of_squares_on_host(all);
  }
  return context_.plan.replica() == 0 || !std::isfinite(result) ? result : 0;
}

// Adds up the squares of each piece as soon as its gradients are in host memory. If gradients are in a file, reads a
// piece while the squares of the previous piece are added up.
double UnitOptimizer::sum_of_squares_on_host(const std::vector<Piece>& all) {
  Stream& copy = *context_.streams.copy;
  Stream& host = *context_.streams.host;
  const View sum = sum_.view({1}, DType::f64);
  const bool staged = gradients_.tier() == Tier::file;
  const auto fetch_one = [&](size_t i) {
    if (!staged || i >= all.size()) return;
    PieceBuffers& buffers = piece_buffers_[i % piece_buffers_.size()];
    copy.wait(buffers.free);
    fetch_gradient(all[i], buffers);
    buffers.ready = copy.record();
  };
  host.run([&ops = *context_.host_ops, sum] { ops.fill(sum, 0); });
  fetch_one(0);
  for (size_t i = 0; i < all.size(); ++i) {
    fetch_one(i + 1);
    PieceBuffers& buffers = piece_buffers_[i % piece_buffers_.size()];
    host.wait(staged ? buffers.ready : gradients_.complete(all[i].unit, all[i].last));
    host.run([&ops = *context_.host_ops, values = gradient_in(buffers, all[i]), sum] {
      ops.add_sum_of_squares(values, sum);
    });
    buffers.free = host.record();
  }
  host.synchronize();
  return context_.host.kind() != DeviceKind::counting ? *sum.as<double>() : 0;
}

// Copies a piece's gradients to its buffer. Gradients in host memory have no buffer: the copy stream then only waits
// until they are complete.
void UnitOptimizer::fetch_gradient(const Piece& piece, PieceBuffers& buffers) {
  Stream& copy = *context_.streams.copy;
  copy.wait(gradients_.complete(piece.unit, piece.last));
  if (buffers.gradient.bytes() > 0) {
    gradients_.load_sum(piece.unit, piece.first, gradient_in(buffers, piece), copy);
  }
}

View UnitOptimizer::gradient_in(const PieceBuffers& buffers, const Piece& piece) const {
  return buffers.gradient.bytes() > 0 ? buffers.gradient.view({piece.size()}, gradients_.dtype())
                                      : gradients_.sum(piece.unit, piece.first, piece.last);
}

AdamWStep UnitOptimizer::step_of(const AdamWStep& step, const Piece& piece) const {
  AdamWStep of_piece = step;
  const int64_t begin = range(piece.unit).begin + piece.first;
  of_piece.first_elem = first_elems_[static_cast<size_t>(piece.unit)] + begin;
  of_piece.writes = piece.writes;
  of_piece.num_decayed =
      std::clamp<int64_t>(context_.model.unit(piece.unit).table().num_decayed() - begin, 0, piece.size());
  return of_piece;
}

void UnitOptimizer::update(const AdamWOptions& options, uint64_t seed, int64_t number, double learning_rate,
                           double gradient_scale) {
  AdamWStep step = adamw_step(options, number, learning_rate, gradient_scale, 0);
  step.seed = seed;
  if (piece_buffers_.empty()) {
    update_on_device(step);
    return;
  }
  Stream& host = *context_.streams.host;
  const std::vector<Piece> all = pieces_of_update(num_late_blocks());
  const auto end_of_now = std::ranges::find(all, AdamWWrites::moments, &Piece::writes);
  // Fetches pieces while earlier pieces are updated: one piece ahead if states are in a file, and otherwise two. On the
  // copy stream, the new parameters of piece i come before the fetch of piece i + ahead + 1.
  const auto buffers_of = [&](size_t i) -> PieceBuffers& { return piece_buffers_[i % piece_buffers_.size()]; };
  const size_t ahead = piece_buffers_.size() - 1;
  for (size_t i = 0; i < std::min(ahead, all.size()); ++i) fetch(all[i], buffers_of(i));
  for (size_t i = 0; i < all.size(); ++i) {
    const Piece& piece = all[i];
    if (i + ahead < all.size()) fetch(all[i + ahead], buffers_of(i + ahead));
    PieceBuffers& buffers = buffers_of(i);
    const Event done = update_piece(piece, buffers, step);
    if (late_moments_ && all.begin() + static_cast<ptrdiff_t>(i) + 1 == end_of_now) {
      host.run([this] { late_moments_->update_ended(now_s()); });
    }
    if (i + 1 < all.size() && all[i + 1].same_work(piece)) continue;
    if (piece.writes != AdamWWrites::moments) parameters_.updated(piece.unit, done);
    if (piece.writes != AdamWWrites::parameters) {
      gradients_.read_until(piece.unit, buffers.gradient.bytes() > 0 ? buffers.ready : done);
    }
  }
  if (!late_moments_) return;
  host.run([this] { late_moments_->moments_ended(now_s()); });
  timed_ = host.record();
}

// Whether some moments can be written late. This needs kernels that can write parameters and moments separately,
// moments in host memory, gradients that are not in a file, and one micro-batch per step. With several micro-batches,
// the first backward of the next step would wait for all late moments. The forward before this backward is too short to
// write them.
bool UnitOptimizer::may_be_late() const {
  return m_.tier() == Tier::host && context_.host_ops->can_split_adamw() && gradients_.tier() != Tier::file &&
         gradients_.one_micro_batch();
}

// The number of blocks with late moments. It does not change the bits of the result.
int64_t UnitOptimizer::num_late_blocks() {
  if (late_moments_) {
    timed_.synchronize();  // no extra wait: the host stream runs the update only after this event
    return late_moments_->begin(now_s());
  }
  return may_be_late() ? std::min(context_.plan.options().late_blocks.value_or(0), context_.model.num_blocks()) : 0;
}

// Returns all pieces in forward order, followed by the moments of the first `num_late` blocks, in the order of the next
// backward.
std::vector<UnitOptimizer::Piece> UnitOptimizer::pieces_of_update(int64_t num_late) const {
  std::vector<Piece> all = pieces([&](int64_t unit) { return ElemRange{0, range(unit).size()}; });
  std::vector<Piece> late;
  for (Piece& piece : all) {
    if (piece.unit == 0 || piece.unit > num_late) continue;
    late.push_back(piece);
    late.back().writes = AdamWWrites::moments;
    piece.writes = AdamWWrites::parameters;
  }
  std::ranges::stable_sort(late, std::greater(), &Piece::unit);
  all.insert(all.end(), late.begin(), late.end());
  return all;
}

void UnitOptimizer::update_on_device(const AdamWStep& step) {
  Stream& compute = *context_.streams.compute;
  compute.wait(leaving_.free);
  const bool kept_here = parameters_.kept().tier() == Tier::device;
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    const int64_t size = range(u).size();
    if (size == 0) continue;  // the unit is frozen
    compute.wait(gradients_.complete(u, size));
    const View masters = master().view(u).rows(first_master_elem(u), first_master_elem(u) + size);
    context_.ops.adamw({.parameters = masters,
                        .rest = rest_.empty() ? View{} : rest_.view(u),
                        .gradients = gradients_.sum(u, 0, size),
                        .m = m_.view(u),
                        .v = v_.view(u)},
                       step_of(step, {u, 0, size, AdamWWrites::all}));
    parameters_.updated(u, kept_here ? compute.record() : send_to_kept(u));
  }
}

// Copies a unit's masters from the device to its kept parameters on another tier. Returns the event after the copy. The
// next forward waits for it.
Event UnitOptimizer::send_to_kept(int64_t unit) {
  Stream& compute = *context_.streams.compute;
  Stream& copy = *context_.streams.copy;
  const int64_t size = range(unit).size();
  for (int64_t first = 0; first < size; first += context_.piece_elems()) {
    const int64_t elems = std::min(context_.piece_elems(), size - first);
    View piece = own_master_.view(unit).rows(first, first + elems);
    copy.wait(compute.record());
    if (leaving_.master.bytes() > 0) {
      const View here = leaving_.master.view({elems}, context_.dtype);
      copy.copy(piece, here);
      piece = here;
    }
    parameters_.kept().save(unit, first_kept_elem(unit) + first, piece, copy);
    leaving_.free = copy.record();
  }
  return leaving_.free;
}

void UnitOptimizer::fetch(const Piece& piece, PieceBuffers& buffers) {
  Stream& copy = *context_.streams.copy;
  const bool fetches = buffers.m.bytes() > 0 || buffers.gradient.bytes() > 0;
  if (!fetches) {  // the piece is ready when its gradient is ready; gradients of later pieces may still arrive
    buffers.ready = gradients_.complete(piece.unit, piece.last);
    return;
  }
  copy.wait(buffers.free);
  const auto load = [&](const UnitArrays& arrays, int64_t first, const Buffer& staging) {
    if (staging.bytes() > 0) arrays.load(piece.unit, first, staging.view({piece.size()}, arrays.dtype()), copy);
  };
  load(master(), first_master_elem(piece.unit) + piece.first, buffers.master);
  load(rest_, piece.first, buffers.rest);
  load(m_, piece.first, buffers.m);
  load(v_, piece.first, buffers.v);
  fetch_gradient(piece, buffers);
  buffers.ready = copy.record();
}

// Updates a piece. If the piece writes parameters, returns the event after which the next forward may read them. If it
// writes only moments, returns the event after AdamW.
Event UnitOptimizer::update_piece(const Piece& piece, PieceBuffers& buffers, const AdamWStep& step) {
  Stream& copy = *context_.streams.copy;
  Stream& host = *context_.streams.host;
  const int64_t size = piece.size(), u = piece.unit;
  const auto staged_or = [&](const Buffer& staging, const UnitArrays& arrays, int64_t first) {
    return staging.bytes() > 0 ? staging.view({size}, arrays.dtype()) : arrays.view(u).rows(first, first + size);
  };
  const int64_t first_master = first_master_elem(u) + piece.first, first_kept = first_kept_elem(u) + piece.first;
  const View p = staged_or(buffers.master, master(), first_master);
  const View m = staged_or(buffers.m, m_, piece.first), v = staged_or(buffers.v, v_, piece.first);
  const View gradient = gradient_in(buffers, piece);
  if (piece.writes == AdamWWrites::moments) {
    host.wait(buffers.ready);
    host.run([&ops = *context_.host_ops, gradient, m, v, own_step = step_of(step, piece)] {
      ops.adamw({.gradients = gradient, .m = m, .v = v}, own_step);
    });
    Event done = host.record();
    if (buffers.gradient.bytes() > 0) buffers.free = done;  // otherwise the buffers hold nothing of this piece
    return done;
  }
  const View rest = rest_.empty() ? View{} : staged_or(buffers.rest, rest_, piece.first);
  host.wait(buffers.ready);
  host.wait(buffers.free);
  host.run([&ops = *context_.host_ops, p, rest, gradient, m, v, own_step = step_of(step, piece)] {
    ops.adamw({.parameters = p, .rest = rest, .gradients = gradient, .m = m, .v = v}, own_step);
  });
  copy.wait(host.record());
  const bool staged = buffers.m.bytes() > 0;
  if (staged) master().save(u, first_master, p, copy);
  if (has_own_master()) parameters_.kept().save(u, first_kept, p, copy);
  Event renewed = copy.record();  // the next forward waits only for this event
  if (staged) {
    if (!rest_.empty()) rest_.save(u, piece.first, rest, copy);
    m_.save(u, piece.first, m, copy);
    v_.save(u, piece.first, v, copy);
  }
  buffers.free = copy.record();
  return renewed;
}

}  // namespace tessera
