// Parameters and optimizer states in and out: each rank reads and writes its own part alone.
#include "tessera/engine/engine.h"

namespace tessera {

static constexpr const char* kSubject = "initial parameters";

// Visits the arrays that hold parameters: what is kept for the computation, and the masters where they are apart.
// visit(shelf, unit, range of the unit's elements, where that begins in the shelf).
template <typename Visit>
static void for_each_parameter_array(const Workplace& place, UnitParameters& parameters, const UnitOptimizer* optimizer,
                                     Visit&& visit) {
  for (int64_t u = 0; u < place.num_units(); ++u) {
    const int64_t P = place.cut(u).num_elems;
    visit(parameters.kept(), u, parameters.kept_range(u).clipped(P), 0);
    if (optimizer && optimizer->has_own_master()) visit(optimizer->master(), u, optimizer->range(u).clipped(P), 0);
  }
}

bool Engine::visible(const Shelf& shelf) const {
  return shelf.tier() == Tier::host || (shelf.tier() == Tier::device && place_.device.host_visible());
}

Engine::Passage::Passage(Engine& engine) : engine_(engine) {
  if (engine.stack_) scope_.emplace(*engine.stack_);
  engine.place_.streams.comm->wait(engine.place_.streams.compute->record());  // with what was on the stack
}

View Engine::Passage::take(int64_t elems, DType dtype) {
  if (scope_ && engine_.stack_->has_room_for({elems}, dtype)) return engine_.stack_->push({elems}, dtype);
  own_.push_back(engine_.place_.device.allocate(bytes_of(elems, dtype), Category::staging));
  return own_.back().view({elems}, dtype);
}

// Where the host cannot reach an array, it passes through a buffer of the host in pieces.
void Engine::load_shelf(const Shelf& shelf, int64_t unit, ElemRange range, int64_t first,
                        const std::function<void(ElemRange, View)>& read) {
  if (visible(shelf)) {
    if (range.size() > 0 && !counting()) read(range, shelf.view(unit).rows(first, first + range.size()));
    return;
  }
  if (range.size() <= 0) return;
  const int64_t most = std::min(place_.piece_elems(), range.size());
  const Buffer buffer = place_.host.allocate(bytes_of(most, shelf.dtype()), Category::staging);
  if (counting()) return;
  for (int64_t at = range.begin; at < range.end; at += most) {
    const ElemRange piece{at, std::min(at + most, range.end)};
    const View view = buffer.view({piece.size()}, shelf.dtype());
    read(piece, view);
    shelf.save(unit, first + at - range.begin, view, *place_.streams.copy);
    place_.streams.copy->synchronize();
  }
}

// The same the other way, whole: a checkpoint is written in one piece an array.
void Engine::save_shelf(const Shelf& shelf, int64_t unit, ElemRange range, int64_t first,
                        const std::function<void(ElemRange, View)>& write) {
  if (range.size() <= 0) return;
  if (visible(shelf)) {
    if (!counting()) write(range, shelf.view(unit).rows(first, first + range.size()));
    return;
  }
  const Buffer buffer = place_.host.allocate(bytes_of(range.size(), shelf.dtype()), Category::staging);
  const View view = buffer.view({range.size()}, shelf.dtype());
  shelf.load(unit, first, view, *place_.streams.copy);
  place_.streams.copy->synchronize();
  if (!counting()) write(range, view);
}

// Arrays are read and written by the host, while updates run on the compute, the copy and the host
// stream. A failure on any stream shows here, before its results are saved.
void Engine::finish_update() {
  place_.streams.compute->synchronize();
  for (const auto* stream :
       {&place_.streams.comm, &place_.streams.upload, &place_.streams.copy, &place_.streams.host}) {
    if (*stream) (*stream)->synchronize();
  }
}

void Engine::load_parameters(const ReadParameters& read, bool from_rank_0) {
  finish_update();
  if (from_rank_0 && !place_.plan.alone()) {
    load_from_rank_0(read);
    return;
  }
  for_each_parameter_array(
      place_, parameters_, optimizer_.get(), [&](const Shelf& shelf, int64_t unit, ElemRange range, int64_t first) {
        load_shelf(shelf, unit, range, first, [&](ElemRange piece, View to) { read(unit, piece, to); });
      });
  parameters_changed();
}

// Rank 0 reads each unit in pieces and tells them to all; each keeps what is its own.
void Engine::load_from_rank_0(const ReadParameters& read) {
  Stream& comm = *place_.streams.comm;
  Passage passage(*this);
  const View all_told = passage.take(place_.piece_elems(), place_.master_dtype());
  const Buffer own = place_.host.allocate(all_told.bytes(), Category::staging);
  for (int64_t u = 0; u < place_.num_units(); ++u) {
    for (int64_t at = 0; at < place_.cut(u).num_elems; at += place_.piece_elems()) {
      const ElemRange piece{at, std::min(at + place_.piece_elems(), place_.cut(u).num_elems)};
      const View told = all_told.rows(0, piece.size());
      const View here = own.view({piece.size()}, place_.master_dtype());
      if (place_.ranks.world->rank() == 0 && !counting()) {
        read(u, piece, here);
        comm.copy(here, told);
      }
      place_.ranks.world->broadcast(told, 0, comm, kSubject);
      comm.copy(told, here);
      comm.synchronize();
      for_each_parameter_array(
          place_, parameters_, optimizer_.get(), [&](const Shelf& shelf, int64_t unit, ElemRange range, int64_t first) {
            const ElemRange common{std::max(range.begin, piece.begin), std::min(range.end, piece.end)};
            if (unit != u || common.size() <= 0) return;
            load_shelf(shelf, unit, common, first + common.begin - range.begin, [&](ElemRange part, View to) {
              const View from = here.rows(part.begin - piece.begin, part.end - piece.begin);
              convert(from.data, from.dtype, to.data, to.dtype, static_cast<size_t>(part.size()));
            });
          });
    }
  }
  parameters_changed();
}

void Engine::initialize_parameters(uint64_t seed) {
  finish_update();
  const auto draw = [&](Kernels& ops, const ParameterSpec& spec, ElemRange range, View to) {
    // Elements of this tensor that lie in the range: view `to` is of the range.
    const ElemRange tensor{spec.offset, spec.offset + spec.shape.num_elems()};
    const ElemRange common{std::max(tensor.begin, range.begin), std::min(tensor.end, range.end)};
    if (common.size() <= 0) return;
    const View part = to.rows(common.begin - range.begin, common.end - range.begin);
    const Initializer& init = spec.init;
    const int64_t first = common.begin - tensor.begin;
    switch (init.kind) {
      case Initializer::Kind::zero:
        break;
      case Initializer::Kind::one:
        ops.fill(part, 1);
        break;
      case Initializer::Kind::normal:
        ops.fill_normal(part, 0, init.scale, seed, init.stream, first);
        break;
      case Initializer::Kind::uniform:
        ops.fill_uniform(part, -init.scale, init.scale, seed, init.stream, first);
        break;
    }
  };
  for_each_parameter_array(place_, parameters_, optimizer_.get(),
                           [&](const Shelf& shelf, int64_t unit, ElemRange range, int64_t first) {
                             const auto draw_all = [&](Kernels& ops, ElemRange piece, View to) {
                               ops.fill(to, 0);
                               for (const ParameterSpec& spec : model_.unit(unit).table().specs())
                                 draw(ops, spec, piece, to);
                             };
                             if (range.size() <= 0) return;
                             if (shelf.tier() == Tier::device) {
                               draw_all(*ops_, range, shelf.view(unit).rows(first, first + range.size()));
                             } else {
                               load_shelf(shelf, unit, range, first,
                                          [&](ElemRange piece, View to) { draw_all(place_.host_ops, piece, to); });
                             }
                           });
  finish_update();  // other streams take them without asking
  parameters_changed();
}

// What was gathered before is out of date; what this rank keeps is not.
void Engine::parameters_changed() {
  for (int64_t u = 0; u < place_.num_units(); ++u) parameters_.replaced(u);
}

void Engine::load_states(const ReadState& read) {
  load_parameters([&](int64_t unit, ElemRange range, View to) { read(StateKind::parameters, unit, range, to); });
  if (!optimizer_) return;
  for (int64_t u = 0; u < place_.num_units(); ++u) {
    const ElemRange range = optimizer_->range(u).clipped(place_.cut(u).num_elems);
    for (const StateKind kind : {StateKind::moment1, StateKind::moment2}) {
      const Shelf& shelf = kind == StateKind::moment1 ? optimizer_->moment1() : optimizer_->moment2();
      load_shelf(shelf, u, range, 0, [&](ElemRange piece, View to) { read(kind, u, piece, to); });
    }
  }
}

void Engine::save_states(const WriteState& write) {
  finish_update();
  for (int64_t u = 0; u < place_.num_units(); ++u) {
    const ElemRange saved = saved_range(u);
    const auto save = [&](StateKind kind, const Shelf& shelf, int64_t held_from, int64_t held_first) {
      save_shelf(shelf, u, saved, held_first + saved.begin - held_from,
                 [&](ElemRange piece, View from) { write(kind, u, piece, from); });
    };
    if (!optimizer_) {
      save(StateKind::parameters, parameters_.kept(), parameters_.kept_range(u).begin, 0);
      continue;
    }
    const int64_t begin = optimizer_->range(u).begin;
    save(StateKind::parameters, optimizer_->master(), begin, optimizer_->first_master_elem(u));
    save(StateKind::moment1, optimizer_->moment1(), begin, 0);
    save(StateKind::moment2, optimizer_->moment2(), begin, 0);
  }
}

void Engine::collect_parameters(const std::function<void(int64_t unit, View whole)>& visit) {
  finish_update();
  const bool first = place_.ranks.world->rank() == 0, sharded = place_.plan.shard_optimizer();
  const int64_t S = sharded ? place_.plan.shard_group_size() : 1;
  const Shelf& master = optimizer_ ? optimizer_->master() : parameters_.kept();
  const DType dtype = master.dtype();
  int64_t most = 0;
  for (const UnitShards& unit : place_.units) most = std::max(most, unit.padded_elems);
  const int64_t piece_elems = std::clamp<int64_t>(place_.piece_elems() / S, ParameterTable::kAlignment, most / S);
  const bool in_place = S == 1 && visible(master);
  Passage passage(*this);
  Buffer whole_buffer;
  View sent, received;
  if (!in_place) {
    whole_buffer = place_.host.allocate(first ? bytes_of(most, dtype) : 0, Category::staging);
    sent = passage.take(piece_elems, dtype);
    received = passage.take(S > 1 ? piece_elems * S : 0, dtype);
  }
  Stream& comm = *place_.streams.comm;
  for (int64_t u = 0; u < place_.num_units(); ++u) {
    const UnitShards& cut = place_.cut(u);
    const int64_t shard_elems = sharded ? cut.shard_elems : cut.padded_elems;
    const int64_t begin =
        optimizer_ ? optimizer_->first_master_elem(u) : (sharded ? cut.own.begin : 0) - parameters_.kept_range(u).begin;
    if (in_place) {
      if (first && !counting()) visit(u, master.view(u).rows(begin, begin + cut.num_elems));
      continue;
    }
    // The first piece is the largest: it tells a plan all.
    for (int64_t at = 0; at < (counting() ? std::min<int64_t>(shard_elems, 1) : shard_elems); at += piece_elems) {
      const int64_t n = std::min(piece_elems, shard_elems - at);
      const View mine = sent.rows(0, n), all = S > 1 ? received.rows(0, S * n) : mine;
      if (master.tier() == Tier::file) {
        const Buffer staging = place_.host.allocate(bytes_of(n, dtype), Category::staging);
        const View piece = staging.view({n}, dtype);
        master.load(u, begin + at, piece, comm);
        comm.copy(piece, mine);
        comm.synchronize();
      } else {
        master.load(u, begin + at, mine, comm);
      }
      if (S > 1) place_.ranks.shard->all_gather(mine, all, comm, "parameters to be saved");
      for (int64_t r = 0; first && !counting() && r < S; ++r) {
        const View from = S > 1 ? all.rows(r * n, (r + 1) * n) : mine;
        const View whole = whole_buffer.view({cut.padded_elems}, dtype);
        comm.copy(from, whole.rows(r * shard_elems + at, r * shard_elems + at + n));
      }
    }
    comm.synchronize();
    if (first && !counting()) visit(u, whole_buffer.view({cut.num_elems}, dtype));
  }
}

}  // namespace tessera
