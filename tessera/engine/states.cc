#include "tessera/engine/states.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/nf4.h"

namespace tessera {

constexpr const char* kStatesSubject = "initial parameters";

// The number of pieces in one part. A piece has ShardOptions::piece_elems elements. If elements are saved through a
// host buffer, they pass through it part by part. A part is large enough for several threads to write, and small
// compared with a model.
constexpr int64_t kPiecesOfPart = 8;

// Visits the arrays that hold parameters: the kept parameters of each section, the masters if they are not the kept
// parameters, and the part of f32 masters that 16-bit parameters do not hold (UnitOptimizer::rest()). Calls
// visit(arrays, section, unit, range): the unit's array holds the elements `range` of the section.
template <typename Visit>
void UnitStates::for_each_parameter_array(Visit&& visit) {
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    for (const Section section : kSections) {
      const int64_t num_elems = context_.cut(u, section).num_elems;
      visit(parameters_.kept(section), section, u, parameters_.kept_range(u, section).clipped(num_elems));
    }
    if (!optimizer_) continue;
    const ElemRange updated = optimizer_->range(u).clipped(context_.trained_cut(u).num_elems);
    if (optimizer_->has_own_master(u)) visit(optimizer_->master(u), Section::trainable, u, updated);
    if (context_.splits_masters()) visit(optimizer_->rest(), Section::trainable, u, updated);
  }
}

// Device memory for arrays that are transferred between steps. The memory comes from the stack, which is idle between
// steps. If the stack is too small or does not exist yet, take() allocates separate memory. The memory is valid until
// the DeviceStaging is destroyed.
class UnitStates::DeviceStaging {
 public:
  explicit DeviceStaging(UnitStates& states) : states_(states) {
    if (states.stack_) scope_.emplace(*states.stack_);
    // Waits for the last use of the stack.
    states.context_.streams.comm->wait(states.context_.streams.compute->record());
  }
  View take(int64_t elems, DType dtype) {
    if (scope_ && states_.stack_->has_room_for({elems}, dtype)) return states_.stack_->push({elems}, dtype);
    own_.push_back(states_.context_.device.allocate(bytes_of(elems, dtype), Category::staging));
    return own_.back().view({elems}, dtype);
  }
  // Returns `most` elements. If the stack has no room for them, returns fewer: halves the number until they fit.
  View take_free(int64_t most, DType dtype) {
    if (!scope_) return take(most, dtype);
    while (most > 1 && !states_.stack_->has_room_for({most}, dtype)) most /= 2;
    return states_.stack_->push({most}, dtype);
  }

 private:
  UnitStates& states_;
  std::optional<StackScope> scope_;
  std::vector<Buffer> own_;
};

bool UnitStates::visible(const UnitArrays& arrays, int64_t unit) const {
  return arrays.tier(unit) == Tier::host || (arrays.tier(unit) == Tier::device && context_.device.host_visible());
}

// If the host cannot access an array, the elements pass through a host buffer in pieces.
void UnitStates::load_array(const UnitArrays& arrays, int64_t unit, ElemRange range, int64_t first, const Read& read) {
  if (visible(arrays, unit)) {
    if (range.size() > 0 && !counting()) read(range, arrays.view(unit).rows(first, first + range.size()));
    return;
  }
  if (range.size() <= 0) return;
  const int64_t most = std::min(context_.piece_elems(arrays.dtype()), range.size());
  const Buffer buffer = context_.host.allocate(bytes_of(most, arrays.dtype()), Category::staging);
  if (counting()) return;
  for (int64_t at = range.begin; at < range.end; at += most) {
    const ElemRange piece{at, std::min(at + most, range.end)};
    const View view = buffer.view({piece.size()}, arrays.dtype());
    read(piece, view);
    arrays.save(unit, first + at - range.begin, view, *context_.streams.copy);
    context_.streams.copy->synchronize();
  }
}

