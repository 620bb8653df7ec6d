// The speeds of a machine. The counting device computes the time of a run from them (timeline.h). `tessera doctor
// --measure` measures them (plan/measure_machine.h).
//
// Rates are per second, and times are in seconds. All rates are those of one rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/record.h"

namespace tessera {

// The three products of a linear layer: y = x · Wᵀ, dx = dy · W and dW = dyᵀ · x.
enum class ProductForm { forward, backward_input, backward_weight };
const char* name_of(ProductForm form);

// The arithmetic of a product. f16 and bf16 take the same time up to the power that they need. Products in fp8 sum over
// the columns of both factors, whatever their form, and are measured as `forward`.
enum class Arithmetic { f32, tf32, f16, bf16, fp8 };
const char* name_of(Arithmetic type);
// Of views of a type. f64 is only for checks of gradients, and counts as f32.
Arithmetic arithmetic_of(DType dtype, bool tf32);

struct Machine {
  // A product of a linear layer with N rows, I input and O output channels.
  struct Product {
    Arithmetic type;
    ProductForm form;
    int64_t rows, in, out;
    double flops_per_s;
  };
  // Causal attention of `heads` heads in total over all sequences, which have this length. The backward pass counts its
  // recomputed scores (ops/flops.h).
  struct Attention {
    Arithmetic type;
    bool alibi;
    int64_t head_dim, length, heads;
    double forward_flops_per_s, backward_flops_per_s;
  };
  // A kernel that reads and writes this many bytes. Small arrays stay in the caches.
  struct Memory {
    int64_t bytes;
    double seconds;
  };
  // A collective takes `latency_s`, and the bytes that a rank sends at this rate. Between nodes: a collective of all
  // ranks.
  struct Link {
    double latency_s = 0, bytes_per_s = 0;
  };

  std::string name;    // "NVIDIA H200"
  std::string source;  // where the speeds come from: "measured"
  std::vector<Product> products;
  std::vector<Attention> attention;
  std::vector<Memory> memory;   // in ascending order
  int num_multiprocessors = 0;  // of a GPU
  double launch_s = 0;          // time of the calling thread for each launch of a kernel or graph
  double to_device_bytes_per_s = 0, to_host_bytes_per_s = 0;  // of copies from and to pinned memory
  double copy_s = 0;                                          // that every copy takes in addition
  // That AdamW reads and writes on the host, with all threads of the rank: if it writes everything, and if it writes
  // only parameters or only moments (late moments), which takes as much arithmetic for fewer bytes.
  double host_bytes_per_s = 0, host_parameters_bytes_per_s = 0, host_moments_bytes_per_s = 0;
  double file_read_bytes_per_s = 0, file_write_bytes_per_s = 0;  // 0: not measured
  Link within_node, between_nodes;
};

Record record_of(const Machine& machine);
// Throws InputError with `where` if the record is not a machine's.
Machine machine_from(const Record& record, const std::string& where);

// On a GPU, a kernel starts a little later than the one before ends, and its first and last thread blocks do not fill
// the GPU. Calls of one kernel in a row show less of both, so memory_time() does not contain it.
inline constexpr double kStartOfKernel_s = 2e-6;

// FLOP/s of a product of this shape, interpolated between the measured products of this type and form. Similar shapes
// count more than others.
double product_rate(const Machine& machine, Arithmetic type, ProductForm form, int64_t rows, int64_t in, int64_t out);
// FLOP/s of attention.
double attention_rate(const Machine& machine, Machine::Attention shape, bool backward);
// The time of a kernel that reads and writes this many bytes.
double memory_time(const Machine& machine, double bytes);

}  // namespace tessera
