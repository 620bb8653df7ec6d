#include "tessera/engine/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "tessera/base/clock.h"
#include "tessera/device/counting/counting_device.h"

namespace tessera {

UnitOptimizer::UnitOptimizer(EngineContext& context, UnitParameters& parameters, UnitGradients& gradients)
    : context_(context), parameters_(parameters), gradients_(gradients) {
  const DType format = context.formats[Section::trainable];
  const auto allocate = [&](Category category, DType type, auto&& wanted) {
    const auto elems =
        context.of_units([&](int64_t unit) { return wanted(unit) ? range(unit).size() / values_of(type) : 0; });
    return UnitArrays(context, ArrayKind::optimizer, category, type, elems);
  };
  const auto all = [](int64_t) { return true; };
  own_master_ = allocate(Category::master, format, [&](int64_t unit) { return has_own_master(unit); });
  if (context.splits_masters()) rest_ = allocate(Category::master, rest_of(format), all);
  m_ = allocate(Category::optimizer, context.moment1_dtype(), all);
  v_ = allocate(Category::optimizer, context.moment2_dtype(), all);
  int64_t first_elem = 0;
  for (int64_t u = 0; u < context.num_units(); ++u) {
    TESSERA_ASSERT(gradients.tier(u) == Tier::device || tier(u) != Tier::device);
    first_elems_.push_back(first_elem);
    first_elem += context.trained_cut(u).num_elems;
  }
  allocate_buffers();
  allocate_streamed_pieces();
  choose_late_candidates();
}

void UnitOptimizer::allocate_buffers() {
  const DType format = context_.formats[Section::trainable];
  const auto in_file = [&](int64_t unit) { return buffers_states(unit); };
  bool any_in_file = false, any_offloaded = false;
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    any_in_file = any_in_file || buffers_states(u);
    any_offloaded = any_offloaded || tier(u) != Tier::device;
  }
  if (any_offloaded) piece_buffers_.resize(any_in_file ? 2 : 3);
  for (PieceBuffers& buffers : piece_buffers_) {
    buffers.m = context_.staging_of_updated(context_.moment1_dtype(), in_file);
    buffers.v = context_.staging_of_updated(context_.moment2_dtype(), in_file);
    buffers.master = context_.staging_of_updated(format, in_file);
    if (context_.splits_masters()) buffers.rest = context_.staging_of_updated(rest_of(format), in_file);
    buffers.gradient =
        context_.staging_of_updated(gradients_.dtype(), [&](int64_t unit) { return buffers_gradient(unit); });
  }
  leaving_ = context_.staging_of_updated(format, [&](int64_t unit) {
    return tier(unit) == Tier::device && parameters_.kept(Section::trainable).tier(unit) == Tier::file;
  });
  if (gradients_.any_squares(UnitGradients::Squares::by_host)) {
    squares_ = context_.host.allocate(bytes_of(context_.num_units(), DType::f64), Category::workspace);
  }
}

// A piece of streamed states is a fraction of a piece that the host updates, so that its buffers need little of the
// device's memory. The copies are still long enough for the full speed of the link.
int64_t UnitOptimizer::streamed_piece_elems() const {
  constexpr int64_t kFraction = 4;
  return round_up(ceil_divide(context_.piece_elems(), kFraction), values_of(context_.moment1_dtype()));
}