// The reverse of load_array: passes elements to `write`. If the host cannot access the array, the elements pass through
// a host buffer in parts of kPiecesOfPart pieces.
void UnitStates::save_array(const UnitArrays& arrays, int64_t unit, ElemRange range, int64_t first,
                            const Write& write) {
  if (range.size() <= 0) return;
  if (visible(arrays, unit)) {
    if (!counting()) write(range, arrays.view(unit).rows(first, first + range.size()));
    return;
  }
  const int64_t most = std::min(kPiecesOfPart * context_.piece_elems(arrays.dtype()), range.size());
  const Buffer buffer = context_.host.allocate(bytes_of(most, arrays.dtype()), Category::staging);
  if (counting()) return;
  for (int64_t at = range.begin; at < range.end; at += most) {
    const ElemRange part{at, std::min(at + most, range.end)};
    const View view = buffer.view({part.size()}, arrays.dtype());
    arrays.load(unit, first + at - range.begin, view, *context_.streams.copy);
    context_.streams.copy->synchronize();
    write(part, view);
  }
}

// Writes masters as f32 to `masters` in host memory, from element `first` of the part that this rank updates. The
// masters are stored in two arrays, master() and rest(). If only the device can access these arrays, the device joins
// them. Otherwise the host joins them; if they are in a file, it first reads them into buffers.
void UnitStates::join_masters(int64_t unit, int64_t first, View masters) {
  const UnitArrays &narrow = optimizer_->master(unit), &rest = optimizer_->rest();
  const int64_t most = std::min(context_.piece_elems(), masters.num_elems());
  const int64_t first_of_narrow = optimizer_->first_master_elem(unit) + first;
  if (rest.tier(unit) != Tier::device || visible(rest, unit)) {
    const auto buffer_for = [&](const UnitArrays& arrays) {
      return visible(arrays, unit) ? Buffer()
                                   : context_.host.allocate(bytes_of(most, arrays.dtype()), Category::staging);
    };
    const Buffer narrow_buffer = buffer_for(narrow), rest_buffer = buffer_for(rest);
    for (int64_t at = 0; !counting() && at < masters.num_elems(); at += most) {
      const int64_t last = std::min(at + most, masters.num_elems());
      const auto part = [&](const UnitArrays& arrays, int64_t begin, const Buffer& buffer) {
        if (visible(arrays, unit)) return arrays.view(unit).rows(begin + at, begin + last);
        const View view = buffer.view({last - at}, arrays.dtype());
        arrays.load(unit, begin + at, view, *context_.streams.copy);
        return view;
      };
      const View narrow_part = part(narrow, first_of_narrow, narrow_buffer), rest_part = part(rest, first, rest_buffer);
      context_.streams.copy->synchronize();
      context_.host_ops->join(narrow_part, rest_part, masters.rows(at, last));
    }
    return;
  }
  DeviceStaging staging(*this);
  const View joined = staging.take(most, DType::f32);
  for (int64_t at = 0; !counting() && at < masters.num_elems(); at += most) {
    const int64_t last = std::min(at + most, masters.num_elems());
    const View part = joined.rows(0, last - at);
    context_.ops.join(narrow.view(unit).rows(first_of_narrow + at, first_of_narrow + last),
                      rest.view(unit).rows(first + at, first + last), part);
    context_.streams.copy->wait(context_.streams.compute->record());
    context_.streams.copy->copy(part, masters.rows(at, last));
    context_.streams.copy->synchronize();
  }
}

void UnitStates::save_range(Section section, int64_t unit, ElemRange range, const Write& write) {
  if (range.size() <= 0) return;
  if (optimizer_ && section == Section::trainable) return save_masters(unit, range, write);
  const int64_t first = range.begin - parameters_.kept_range(unit, section).begin;
  save_array(parameters_.kept(section), unit, range, first, write);
}