void UnitOptimizer::allocate_streamed_pieces() {
  constexpr size_t kPieces = 4;  // one arrives, one is updated, one leaves, and one is ready
  states_written_.resize(static_cast<size_t>(context_.num_units()));
  int64_t most = 0, most_masters = 0, most_gradients = 0;
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    if (!streams_states(u)) continue;
    const int64_t elems = std::min(streamed_piece_elems(), range(u).size());
    most = std::max(most, elems);
    if (master(u).tier(u) != Tier::device) most_masters = std::max(most_masters, elems);
    if (gradients_.tier(u) != Tier::device) most_gradients = std::max(most_gradients, elems);
  }
  if (most == 0) return;
  streamed_pieces_.resize(kPieces);
  const auto allocate = [&](int64_t elems, DType type) {
    return elems > 0 ? context_.device.allocate(bytes_of(elems / values_of(type), type), Category::staging) : Buffer();
  };
  const DType format = context_.formats[Section::trainable];
  for (StreamedPiece& piece : streamed_pieces_) {
    piece.m = allocate(most, context_.moment1_dtype());
    piece.v = allocate(most, context_.moment2_dtype());
    if (context_.splits_masters()) piece.rest = allocate(most, rest_of(format));
    piece.master = allocate(most_masters, format);
    piece.gradient = allocate(most_gradients, gradients_.dtype());
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

// The elements of a unit whose squares this rank adds up, counted from the start of range(unit). If every rank has all
// gradients, each rank still counts only its own part. The sum over all ranks then has the same bits as with sharded
// gradients.
ElemRange UnitOptimizer::counted(int64_t unit) const {
  return context_.plan.shard_optimizer() ? ElemRange{0, range(unit).size()} : context_.trained_cut(unit).own;
}

// The squares of each unit have a sum of their own, and the sums are added in the order of the units. The bits of the
// result are therefore the same for all tiers of the units, and for every order of arrival of their gradients.
double UnitOptimizer::sum_of_squares() {
  using Squares = UnitGradients::Squares;
  const auto num_units = static_cast<size_t>(context_.num_units());
  std::vector<double> of_device(num_units), of_host(num_units);
  if (gradients_.any_squares(Squares::by_device)) add_squares_on_device();
  if (gradients_.any_squares(Squares::by_host)) {
    add_squares_on_host();
    const View sums = squares_.view({context_.num_units()}, DType::f64);
    if (context_.host.kind() != DeviceKind::counting) std::copy_n(sums.as<double>(), num_units, of_host.begin());
  }
  if (gradients_.device_adds_squares()) {
    context_.device.copy_to_host(gradients_.squares(), of_device.data());
  }
  double result = 0;
  for (size_t u = 0; u < num_units; ++u) result += of_device[u] + of_host[u];  // one of the two is 0
  return context_.plan.replica() == 0 || !std::isfinite(result) ? result : 0;
}

void UnitOptimizer::add_squares_on_device() {
  const auto add = [&](int64_t first, int64_t last) {
    std::vector<View> arrays;
    for (int64_t u = first; u < last; ++u) {
      const bool adds = context_.trains(u) && gradients_.squares_of(u) == UnitGradients::Squares::by_device;
      const ElemRange part = adds ? counted(u) : ElemRange{};
      if (adds) context_.streams.compute->wait(gradients_.complete(u, part.end));
      arrays.push_back(adds ? gradients_.sum(u, part.begin, part.end) : View{nullptr, gradients_.dtype(), {0}});
    }
    context_.ops.add_sums_of_squares(arrays, gradients_.squares().rows(first, last));
  };
  add(1, context_.num_units());
  add(0, 1);  // the root's gradients may arrive later
}

// Adds up the squares of each piece as soon as its gradients are in host memory. If gradients are in a file, reads a
// piece while the squares of the previous piece are added up.
void UnitOptimizer::add_squares_on_host() {
  Stream& copy = *context_.streams.copy;
  Stream& host = *context_.streams.host;
  const View sums = squares_.view({context_.num_units()}, DType::f64);
  std::vector<Piece> all = pieces([&](int64_t unit) {
    return gradients_.squares_of(unit) == UnitGradients::Squares::by_host ? counted(unit) : ElemRange{};
  });
  std::ranges::stable_sort(all, std::greater(), &Piece::unit);  // the last unit arrives first
  const auto in_file = [&](const Piece& piece) { return gradients_.tier(piece.unit) == Tier::file; };
  const auto fetch_one = [&](size_t i) {
    if (i >= all.size() || !in_file(all[i])) return;
    PieceBuffers& buffers = piece_buffers_[i % piece_buffers_.size()];
    copy.wait(buffers.free);
    fetch_gradient(all[i], buffers);
    buffers.ready = copy.record();
  };
  host.run([&ops = *context_.host_ops, sums] { ops.fill(sums, 0); });
  fetch_one(0);
  for (size_t i = 0; i < all.size(); ++i) {
    fetch_one(i + 1);
    PieceBuffers& buffers = piece_buffers_[i % piece_buffers_.size()];
    host.wait(in_file(all[i]) ? buffers.ready : gradients_.complete(all[i].unit, all[i].last));
    const View sum = sums.rows(all[i].unit, all[i].unit + 1);
    host.run([&ops = *context_.host_ops, values = gradient_in(buffers, all[i]), sum] {
      ops.add_sum_of_squares(values, sum);
    });
    buffers.free = host.record();
  }
  host.synchronize();
}

// Copies a piece's gradients to its buffer. Gradients in host memory have no buffer: the copy stream then only waits
// until they are complete.
void UnitOptimizer::fetch_gradient(const Piece& piece, PieceBuffers& buffers) {
  Stream& copy = *context_.streams.copy;
  copy.wait(gradients_.complete(piece.unit, piece.last));
  if (buffers_gradient(piece.unit)) {
    gradients_.load_sum(piece.unit, piece.first, gradient_in(buffers, piece), copy);
  }
}

View UnitOptimizer::gradient_in(const PieceBuffers& buffers, const Piece& piece) const {
  return buffers_gradient(piece.unit) ? buffers.gradient.view({piece.size()}, gradients_.dtype())
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
  context_.streams.compute->wait(left_);
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    if (tier(u) == Tier::device && context_.trains(u)) update_on_device(u, step);
  }
  if (!streamed_pieces_.empty()) context_.streams.updates->wait(context_.streams.compute->record());
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    if (streams_states(u) && context_.trains(u)) update_streamed(u, step);
  }
  update_in_pieces(step);
}