void UnitStates::save_masters(int64_t unit, ElemRange range, const Write& write) {
  const int64_t first = range.begin - optimizer_->range(unit).begin;
  if (!context_.splits_masters()) {
    return save_array(optimizer_->master(unit), unit, range, optimizer_->first_master_elem(unit) + first, write);
  }
  const int64_t most = std::min(kPiecesOfPart * context_.piece_elems(), range.size());
  const Buffer buffer = context_.host.allocate(bytes_of(most, DType::f32), Category::staging);
  for (int64_t at = range.begin; at < range.end; at += most) {
    const ElemRange part{at, std::min(at + most, range.end)};
    const View masters = buffer.view({part.size()}, DType::f32);
    join_masters(unit, first + at - range.begin, masters);
    if (counting()) return;  // no later part needs more memory than the first
    write(part, masters);
  }
}

// Waits for all streams, because the host then reads and writes the arrays. An error of any stream is thrown here,
// before wrong results are saved.
void UnitStates::wait_for_all_streams() {
  context_.streams.compute->synchronize();
  for (const auto* stream :
       {&context_.streams.comm, &context_.streams.upload, &context_.streams.copy, &context_.streams.host,
        &context_.streams.states_in, &context_.streams.updates, &context_.streams.states_out}) {
    if (*stream) (*stream)->synchronize();
  }
}

void UnitStates::load_parameters(const ReadParameters& read, bool from_rank_0) {
  wait_for_all_streams();
  if (from_rank_0 && !context_.plan.alone()) {
    load_from_rank_0(read);
    return;
  }
  load_sections(read, all);
}

void UnitStates::load_sections(const ReadParameters& read, const Wanted& wanted) {
  for_each_parameter_array([&](const UnitArrays& arrays, Section section, int64_t unit, ElemRange range) {
    if (!wanted(parameters_of(section), unit)) return;
    load_array(arrays, unit, range, 0, [&](ElemRange piece, View to) { read(section, unit, piece, to); });
  });
  parameters_changed();
}

// Rank 0 reads each section in pieces and broadcasts them. Each rank keeps its own elements.
void UnitStates::load_from_rank_0(const ReadParameters& read) {
  Stream& comm = *context_.streams.comm;
  DeviceStaging staging(*this);
  // The type and the number of the elements that are sent together.
  const auto type_of = [&](Section section) {
    return section == Section::quantized ? context_.formats[section] : context_.master_dtype();
  };
  const auto most_of = [&](Section section) { return context_.piece_elems(type_of(section)); };
  int64_t bytes = 0;
  for (const Section section : kSections) {
    const auto has_section = [&](const auto& unit) { return unit[section].num_elems > 0; };
    if (std::ranges::any_of(context_.units, has_section)) {
      bytes = std::max(bytes, bytes_of(most_of(section), type_of(section)));
    }
  }
  const View all_sent = staging.take(bytes, DType::u8);
  const Buffer own = context_.host.allocate(all_sent.bytes(), Category::staging);
  const auto send = [&](Section section, int64_t unit, ElemRange piece) {
    const View sent{all_sent.data, type_of(section), {piece.size()}}, here = own.view({piece.size()}, sent.dtype);
    if (context_.ranks.world->rank() == 0 && !counting()) {
      read(section, unit, piece, here);
      comm.copy(here, sent);
    }
    context_.ranks.world->broadcast(sent, 0, comm, kStatesSubject);
    comm.copy(sent, here);
    comm.synchronize();
    for_each_parameter_array([&](const UnitArrays& arrays, Section its_section, int64_t its_unit, ElemRange range) {
      const ElemRange common{std::max(range.begin, piece.begin), std::min(range.end, piece.end)};
      if (its_unit != unit || its_section != section || common.size() <= 0) return;
      load_array(arrays, unit, common, common.begin - range.begin, [&](ElemRange part, View to) {
        const View from = here.rows(part.begin - piece.begin, part.end - piece.begin);
        convert(from.data, from.dtype, to.data, to.dtype, static_cast<size_t>(part.size()));
      });
    });
  };
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    for (const Section section : kSections) {
      const int64_t num_elems = context_.cut(u, section).num_elems;
      for (int64_t at = 0; at < num_elems; at += most_of(section)) {
        send(section, u, {at, std::min(at + most_of(section), num_elems)});
      }
    }
  }
  parameters_changed();
}