void UnitOptimizer::update_in_pieces(const AdamWStep& step) {
  const std::vector<Piece> all = pieces_of_update(num_late_blocks());
  if (all.empty()) return;
  Stream& host = *context_.streams.host;
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
      host.run([this, &host] { late_moments_->update_ended(host.clock()); });
    }
    if (i + 1 < all.size() && all[i + 1].same_work(piece)) continue;
    if (piece.writes != AdamWWrites::moments) parameters_.updated(piece.unit, done);
    if (piece.writes != AdamWWrites::parameters) {
      gradients_.read_until(piece.unit, buffers_gradient(piece.unit) ? buffers.ready : done);
    }
  }
  if (!late_moments_) return;
  host.run([this, &host] { late_moments_->moments_ended(host.clock()); });
  timed_ = host.record();
}

// The moments of a block can be written late if the kernels can write parameters and moments separately, the moments
// are in host memory, the gradients are not in a file, and steps have one micro-batch. With several micro-batches, the
// first backward of the next step would wait for all late moments. The forward before this backward is too short to
// write them.
void UnitOptimizer::choose_late_candidates() {
  for (int64_t u = 1; u <= context_.model.num_blocks(); ++u) {
    const bool may_be_late = tier(u) == Tier::host && !streams_states(u) && context_.host_ops->can_split_adamw() &&
                             gradients_.tier(u) != Tier::file && gradients_.one_micro_batch();
    if (may_be_late) late_candidates_.push_back(u);
  }
  if (context_.plan.options().late_blocks || late_candidates_.empty()) return;
  const bool is_timed = context_.device.kind() == DeviceKind::cuda || timeline_of(context_.device);
  if (!is_timed || kind_of_work(context_.device) != DeviceKind::cuda) return;
  std::vector<int64_t> elems;
  for (const int64_t u : late_candidates_) elems.push_back(range(u).size());
  late_moments_.emplace(std::move(elems));
}

// The number of blocks with late moments. It does not change the bits of the result.
int64_t UnitOptimizer::num_late_blocks() {
  if (late_moments_) {
    timed_.synchronize();  // no extra wait: the host stream runs the update only after this event
    const Timeline* timeline = timeline_of(context_.device);
    return late_moments_->begin(timeline ? timeline->now() : steady_seconds());
  }
  return std::min(context_.plan.options().late_blocks.value_or(0), std::ssize(late_candidates_));
}

// Returns all pieces that the host updates in forward order, followed by the moments of the first `num_late`
// candidates, in the order of the next backward.
std::vector<UnitOptimizer::Piece> UnitOptimizer::pieces_of_update(int64_t num_late) const {
  std::vector<Piece> all = pieces([&](int64_t unit) {
    return on_host(unit) ? ElemRange{0, range(unit).size()} : ElemRange{};
  });
  const auto end_of_late = late_candidates_.begin() + num_late;
  std::vector<Piece> late;
  for (Piece& piece : all) {
    if (std::find(late_candidates_.begin(), end_of_late, piece.unit) == end_of_late) continue;
    late.push_back(piece);
    late.back().writes = AdamWWrites::moments;
    piece.writes = AdamWWrites::parameters;
  }
  std::ranges::stable_sort(late, std::greater(), &Piece::unit);
  all.insert(all.end(), late.begin(), late.end());
  return all;
}

void UnitOptimizer::update_on_device(int64_t unit, const AdamWStep& step) {
  Stream& compute = *context_.streams.compute;
  const int64_t size = range(unit).size(), first_master = first_master_elem(unit);
  compute.wait(gradients_.complete(unit, size));
  const View masters = master(unit).view(unit).rows(first_master, first_master + size);
  const View rest = context_.splits_masters() ? rest_.view(unit) : View{};
  context_.ops.adamw({.parameters = masters,
                      .rest = rest,
                      .gradients = gradients_.sum(unit, 0, size),
                      .m = m_.view(unit),
                      .v = v_.view(unit)},
                     step_of(step, {unit, 0, size, AdamWWrites::all}));
  parameters_.updated(unit, has_own_master(unit) ? send_to_kept(unit) : compute.record());
}

// While one piece is updated, the next ones arrive and the ones before leave. The compute stream may run the next
// forward at the same time.
void UnitOptimizer::update_streamed(int64_t unit, const AdamWStep& step) {
  Stream &in = *context_.streams.states_in, &updates = *context_.streams.updates, &out = *context_.streams.states_out;
  Kernels& ops = context_.device.host_visible() ? *context_.host_ops : context_.ops;
  const int64_t size = range(unit).size(), most = streamed_piece_elems();
  const UnitArrays& masters = master(unit);
  const bool brings_master = masters.tier(unit) != Tier::device,
             brings_gradient = gradients_.tier(unit) != Tier::device;
  in.wait(states_written_[static_cast<size_t>(unit)]);
  for (int64_t first = 0; first < size; first += most) {
    const int64_t last = std::min(first + most, size), elems = last - first;
    StreamedPiece& piece = streamed_pieces_[next_streamed_];
    next_streamed_ = (next_streamed_ + 1) % streamed_pieces_.size();
    in.wait(piece.free);
    const auto bring = [&](const UnitArrays& arrays, const Buffer& buffer, int64_t first_value) {
      const int64_t values = values_of(arrays.dtype());
      const View view = buffer.view({elems / values}, arrays.dtype());
      arrays.load(unit, first_value / values, view, in);
      return view;
    };
    const int64_t first_of_master = first_master_elem(unit) + first;
    const View m = bring(m_, piece.m, first), v = bring(v_, piece.v, first);
    const View rest = context_.splits_masters() ? bring(rest_, piece.rest, first) : View{};
    const View parameters = brings_master ? bring(masters, piece.master, first_of_master)
                                          : masters.view(unit).rows(first_of_master, first_of_master + elems);
    View gradient;
    if (brings_gradient) {
      gradient = piece.gradient.view({elems}, gradients_.dtype());
      in.wait(gradients_.complete(unit, last));
      gradients_.load_sum(unit, first, gradient, in);
    } else {
      gradient = gradients_.sum(unit, first, last);
      updates.wait(gradients_.complete(unit, last));
    }
    updates.wait(in.record());
    ops.adamw_on(updates, {.parameters = parameters, .rest = rest, .gradients = gradient, .m = m, .v = v},
                 step_of(step, {unit, first, last, AdamWWrites::all}));
    out.wait(updates.record());
    if (brings_master) masters.save(unit, first_of_master, parameters, out);
    if (brings_master && last == size) parameters_.updated(unit, out.record());
    m_.save(unit, first / values_of(m.dtype), m, out);
    v_.save(unit, first / values_of(v.dtype), v, out);
    if (rest) rest_.save(unit, first, rest, out);
    piece.free = out.record();
  }
  if (!brings_master) parameters_.updated(unit, updates.record());
  gradients_.read_until(unit, brings_gradient ? in.record() : updates.record());
  states_written_[static_cast<size_t>(unit)] = out.record();
}