namespace {

// Draws the elements of a tensor from `first` on. Leaves `values` unchanged if they are zeros.
void draw_values(Kernels& ops, const Initializer& init, uint64_t seed, int64_t first, View values) {
  switch (init.kind) {
    case Initializer::Kind::zero:
      return;
    case Initializer::Kind::one:
      return ops.fill(values, 1);
    case Initializer::Kind::normal:
      return ops.fill_normal(values, 0, init.scale, seed, init.stream, first);
    case Initializer::Kind::uniform:
      return ops.fill_uniform(values, -init.scale, init.scale, seed, init.stream, first);
  }
}

}  // namespace

void UnitStates::initialize(uint64_t seed) {
  wait_for_all_streams();
  const auto draw = [&](Section section, int64_t unit, ElemRange range, View to) {
    context_.ops.fill(to, 0);
    const ParameterTable& table = context_.model.unit(unit).table();
    table.for_each_tensor(section, range.begin, range.end, [&](const ParameterSpec& spec, int64_t first, int64_t last) {
      const View part = to.rows(spec.offset + first - range.begin, spec.offset + last - range.begin);
      draw_values(context_.ops, spec.init, seed, first, part);
    });
  };
  // The device draws all values, because the host would draw values that differ from a GPU's in some bits. A GPU draws
  // the values of arrays in host memory or files in the free part of its stack, and then copies them. A CPU device
  // draws them directly into host memory.
  const bool drawn_in_place = context_.device.host_visible();
  for_each_parameter_array([&](const UnitArrays& arrays, Section section, int64_t unit, ElemRange range) {
    if (range.size() <= 0) return;
    if (section == Section::quantized) return draw_quantized(seed, arrays, unit, range);
    if (arrays.tier(unit) == Tier::device) return draw(section, unit, range, arrays.view(unit).rows(0, range.size()));
    load_array(arrays, unit, range, 0, [&](ElemRange part, View to) {
      if (drawn_in_place) return draw(section, unit, part, to);
      DeviceStaging staging(*this);
      const View drawn = staging.take_free(std::min(part.size(), context_.piece_elems()), arrays.dtype());
      for (int64_t at = 0; at < part.size(); at += drawn.num_elems()) {
        const int64_t n = std::min(drawn.num_elems(), part.size() - at);
        draw(section, unit, {part.begin + at, part.begin + at + n}, drawn.rows(0, n));
        context_.streams.copy->wait(context_.streams.compute->record());
        context_.streams.copy->copy(drawn.rows(0, n), to.rows(at, at + n));
        context_.streams.copy->synchronize();
      }
    });
  });
  wait_for_all_streams();  // other streams use the arrays without waiting for an event
  parameters_changed();
}

// The host draws these values on every device, because it also quantizes them.
void UnitStates::draw_quantized(uint64_t seed, const UnitArrays& arrays, int64_t unit, ElemRange range) {
  if (counting()) return load_array(arrays, unit, range, 0, {});
  // The scratch of these kernels is not in the plan, like the buffers of the quantizer: a few MiB, which are free again
  // before the first step.
  const std::unique_ptr<Device> cpu = make_cpu_device(thread_pool_of(context_.host));
  const std::unique_ptr<Kernels> ops = make_kernels(*cpu);
  const ParameterTable& table = context_.model.unit(unit).table();
  Nf4Quantizer quantizer(thread_pool_of(context_.host));
  load_array(arrays, unit, range, 0, [&](ElemRange part, View to) {
    table.for_each_tensor(
        Section::quantized, part.begin, part.end, [&](const ParameterSpec& spec, int64_t first, int64_t last) {
          const ReadWeights draw = [&](int64_t begin, int64_t end, float* values) {
            draw_values(*ops, spec.init, seed, begin, view_of(values, {end - begin}));
          };
          std::byte* const groups = to.rows(spec.offset + first - part.begin, to.num_elems()).data;
          quantizer.quantize(spec.name, spec.shape.num_elems(), first, last, draw, reinterpret_cast<Nf4Group*>(groups));
        });
  });
}

void UnitStates::parameters_changed() {
  for (int64_t u = 0; u < context_.num_units(); ++u) parameters_.replaced(u);
}

void UnitStates::load(const ReadState& read, const Wanted& wanted) {
  wait_for_all_streams();
  load_sections(
      [&](Section section, int64_t unit, ElemRange range, View to) { read(parameters_of(section), unit, range, to); },
      wanted);
  if (!optimizer_) return;
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    for (const StateKind kind : {StateKind::moment1, StateKind::moment2}) {
      if (!wanted(kind, u)) continue;
      const UnitShards shards = cut(kind, u);
      const ElemRange range = context_.plan.updated(shards).clipped(shards.num_elems);
      const UnitArrays& arrays = kind == StateKind::moment1 ? optimizer_->moment1() : optimizer_->moment2();
      load_array(arrays, u, range, 0, [&](ElemRange piece, View to) { read(kind, u, piece, to); });
    }
  }
}

void UnitStates::save(const WriteState& write, const Wanted& wanted) {
  wait_for_all_streams();
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    for (const StateKind kind : kStateKinds) {
      if (!wanted(kind, u)) continue;
      const ElemRange saved = saved_range(kind, u);
      const auto write_kind = [&](ElemRange part, View from) { write(kind, u, part, from); };
      if (kind == parameters_of(section_of(kind))) {
        save_range(section_of(kind), u, saved, write_kind);
      } else if (optimizer_) {
        const UnitArrays& arrays = kind == StateKind::moment1 ? optimizer_->moment1() : optimizer_->moment2();
        save_array(arrays, u, saved, saved.begin - context_.plan.updated(cut(kind, u)).begin, write_kind);
      }
    }
  }
}

void UnitStates::save_parameters(const WriteParameters& write, const Wanted& wanted) {
  wait_for_all_streams();
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    for (const Section section : kSections) {
      if (!wanted(parameters_of(section), u)) continue;
      save_range(section, u, saved_range(parameters_of(section), u),
                 [&](ElemRange part, View from) { write(section, u, part, from); });
    }
  }
}

// Returns the sum of the squares of this rank's shard, in f64. For elements of 32 or 16 bits, the sum is finite if and
// only if every element is finite. If f32 masters are split into two arrays (UnitOptimizer::rest()), only master() can
// contain infinity or NaN, so rest() is not read. Frozen parameters do not change, so they are not checked.
double UnitStates::sum_of_squared_parameters(int64_t unit) {
  const ElemRange range = context_.trained_cut(unit).own.clipped(context_.trained_cut(unit).num_elems);
  if (range.size() <= 0 || counting()) return 0;
  const UnitArrays& arrays = optimizer_ ? optimizer_->master(unit) : parameters_.kept(Section::trainable);
  const int64_t first = optimizer_ ? optimizer_->first_master_elem(unit) + range.begin - optimizer_->range(unit).begin
                                   : range.begin - parameters_.kept_range(unit, Section::trainable).begin;
  double result = 0;
  if (arrays.tier(unit) == Tier::device && !context_.device.host_visible()) {
    DeviceStaging staging(*this);
    const View sum = staging.take(1, DType::f64);
    context_.ops.fill(sum, 0);
    context_.ops.add_sum_of_squares(arrays.view(unit).rows(first, first + range.size()), sum);
    context_.device.copy_to_host(sum, &result);
    return result;
  }
  const View sum{reinterpret_cast<std::byte*>(&result), DType::f64, {1}};
  save_array(arrays, unit, range, first,
             [&](ElemRange, View part) { context_.host_ops->add_sum_of_squares(part, sum); });
  return result;
}

std::optional<int64_t> UnitStates::find_non_finite_unit() {
  wait_for_all_streams();
  std::vector<double> sums;
  for (int64_t u = 0; u < context_.num_units(); ++u) sums.push_back(sum_of_squared_parameters(u));
  sums = context_.ranks.world->sum(std::move(sums), "the check for finite parameters");
  for (size_t u = 0; u < sums.size(); ++u) {
    if (!std::isfinite(sums[u])) return static_cast<int64_t>(u);
  }
  return std::nullopt;
}

}  // namespace tessera