// Copies a unit's masters from the device to its kept parameters on another tier. Returns the event after the copy. The
// next forward waits for it.
Event UnitOptimizer::send_to_kept(int64_t unit) {
  Stream& compute = *context_.streams.compute;
  Stream& copy = *context_.streams.copy;
  const UnitArrays& kept = parameters_.kept(Section::trainable);
  const int64_t size = range(unit).size();
  for (int64_t first = 0; first < size; first += context_.piece_elems()) {
    const int64_t elems = std::min(context_.piece_elems(), size - first);
    View piece = own_master_.view(unit).rows(first, first + elems);
    copy.wait(compute.record());
    if (kept.tier(unit) == Tier::file) {
      const View here = leaving_.view({elems}, piece.dtype);
      copy.copy(piece, here);
      piece = here;
    }
    kept.save(unit, first_kept_elem(unit) + first, piece, copy);
    left_ = copy.record();
  }
  return left_;
}

void UnitOptimizer::fetch(const Piece& piece, PieceBuffers& buffers) {
  Stream& copy = *context_.streams.copy;
  const bool fetches = buffers_states(piece.unit) || buffers_gradient(piece.unit);
  if (!fetches) {  // the piece is ready when its gradient is ready; gradients of later pieces may still arrive
    buffers.ready = gradients_.complete(piece.unit, piece.last);
    return;
  }
  copy.wait(buffers.free);
  const auto load = [&](const UnitArrays& arrays, int64_t first, const Buffer& buffer) {
    const int64_t values = values_of(arrays.dtype());
    arrays.load(piece.unit, first / values, buffer.view({piece.size() / values}, arrays.dtype()), copy);
  };
  if (buffers_states(piece.unit)) {
    load(master(piece.unit), first_master_elem(piece.unit) + piece.first, buffers.master);
    if (context_.splits_masters()) load(rest_, piece.first, buffers.rest);
    load(m_, piece.first, buffers.m);
    load(v_, piece.first, buffers.v);
  }
  fetch_gradient(piece, buffers);
  buffers.ready = copy.record();
}

// Updates a piece. If the piece writes parameters, returns the event after which the next forward may read them. If it
// writes only moments, returns the event after AdamW.
Event UnitOptimizer::update_piece(const Piece& piece, PieceBuffers& buffers, const AdamWStep& step) {
  Stream& copy = *context_.streams.copy;
  Stream& host = *context_.streams.host;
  const int64_t size = piece.size(), u = piece.unit;
  const bool buffered = buffers_states(u);
  const auto part_in = [&](const Buffer& buffer, const UnitArrays& arrays, int64_t first) {
    const int64_t values = values_of(arrays.dtype());
    return buffered ? buffer.view({size / values}, arrays.dtype())
                    : arrays.view(u).rows(first / values, (first + size) / values);
  };
  const int64_t first_master = first_master_elem(u) + piece.first, first_kept = first_kept_elem(u) + piece.first;
  const View p = part_in(buffers.master, master(u), first_master);
  const View m = part_in(buffers.m, m_, piece.first), v = part_in(buffers.v, v_, piece.first);
  const View gradient = gradient_in(buffers, piece);
  if (piece.writes == AdamWWrites::moments) {
    host.wait(buffers.ready);
    host.run([&ops = *context_.host_ops, gradient, m, v, own_step = step_of(step, piece)] {
      ops.adamw({.gradients = gradient, .m = m, .v = v}, own_step);
    });
    Event done = host.record();
    if (buffers_gradient(u)) buffers.free = done;  // otherwise the buffers hold nothing of this piece
    return done;
  }
  const View rest = context_.splits_masters() ? part_in(buffers.rest, rest_, piece.first) : View{};
  host.wait(buffers.ready);
  host.wait(buffers.free);
  host.run([&ops = *context_.host_ops, p, rest, gradient, m, v, own_step = step_of(step, piece)] {
    ops.adamw({.parameters = p, .rest = rest, .gradients = gradient, .m = m, .v = v}, own_step);
  });
  copy.wait(host.record());
  if (buffered) master(u).save(u, first_master, p, copy);
  if (has_own_master(u)) parameters_.kept(Section::trainable).save(u, first_kept, p, copy);
  Event renewed = copy.record();  // the next forward waits only for this event
  if (buffered) {
    if (context_.splits_masters()) rest_.save(u, piece.first, rest, copy);
    m_.save(u, piece.first / values_of(m.dtype), m, copy);
    v_.save(u, piece.first / values_of(v.dtype), v, copy);
  }
  buffers.free = copy.record();
  return renewed;
}

}  // namespace tessera
